"""Launches on the workers of a Dask scheduler: Dask hands out tasks and does nothing else.

A task whose worker dies is Dask's to give to another one; a task that several workers died of ends as
KilledWorker there, and as a failure of its launch here. A worker that sees other files, or has another
release, gets no more launches while another worker is there.

Source: distributed.dask.org, "Worker Resilience", "Futures" and "Client" (events).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay_client.recordings.handing_over import made_by
from assay_client.simulating.attempts import failure_of
from assay_client.simulating.locking import file_locked
from assay_client.simulating.on_worker import WorkerDiffersError, simulate_on_worker
from assay_client.simulating.tasks import Ended, LaunchTask
from assay_client.simulating.watching import LaunchProgress
from assay_client.simulating.workers import Report
from assay_core.server_address import parse_address
from assay_sampling.errors import MissingExtraError, NotReadyError, ParameterError

if TYPE_CHECKING:
    from distributed import Client

_SCHEMES = {"dask://": "tcp://", "dask+tls://": "tls://"}
_CONNECT_SECONDS = 10.0
_NOBODY_SECONDS = 5.0
_LOOK_SECONDS = 2.0
_END_SECONDS = 20.0
_EXAMPLE = "give dask://HOST:PORT, or dask+tls://HOST:PORT with Dask's own settings for TLS"


class DaskWorkers:
    """The workers of a scheduler, named by ``dask://HOST:PORT``.

    Raises ParameterError for another address, MissingExtraError without Dask, NotReadyError where no
    scheduler answers.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._client = _connected(place)
        self._tasks = self._client.get_executor(pure=False)
        self._topic = f"assay-simulate-{uuid.uuid4().hex}"
        self._reports: dict[str, Report] = {}
        self._open: dict[str, LaunchTask] = {}
        self._differing: dict[str, str] = {}
        self._room, self._looked_at, self._somebody_at = 0, 0.0, time.monotonic()
        self._client.subscribe_topic(self._topic, self._take_report)

    def submit(self, task: LaunchTask, report: Report) -> Future[Ended | None]:
        self._reports[str(task.folder.path)] = report
        return self._submit(task)

    def result(self, future: Future[Ended | None], task: LaunchTask) -> Ended | Future[Ended | None] | None:
        from distributed import KilledWorker  # noqa: PLC0415 - it is loaded
        from distributed.comm import CommClosedError  # noqa: PLC0415

        try:
            ended = future.result()
        except WorkerDiffersError as error:
            return self._elsewhere(task, error)
        except KilledWorker as error:
            cause = f"{error.allowed_failures + 1} workers died of it"
            ended = failure_of(task.folder, "worker_died", cause)
        except (CancelledError, CommClosedError) as error:
            raise self._lost() from error
        except ImportError as error:
            raise NotReadyError(
                self._place, f"its workers have no Assay ({error})", f"install {made_by()} on them"
            ) from error
        self._open.pop(str(task.folder.path), None)
        return ended

    def room(self) -> int:
        self._look()
        return self._room

    def notices(self) -> Sequence[str]:
        self._look()
        notices = list(self._differing.values())
        if not self._room and time.monotonic() - self._somebody_at > _NOBODY_SECONDS:
            notices.append(f"{self._place} has no worker: waiting for one")
        return notices

    def cancel(self) -> None:
        self._client.close(timeout=2)

    def close(self) -> None:
        """Close the connection, and wait until whoever still runs a launch has let go of its lock."""
        self._client.close(timeout=2)
        until = time.monotonic() + _END_SECONDS
        for task in self._open.values():
            if task.folder.path.is_dir():
                with file_locked(task.folder.lock, until - time.monotonic()):
                    pass

    def _submit(self, task: LaunchTask, only: Sequence[str] = ()) -> Future[Ended | None]:
        """Submit a task, to some of the workers if these are there."""
        folder = task.folder
        rule = None if task.rule is None else task.rule.of(folder)
        self._open[str(folder.path)] = task
        options: dict[str, Any] = {"workers": list(only), "allow_other_workers": True} if only else {}
        submitted: Future[Ended | None] = self._tasks.submit(
            simulate_on_worker, made_by(), self._topic, replace(task, rule=rule),
            key=f"{folder.design.name}-{folder.path.name}-{uuid.uuid4().hex}",
            priority=folder.launch.trace_bytes,
            **options,
        )  # fmt: skip
        return submitted

    def _elsewhere(self, task: LaunchTask, error: WorkerDiffersError) -> Ended | Future[Ended | None]:
        """Try a task on other workers than those that differ; without any, it has failed."""
        self._differing[error.address] = f"{error.subject} gets no more launches: {error.cause}"
        others = set(self._client.nthreads()) - set(self._differing)
        if others:
            return self._submit(task, sorted(others))
        self._open.pop(str(task.folder.path), None)
        return failure_of(task.folder, "worker_differs", f"{error.subject}: {error.cause}")

    def _take_report(self, event: tuple[float, dict[str, Any]]) -> None:
        fields = event[1]
        report = self._reports.get(fields["folder"])
        if report is not None:
            report(fields["where"], LaunchProgress(fields["blocks"], fields["ipc"]))

    def _look(self) -> None:
        """See how many threads workers have; raises NotReadyError if the scheduler is gone."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        if self._client.status != "running":
            raise self._lost()
        try:
            there = self._client.nthreads()
        except (OSError, TimeoutError) as error:
            raise self._lost() from error
        self._room = sum(threads for address, threads in there.items() if address not in self._differing)
        if self._room:
            self._somebody_at = now

    def _lost(self) -> NotReadyError:
        return NotReadyError(
            self._place,
            "the connection to the Dask scheduler was lost",
            "start it again: what has ended is kept, and the same command goes on",
        )


def _connected(place: str) -> Client:
    scheme = next((each for each in _SCHEMES if place.startswith(each)), None)
    if scheme is None:
        raise ParameterError(f"--workers {place!r}", "it does not name a Dask scheduler", _EXAMPLE)
    address = parse_address(place.removeprefix(scheme), f"--workers {place!r}")
    if address.socket is not None:
        raise ParameterError(f"--workers {place!r}", "Dask opens no Unix socket", _EXAMPLE)
    try:
        from distributed import Client  # noqa: PLC0415 - takes a second to load
        from distributed.security import Security  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("assay simulate --workers", error.name or "distributed", "dask") from None
    encrypted = _SCHEMES[scheme] == "tls://"
    security = Security(require_encryption=True) if encrypted else None  # with the files of Dask's settings
    if security is not None and security.get_connection_args("client").get("ssl_context") is None:
        raise ParameterError(
            f"--workers {place!r}",
            "Dask's configuration names no certificate for TLS",
            "set ca-file, client.cert and client.key below distributed.comm.tls there",
        )
    try:
        return Client(
            f"{_SCHEMES[scheme]}{address.text}",
            timeout=_CONNECT_SECONDS,
            security=security,
            set_as_default=False,
            name="assay-simulate",
        )
    except Exception as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotReadyError(
            place,
            f"the Dask scheduler does not answer ({cause})",
            "start it (dask scheduler), and check host, port, firewall and Dask's settings for TLS",
        ) from error
