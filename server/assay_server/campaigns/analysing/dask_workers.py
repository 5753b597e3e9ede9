"""Analyses on the workers of a Dask scheduler: Dask hands out tasks and does nothing else.

A worker that dies is Dask's to notice: it gives the task to another one. A task that several workers died of
ends as KilledWorker there, and as a broken executor here. If the scheduler is lost, tasks under way end as
WorkersAwayError, and so do those for which no worker is left. Source: distributed.dask.org, "Worker
Resilience" and "Futures".

A worker that the server did not start gets one task at a time, and only if it has the packages whose releases
numbers may change with.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Future
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from assay_sampling.errors import MissingExtraError
from assay_server.campaigns.analysing.executors import ExecutorApart, Executors, WorkerPool, WorkersAwayError
from assay_server.places import AnalysisPlace

if TYPE_CHECKING:
    from distributed import Client

    from assay_server.config import ServerSettings

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
# A worker that died is started again by its nanny within seconds.
_LOOKS_WITHOUT_WORKERS = 5


def chosen_executors(settings: ServerSettings) -> Executors:
    """Where analyses are made; warns of a scheduler that others can reach without TLS."""
    place = settings.analysis_place
    if place is None:
        return WorkerPool(settings.analysis_workers)
    if not place.tls and not place.scheduler.on_this_machine:
        _log.warning(
            "%s: whoever reaches this scheduler can run programs as this server's user; dask+tls:// is safe",
            place,
        )
    return DaskWorkers(place)


class DaskWorkers(Executors):
    """Executors over a Dask scheduler. ``connect_seconds``: how long it is waited for."""

    def __init__(self, place: AnalysisPlace, connect_seconds: float = _CONNECT_SECONDS) -> None:
        self._place = place
        self._connect_seconds = connect_seconds

    def make(self) -> _DaskExecutor:
        """A connection to the scheduler, whose workers are checked."""
        client = _connected(self._place, self._connect_seconds)
        deadline = time.monotonic() + self._connect_seconds
        try:
            usable, others = _judged(client)
            while not usable:  # dead ones are replaced within seconds
                if others:
                    raise refused(str(self._place), list(others.values()))
                if time.monotonic() > deadline:
                    raise _no_workers(self._place)
                time.sleep(_PAUSE_SECONDS)
                usable, others = _judged(client)
        except BaseException:
            client.close(timeout=1)
            raise
        for reason in others.values():
            _log.warning("%s: a worker gets no analyses: %s", self._place, reason)
        return _DaskExecutor(self._place, client, usable if others else None)


class _DaskExecutor(ExecutorApart):
    """One connection to a scheduler: Dask's own executor, whose errors become ours. Thread-safe.

    ``usable``: addresses of the workers that may have tasks; None: any, so that one which replaces a dead one
    may have its tasks.
    """

    def __init__(self, place: AnalysisPlace, client: Client, usable: Collection[str] | None) -> None:
        self._place, self._client, self._usable = place, client, usable
        workers = None if usable is None else sorted(usable)
        self._tasks = client.get_executor(pure=False, workers=workers)
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="assay-dask-workers", daemon=True).start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task; keywords are not used. Raises WorkersAwayError."""
        if self._ended.is_set() or self._client.status != "running":
            raise _lost(self._place)
        try:
            task = self._tasks.submit(run_task, releases_here(), str(self._place), fn, args)
        except Exception as error:
            raise _lost(self._place, error) from error
        promised: Future[Any] = Future()
        with self._lock:
            self._under_way.add(promised)
        promised.add_done_callback(partial(self._forget, task))
        task.add_done_callback(partial(self._take, promised))
        return promised

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the connection, which ends all tasks."""
        self._ended.set()
        for promised in self._left():
            promised.cancel()
        try:
            self._client.close(timeout=2)
        except Exception as error:  # noqa: BLE001 - it goes away in any case
            _log.info("%s: closing the connection: %s", self._place, error)

    def _left(self) -> list[Future[Any]]:
        with self._lock:
            return list(self._under_way)

    def _forget(self, task: Future[Any], promised: Future[Any]) -> None:
        with self._lock:
            self._under_way.discard(promised)
        if promised.cancelled():
            task.cancel()

    def _take(self, promised: Future[Any], task: Future[Any]) -> None:
        """A task has ended; called in a thread of Dask's."""
        if not promised.set_running_or_notify_cancel():
            return
        if task.cancelled():
            promised.set_exception(_lost(self._place))
        elif (error := task.exception()) is not None:
            promised.set_exception(_translated(self._place, error))
        else:
            promised.set_result(task.result())

    def _watch(self) -> None:
        """End tasks that no worker is left for: Dask would let them wait for ever."""
        missed = 0
        while not self._ended.wait(_LOOK_SECONDS):
            missed = missed + 1 if self._left() and not self._has_workers() else 0
            if missed > _LOOKS_WITHOUT_WORKERS:
                self._ended.set()
                for promised in self._left():
                    if promised.set_running_or_notify_cancel():
                        promised.set_exception(_no_workers(self._place))

    def _has_workers(self) -> bool:
        try:
            there = self._client.scheduler_info()["workers"]
        except Exception:  # noqa: BLE001 - without its scheduler, Dask cancels the tasks itself
            return bool(self._client.status == "running")
        return any(self._usable is None or address in self._usable for address in there)


