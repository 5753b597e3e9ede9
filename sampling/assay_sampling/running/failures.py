"""Why an attempt of a run failed: one class for each cause that people act on differently.

A failure is a result: agent and server store it with the run, the command line shows it with its remedy,
and the server tries the run again only where the class says that a retry can help.

The table in ``docs/failures.md`` is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Whose fault a failure is, and so what it counts against."""

    RUN = "run"  # the workload, its measurement or its campaign file: one of the run's tries is spent
    BOX = "box"  # disk, memory, tool or driver of the box: its slot rests, and the run keeps its tries
    NOBODY = "nobody"  # the attempt was lost, refused by its agent's policy, or no longer wanted


class FailureClass(StrEnum):
    """The classes; the value goes over the wire and into reports."""

    PERMISSION = "permission"
    COUNTER_BUSY = "counter_busy"
    LOCK_FILE = "lock_file"
    METRIC_UNKNOWN = "metric_unknown"
    APPLICATION_FAILED = "application_failed"
    NOTHING_PROFILED = "nothing_profiled"
    HANG = "hang"
    REPORT_SHORT = "report_short"
    WINDOW_SHORT = "window_short"
    IMPORTER_FAILED = "importer_failed"
    DROPPED_EVENTS = "dropped_events"
    GPU_UNHEALTHY = "gpu_unhealthy"
    GPU_LOST = "gpu_lost"
    GPU_BUSY = "gpu_busy"
    GPU_MEMORY = "gpu_memory"
    THROTTLED = "throttled"
    MPS_NOT_IN_FORCE = "mps_not_in_force"
    INPUT_UNREADABLE = "input_unreadable"
    DISK_FULL = "disk_full"
    SPOOL_DAMAGED = "spool_damaged"
    LEFTOVERS = "leftovers"
    SLOT_BROKEN = "slot_broken"
    BOX_MEMORY = "box_memory"
    TOOL_UNUSABLE = "tool_unusable"
    DRIVER_UNUSABLE = "driver_unusable"
    MEMORY_LIMIT = "memory_limit"
    DISK_LIMIT = "disk_limit"
    AGENT_RESTARTED = "agent_restarted"
    LEASE_EXPIRED = "lease_expired"
    SERVER_REFUSED = "server_refused"
    SERVER_RESTORED = "server_restored"
    STAGING_DAMAGED = "staging_damaged"
    RECORDS_CHANGED = "records_changed"
    REFUSED_BY_POLICY = "refused_by_policy"
    ANALYSIS_WORKERS = "analysis_workers"
    CANCELLED = "cancelled"
    INTERNAL = "internal"

    @property
    def meaning(self) -> str:
        """What happened, in one sentence without a final full stop."""
        return _TABLE[self].meaning

    @property
    def remedy(self) -> str:
        """What to do about it, in one sentence without a final full stop."""
        return _TABLE[self].remedy

    @property
    def retryable(self) -> bool:
        """Whether the same run, tried again, may succeed without a person doing anything."""
        return _TABLE[self].retryable

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        return _TABLE[self].fault


@dataclass(frozen=True)
class _Entry:
    meaning: str
    remedy: str
    retryable: bool
    fault: Fault = Fault.RUN


