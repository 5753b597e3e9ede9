"""A launch to simulate on a design, as a task: the same wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay_client.simulating.attempts import Limits, failure_of, simulate
from assay_client.simulating.installation import Simulator
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.locking import file_locked
from assay_client.simulating.stopping import StopRule, Watch
from assay_client.simulating.watching import LaunchProgress
from assay_core.processes.tool_run import Cancellation
from assay_sampling.documents.designs import LaunchNumbers, SimulationFailure

_KILLED_AT_MOST = 3
_LOCK_SECONDS = 120.0

Ended = LaunchNumbers | SimulationFailure


@dataclass(frozen=True)
class LaunchTask:
    """A launch to simulate on a design.

    Args:
        folder: where, and what.
        simulator: what runs.
        hang_seconds: for how long its process may write nothing.
        memory_bytes: the address space of the process; None: its share of the memory where it runs.
        rule: of projection, by which it is stopped; None: it is simulated whole.
    """

    folder: LaunchFolder
    simulator: Simulator
    hang_seconds: float
    memory_bytes: int | None = None
    rule: StopRule | None = None


def simulate_launch(
    task: LaunchTask, share_bytes: int, cancelled: Cancellation, report: Callable[[LaunchProgress], None]
) -> Ended | None:
    """Simulate a launch, again if something killed its simulator. Returns its numbers, or the failure; None
    if it was cancelled.

    Args:
        task: the launch.
        share_bytes: of memory, for a task that does not say how much it may have.
        cancelled: ends it before its end.
        report: called each half second with how far it is.

    Raises StorageError where the disk is full or refuses.
    """
    report(LaunchProgress())
    limits = Limits(task.memory_bytes or share_bytes, task.hang_seconds)
    with file_locked(task.folder.lock, _LOCK_SECONDS, cancelled) as lock:
        if cancelled.is_set():
            return None
        if lock is None:
            return failure_of(
                task.folder, "occupied", f"it has been simulated elsewhere for {_LOCK_SECONDS:g} s"
            )
        for _ in range(_KILLED_AT_MOST):
            watch = Watch(task.folder, task.hang_seconds, cancelled, report, task.rule)
            result = simulate(task.folder, task.simulator, limits, watch, locks=(lock,), rule=task.rule)
            if not (isinstance(result, SimulationFailure) and result.kind == "killed"):
                break
    return result