def _connected(place: AnalysisPlace, seconds: float) -> Client:
    try:
        from distributed import Client  # noqa: PLC0415 - takes a second to load
        from distributed.security import Security  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("assay-server", error.name or "distributed", "dask") from None
    security = (
        Security(
            tls_ca_file=str(place.ca),
            tls_client_cert=str(place.certificate),
            tls_client_key=str(place.key),
            require_encryption=True,
        )
        if place.tls
        else None
    )
    try:
        return Client(
            place.address, timeout=seconds, security=security, set_as_default=False, name="assay-server"
        )
    except Exception as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WorkersAwayError(
            str(place),
            f"the Dask scheduler does not answer ({first_line})",
            "start it (dask scheduler), and check host, port, firewall and the files for TLS",
        ) from error


def _judged(client: Client) -> tuple[set[str], dict[str, str]]:
    """The addresses of workers with our releases, and what the others have instead, by address."""
    here = releases_here()
    reported = client.get_versions(packages=packages_in(here))["workers"]
    workers = client.scheduler_info()["workers"]
    others = {}
    for address, report in reported.items():
        if differ := differences(releases_of(report, here), here):
            name = workers.get(address, {}).get("name", address)
            others[address] = f"worker {name} ({address}) has {', '.join(differ)}"
    return set(reported) - set(others), others


def _translated(place: AnalysisPlace, error: BaseException) -> BaseException:
    from distributed import KilledWorker  # noqa: PLC0415
    from distributed.client import FutureCancelledError  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415

    if isinstance(error, KilledWorker):
        return BrokenExecutor(f"workers of {place} died of it")
    if isinstance(error, FutureCancelledError | CommClosedError):
        return _lost(place, error)
    return error


def _lost(place: AnalysisPlace, error: BaseException | None = None) -> WorkersAwayError:
    suffix = "" if error is None else f" ({type(error).__name__})"
    return WorkersAwayError(
        str(place),
        f"the connection to the Dask scheduler was lost{suffix}",
        "nothing is lost: the analysis goes on as soon as scheduler and workers are there",
    )


def _no_workers(place: AnalysisPlace) -> WorkersAwayError:
    return WorkersAwayError(
        str(place),
        "the Dask scheduler has no worker",
        f"start workers: dask worker --nthreads 1 {place.address}",
    )


Releases = Mapping[str, str | None]

# An analysis limits the threads of numeric libraries for its whole process.
_one_task = threading.Lock()

# Besides Python. A report names some of them.
_ALWAYS_NEEDED = ("assay-gpu", "numpy", "pyarrow", "scikit-learn", "scipy", "pydantic", "duckdb")
_TRIM_VARIABLE, _SET_BY_NANNY = "MALLOC_TRIM_THRESHOLD_", "65536"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MAPPED_FROM_BYTES = 32 << 20  # the most that glibc allows


@cache
def releases_here() -> Releases:
    """The releases of this process that workers need, too; None: not installed.

    They are those of our packages, and of those that bring a method that is installed here.
    """
    from assay_sampling.methods.registry import methods_of_others, package_of  # noqa: PLC0415 - loads methods

    brought = {package[0] for name in methods_of_others() if (package := package_of(name)) is not None}
    return _releases_here(("python", *_ALWAYS_NEEDED, *sorted(brought.difference(_ALWAYS_NEEDED))))


@cache
def _releases_here(names: tuple[str, ...]) -> Releases:
    from distributed.versions import get_versions  # noqa: PLC0415 - whoever asks uses Dask

    return releases_of(get_versions(packages=packages_in(names)), names)


def releases_of(reported: Mapping[str, Any] | None, names: Iterable[str]) -> Releases:
    """The releases in Dask's report of versions of a process: of Python, and of packages by name."""
    packages = (reported or {}).get("packages") or {}
    return {name: packages.get(name) for name in names}


def packages_in(names: Iterable[str]) -> list[str]:
    """What Dask is asked for: it says Python's release by itself."""
    return [name for name in names if name != "python"]


def differences(there: Releases, here: Releases) -> list[str]:
    """What another process has in another release, for people; empty: nothing."""
    return [
        f"{name} {there[name] or 'missing'} instead of {release or 'none'}"
        for name, release in here.items()
        if there[name] != release
    ]


def run_task(expected: Releases, where: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a task if this process has the server's releases. Raises WorkersAwayError, and the task's errors.

    ``where``: the scheduler's address, for people.
    """
    differ = differences(_releases_here(tuple(expected)), expected)
    if differ:
        from distributed import get_worker  # noqa: PLC0415

        worker = get_worker()
        raise refused(where, [f"worker {worker.name} ({worker.address}) has {', '.join(differ)}"])
    keep_freed_memory()
    with _one_task:
        return function(*arguments)


def refused(where: str, reasons: list[str]) -> WorkersAwayError:
    """Workers that may not be used, each with what differs."""
    return WorkersAwayError(
        where,
        f"no worker there may be used: {'; '.join(reasons)}",
        "start workers with the server's releases of Assay, Python and these packages",
    )


@cache
def keep_freed_memory() -> None:
    """Undo what Dask's nanny does to the memory of its workers, unless a person chose another value.

    With it, glibc gives every array back to the system when it is freed, and fetches it page by page when the
    next one is made: a third of an analysis' CPU. These are the limits that glibc comes to by itself in a
    process of the server. Source: distributed.dask.org, "Worker Memory Management"; mallopt(3).
    """
    if os.environ.get(_TRIM_VARIABLE) != _SET_BY_NANNY:
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        set_limit = ctypes.CDLL(None).mallopt
        set_limit(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        set_limit(_M_TRIM_THRESHOLD, 2 * _MAPPED_FROM_BYTES)
