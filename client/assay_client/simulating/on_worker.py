"""What runs on a worker of Dask: a launch, if the worker sees the files that the driver sees.

A task of Dask cannot be interrupted. So it asks the worker, while its simulator runs, whether anybody still
wants it: Dask forgets a task when its client cancels it, ends or is lost, and a worker that closes or has
lost its scheduler says so. If the worker is killed, the supervisor ends the simulator.

Source: distributed.dask.org, "Worker State Machine" (states of a task) and "Worker" (``Status``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay_client.recordings.handing_over import made_by
from assay_client.simulating.attempts import LEAST_MEMORY_BYTES
from assay_client.simulating.installation import digest_of
from assay_client.simulating.launch_folder import key_of, read_by
from assay_client.simulating.tasks import Ended, LaunchTask, simulate_launch
from assay_client.simulating.watching import LaunchProgress
from assay_client.simulating.workers import whole_memory_bytes
from assay_sampling.errors import InputError, NotReadyError

if TYPE_CHECKING:
    from distributed import Worker

_REPORT_SECONDS = 2.0
_WANTED_STATES = frozenset({"executing", "long-running"})
_OPEN = frozenset({"running", "paused"})


class WorkerDiffersError(NotReadyError):
    """A worker sees other files than the driver, or has another release of Assay.

    Args:
        address: the worker's address.
        where: its name.
        cause: what differs.
    """

    def __init__(self, address: str, where: str, cause: str) -> None:
        self.address = address
        super().__init__(f"worker {where}", cause, "give it the driver's paths, files and release of Assay")


@dataclass(frozen=True)
class _Unwanted:
    """Whether nobody wants the result of a task any more, or its worker ends."""

    worker: Worker
    task: str

    def is_set(self) -> bool:
        state = self.worker.state.tasks.get(self.task)
        is_wanted = state is not None and state.state in _WANTED_STATES
        return not is_wanted or self.worker.status.name not in _OPEN


class _Reports:
    """Tells the driver how far a launch is, at once and then every other second."""

    def __init__(self, worker: Worker, topic: str, folder: Path, where: str) -> None:
        self._worker, self._topic, self._folder, self._where = worker, topic, folder, where
        self._next = 0.0

    def __call__(self, progress: LaunchProgress) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _REPORT_SECONDS
        fields = {
            "folder": str(self._folder),
            "where": self._where,
            "blocks": progress.blocks,
            "ipc": progress.ipc,
        }
        self._worker.log_event(self._topic, fields)


def simulate_on_worker(release: str, topic: str, task: LaunchTask) -> Ended:
    """Simulate a launch on this worker; ``topic`` is where it says how far it is.

    Raises WorkerDiffersError, StorageError where the disk is full or refuses, and Dask's Reschedule where the
    worker ends or the task is not wanted.
    """
    from distributed import Reschedule, get_worker  # noqa: PLC0415 - whoever calls this runs in Dask

    worker = get_worker()
    where = str(worker.name).removeprefix("tcp://").removeprefix("tls://")
    report = _Reports(worker, topic, task.folder.path, where)
    report(LaunchProgress())
    cause = _difference(release, task)
    if cause:
        raise WorkerDiffersError(worker.address, where, cause)
    unwanted = _Unwanted(worker, worker.get_current_task())
    whole = worker.memory_manager.memory_limit or whole_memory_bytes()
    share = max(whole // worker.state.nthreads, LEAST_MEMORY_BYTES)
    result = simulate_launch(task, share, unwanted, report)
    if result is None:
        raise Reschedule
    return result


def _difference(release: str, task: LaunchTask) -> str:
    """How this worker differs from the driver; "": in nothing."""
    if made_by() != release:
        return f"it has {made_by()} instead of {release}"
    folder = task.folder
    launch, copied = folder.launch, folder.path.parent / "configuration"
    try:
        here = key_of(
            _digest(*task.simulator.executed),
            folder.design,
            _digest(*(copied / name for name, _ in folder.design.files)),
            launch,
            traces="".join(_digest(path) for path in read_by(launch)),
            stop="" if task.rule is None else task.rule.key,
        )
    except (InputError, OSError) as error:
        return f"it cannot read what the driver reads ({error})"
    differs = [what for what, value in folder.key.items() if here[what] != value]
    return f"it has another {' and '.join(differs)} there than the driver" if differs else ""


def _digest(*paths: Path) -> str:
    """The hash of files, whose contents are read again only if one of them has changed."""
    signatures = [path.stat() for path in paths]
    return _digest_read(paths, tuple((each.st_size, each.st_mtime_ns) for each in signatures))


@cache
def _digest_read(paths: tuple[Path, ...], _signatures: tuple[tuple[int, int], ...]) -> str:
    return digest_of(list(paths))
