"""The slices that were chosen from light runs, in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay_report.model.slices import ChosenSlicesEntry, CostModel, SliceEntry
from assay_server.analysis.runs.request import RunData


def chosen_slices_entries(runs: Sequence[RunData]) -> list[ChosenSlicesEntry]:
    """One entry for each workload and GPU whose detailed runs have a plan, in the order of the runs."""
    grouped: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        if run.plan is not None:
            grouped.setdefault((run.workload, run.device_kind), []).append(run)
    return [_entry(members) for members in grouped.values()]


def _entry(runs: Sequence[RunData]) -> ChosenSlicesEntry:
    first = runs[0]
    plan = first.plan
    assert plan is not None  # these runs were chosen by it
    slices = list(_slices(runs))
    measured = [piece for piece in slices if piece.measured]
    ending = plan.ending if len(measured) == len(slices) else "budget"
    return ChosenSlicesEntry(
        workload=first.workload,
        device=first.device_kind,
        runs=[run.run_id for run in runs],
        light_run=plan.light_run,
        launches=plan.launches,
        most_unseen_time_percent=plan.most_unseen_percent,
        unseen_time_percent=measured[-1].unseen_time_percent if measured else 100.0,
        ending=ending,
        cost=CostModel(
            start_seconds=plan.start_seconds,
            skipped_launch_seconds=plan.skip_seconds,
            profiled_launch_seconds=plan.launch_seconds,
        ),
        slices=slices,
    )


def _slices(runs: Sequence[RunData]) -> Iterator[SliceEntry]:
    """The slices of the plan; a budget drops the last of them from a run, never one in between."""
    plan = runs[0].plan
    held = min(run.slices for run in runs)
    for place, piece in enumerate(plan.slices if plan is not None else ()):
        yield SliceEntry(
            first_launch=piece.launch_skip,
            launches=piece.launch_count,
            new_time_percent=piece.new_percent,
            unseen_time_percent=piece.unseen_percent,
            expected_seconds=piece.seconds,
            measured=place < held,
        )