_TABLE: dict[FailureClass, _Entry] = {
    FailureClass.PERMISSION: _Entry(
        "the driver lets only administrators read performance counters (ERR_NVGPUCTRPERM)",
        "set the driver option NVreg_RestrictProfilingToAdminUsers=0 on the box, or give the agent root; "
        "where neither is possible (containers, clouds), write 'detailed: none' into the campaign file, "
        "which needs no counters ('assay docs light-only')",
        False,
        Fault.BOX,
    ),
    FailureClass.COUNTER_BUSY: _Entry(
        "another program holds the performance counters of the GPU",
        "pause DCGM's profiling (dcgmi profile --pause; stop dcgm-exporter where DCGM is inside it) and "
        "other profilers on the box",
        True,
        Fault.BOX,
    ),
    FailureClass.LOCK_FILE: _Entry(
        "a lock file that the run needs could not be opened, or another user or run holds it",
        "let one agent of one user drive each GPU; the lock's folder must belong to that user and be on a "
        "local disk",
        True,
        Fault.BOX,
    ),
    FailureClass.METRIC_UNKNOWN: _Entry(
        "the GPU or the profiler's version does not have a metric that was asked for",
        "compare the counters of the campaign with 'ncu --query-metrics' on this box",
        False,
    ),
    FailureClass.APPLICATION_FAILED: _Entry(
        "the workload itself ended with an error",
        "run the workload's command by hand on the box, as the agent's user, and fix what it reports",
        False,
    ),
    FailureClass.NOTHING_PROFILED: _Entry(
        "the tool ended without an error, but its result holds no launches",
        "check that the workload launches kernels in this process, and the window or filter of launches",
        False,
    ),
    FailureClass.HANG: _Entry(
        "the workload made no progress under the profiler within its time limit",
        "raise the time limit of the workload, or profile it with another replay mode",
        True,
    ),
    FailureClass.REPORT_SHORT: _Entry(
        "the result holds fewer launches than the tool said it profiled",
        "look at the log of the attempt for a killed process or a full disk; the run is tried again",
        True,
    ),
    FailureClass.WINDOW_SHORT: _Entry(
        "the profiler stopped before it had all requested launches, while the workload was still running",
        "look at the log of the attempt for what stopped the profiler (a person, a scheduler, another tool); "
        "the run is tried again",
        True,
    ),
    FailureClass.IMPORTER_FAILED: _Entry(
        "the profiler measured, but its importer produced no report",
        "give the box more memory or disk for the import, or import the raw file on another box",
        True,
    ),
    FailureClass.DROPPED_EVENTS: _Entry(
        "the profiler dropped records, so launches are missing",
        "profile a smaller window of launches, or give the profiler larger buffers",
        True,
    ),
    FailureClass.GPU_UNHEALTHY: _Entry(
        "the GPU reported a fault (fell off the bus, XID error, or uncorrected memory errors)",
        "take the GPU out of service, look at the kernel log for XID errors, and reset or replace it",
        True,
    ),
    FailureClass.GPU_LOST: _Entry(
        "the GPU was lost during the run (fell off the bus, needs a reset, or has uncorrectable memory "
        "errors), so its agent took it out of service",
        "look at the kernel log, reset or replace the GPU, and then: assay-agent quarantine clear UUID",
        True,
        Fault.BOX,
    ),
    FailureClass.GPU_BUSY: _Entry(
        "other processes kept the workload off the GPU: they hold it or its memory, or its MPS daemon took "
        "no client",
        "end the other programs on the GPU (nvidia-smi lists them), and look at its compute mode and MPS "
        "daemon; the run is tried again",
        True,
        Fault.BOX,
    ),
    FailureClass.GPU_MEMORY: _Entry(
        "the workload needed more memory than the GPU has, and no other process was seen on it",
        "give the workload a smaller input or batch, or let it run on a GPU with more memory",
        False,
    ),
    FailureClass.THROTTLED: _Entry(
        "the GPU lowered its clocks for heat or power while it was measured",
        "improve the cooling or power of the box, or lock a lower clock; the run is tried again when cool",
        True,
    ),
    FailureClass.MPS_NOT_IN_FORCE: _Entry(
        "the SM share that was asked for was not in force when probed",
        "check CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in the workload's environment",
        False,
    ),
    FailureClass.INPUT_UNREADABLE: _Entry(
        "a file that the run needs cannot be read, or is not of the expected format",
        "correct the path in the campaign file, or make the file again",
        False,
    ),
    FailureClass.DISK_FULL: _Entry(
        "a disk had no space left, or returned an I/O error: the agent's, or the server's for an analysis",
        "free disk space, or look for errors of the disk in the kernel log and name a folder on another disk "
        "with --state; nothing already stored is lost",
        True,
        Fault.BOX,
    ),
    FailureClass.SPOOL_DAMAGED: _Entry(
        "launches on the agent's disk changed or vanished before the server had them",
        "check the box's disk; the slice is measured again, and what was found is kept in spool-damaged of "
        "the agent's state folder",
        True,
        Fault.BOX,
    ),
    FailureClass.LEFTOVERS: _Entry(
        "files that an earlier run left on the box cannot be removed, so no run can have their place",
        "remove them by hand as root: the message names the first",
        True,
        Fault.BOX,
    ),
    FailureClass.SLOT_BROKEN: _Entry(
        "Assay itself failed unexpectedly on one slot with two different runs in a row",
        "look at the agent's log and restart the agent; report it to the authors of Assay with the log of "
        "both attempts",
        True,
        Fault.BOX,
    ),
    FailureClass.BOX_MEMORY: _Entry(
        "the box had no memory left for the agent or its profiler",
        "stop other programs that use memory on the box, or give the agent fewer slots",
        True,
        Fault.BOX,
    ),
    FailureClass.TOOL_UNUSABLE: _Entry(
        "the profiler of the box is missing, cannot be started, or does not answer as NVIDIA's does",
        "run the tool's command by hand on the box, as the agent's user, and install it again",
        False,
        Fault.BOX,
    ),
    FailureClass.DRIVER_UNUSABLE: _Entry(
        "the NVIDIA driver of the box does not answer",
        "load the driver on the box: nvidia-smi must work as the agent's user",
        True,
        Fault.BOX,
    ),
    FailureClass.MEMORY_LIMIT: _Entry(
        "the workload and its profiler took more memory than the workload's limit",
        "raise memory_limit_bytes of the workload in the campaign file, or give it a smaller input",
        False,
    ),
    FailureClass.DISK_LIMIT: _Entry(
        "a bundle's workload and its profiler wrote more than a bundle's files may take on the box",
        "let the workload write less, or profile fewer launches at a time; or raise 'disk_bytes' in "
        "[bundles] of the box's policy file",
        False,
    ),
    FailureClass.AGENT_RESTARTED: _Entry(
        "the agent ended before the attempt was complete",
        "nothing to do unless it happens again: the run is tried again",
        True,
        Fault.NOBODY,
    ),
    FailureClass.LEASE_EXPIRED: _Entry(
        "the server heard nothing from the attempt before its lease ran out",
        "check that the agent runs and reaches the server; the run is tried again",
        True,
        Fault.NOBODY,
    ),
    FailureClass.SERVER_REFUSED: _Entry(
        "the server refused what the agent sent, and would refuse it again",
        "run the same release of Assay on agent and server, and look at the server's log",
        False,
    ),
    FailureClass.SERVER_RESTORED: _Entry(
        "the server lacks segments of the attempt that it had acknowledged: it was restored from an older "
        "backup",
        "nothing to do: the slice is measured again",
        True,
        Fault.NOBODY,
    ),
    FailureClass.STAGING_DAMAGED: _Entry(
        "segments of the attempt on the server's disk changed or vanished before they were published",
        "check the server's disk; the slice is measured again, and fails once this has happened ten times",
        True,
        Fault.NOBODY,
    ),
    FailureClass.RECORDS_CHANGED: _Entry(
        "a published file of the run is missing from the server's disk, or changed after it was published",
        "check the server's disk; the slice is measured again, and fails once this has happened ten times; "
        "what was found is kept in set-aside",
        True,
        Fault.NOBODY,
    ),
    FailureClass.REFUSED_BY_POLICY: _Entry(
        "the agent's local policy does not allow what the server asked it to run",
        "allow it in the box's policy file and reload the agent, or change the campaign file",
        False,
        Fault.NOBODY,
    ),
    FailureClass.ANALYSIS_WORKERS: _Entry(
        "the workers that analyse campaigns cannot be reached, or none may be used; the analysis waits",
        "start the scheduler and workers of --analysis, with the server's releases of Assay and Python",
        True,
    ),
    FailureClass.CANCELLED: _Entry(
        "a person cancelled the run, or paused it at once",
        "re-queue it with assay lab retry if it is still wanted; a paused run waits for assay lab resume",
        False,
        Fault.NOBODY,
    ),
    FailureClass.INTERNAL: _Entry(
        "Assay itself failed unexpectedly",
        "report it to the authors of Assay with the log of the attempt",
        False,
    ),
}


def failure_class_named(name: str) -> FailureClass:
    """The class of that name; INTERNAL for an unknown one, which a newer program may send."""
    try:
        return FailureClass(name)
    except ValueError:
        return FailureClass.INTERNAL
