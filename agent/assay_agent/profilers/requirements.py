"""Requirements that a run must meet before a profiler can measure it."""

from __future__ import annotations

from collections.abc import Collection

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_core.records.work import CommandSource, Work
from assay_sampling.running.failures import FailureClass


def require_possible(work: Work, gpu: MeasuredGPU) -> None:
    """Raises ProfilerError for a run that this GPU cannot make truthfully."""
    subject = str(work.key)
    if work.synthetic != gpu.synthetic:
        is_, was = ("virtual", "measured") if gpu.synthetic else ("real", "synthetic")
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            subject,
            f"the slot's GPU {gpu.device.name} is {is_}, but the campaign's data must be {was}",
            "set 'synthetic' in the campaign file to match its GPUs",
        )


def require_light_condition(work: Work) -> None:
    """Raises ProfilerError for a condition that a light run cannot make: nothing flushes caches there."""
    if work.condition.cache == "all":
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            "caches are flushed between launches only under Nsight Compute, not in a light run",
            "ask for cache: all at the detailed level only",
        )


def whole_light_command(work: Work, gpu: MeasuredGPU, measurer: str) -> list[str]:
    """The command of a whole light run; raises ProfilerError if ``measurer`` cannot measure the run."""
    if work.table_level != "light" or work.launch_skip or work.launch_count:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"{measurer} measures whole light runs, no detailed ones and no windows of launches",
        )
    require_possible(work, gpu)
    require_light_condition(work)
    return list(require_command(work).argv)


def require_command(work: Work) -> CommandSource:
    """The command of a live run; ProfilerError for a run without a command or with an invalid window."""
    if work.command is None or not work.command.argv:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            "it has no command to profile",
            "give the workload a command in the campaign file",
        )
    if min(work.launch_skip, work.launch_count) < 0:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"its window of launches (skip {work.launch_skip}, count {work.launch_count}) is negative",
        )
    return work.command


def require_one_gpu(work: Work, measurer: str, why: str) -> None:
    """Raises ProfilerError for a run over several GPUs, which ``measurer`` cannot make."""
    if work.gang:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"{measurer} measures runs on one GPU, and this one has {len(work.gang) + 1}: {why}",
            "measure runs over several GPUs with 'light: nsys' and 'detailed: none'",
        )


def require_processes(work: Work, ordinals: Collection[int]) -> None:
    """Raises ProfilerError unless as many processes launched kernels as the campaign file says.

    ``ordinals``: theirs in a whole light run. A rank that ends before its first kernel, or that the
    profiler does not follow, would otherwise be missing without a word.
    """
    process_count = work.command.processes if work.command is not None else 0
    if process_count and len(ordinals) != process_count:
        raise ProfilerError(
            FailureClass.NOTHING_PROFILED,
            str(work.key),
            f"kernels of {len(ordinals):,} processes were recorded, and the campaign file says "
            f"{process_count:,}",
            "look at the log of the attempt for processes that ended early or started others in a way that "
            "the profiler cannot follow, or correct 'processes' in the campaign file",
        )
