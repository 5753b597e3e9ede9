"""The confined folders of a measurement, in place of the agent's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from assay_agent.execution.confinement.command import BundledCommand, Space
from assay_agent.execution.confinement.view import view_of
from assay_agent.execution.environment import MeasuredGPU, Workspace
from assay_agent.execution.errors import ProfilerError
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass


def confined_space(
    command: BundledCommand,
    work: Work,
    gpu: MeasuredGPU,
    *,
    base: Path,
    state: Path,
    readable: tuple[str, ...],
) -> Space:
    """The folders in which a submitter's files run, not yet made. Raises ProfilerError for work on a share.

    Args:
        base: a private folder of the agent's.
        state: the agent's state directory.
        readable: what the profiler lets the workload read besides.
    """
    if work.under_mps and not gpu.synthetic:
        raise ProfilerError(
            FailureClass.REFUSED_BY_POLICY,
            str(work.key),
            "a share of the SMs needs the MPS daemon of the agent's user, which files of submitters "
            "must not reach",
            "leave sm_percent out of the campaign's conditions",
        )
    view = view_of(gpu.path, state.absolute(), modelled=gpu.synthetic, readable=readable)
    return Space(command, str(work.key), base, view)


def within(confined: Space, space: Workspace) -> Workspace:
    """The workspace with the only folders that a confined program can write."""
    return replace(
        space,
        home=confined.home,
        temporary=confined.temporary,
        job=confined.job,
        compiled=confined.compiled,
    )
