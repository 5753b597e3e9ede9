"""The interface of selection methods, and helpers that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel

from assay_sampling.counters.definitions import default_cost_counter, default_time
from assay_sampling.engines.blockwise import count_where, counts_by, sums_by, total
from assay_sampling.errors import MethodFailedError, RefusedError
from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval
from assay_sampling.estimation.sample_design import Drawing, SampleDesign, cost_cov, distinct_kernels
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.error_parts.cells import Cells, CellTimes, kernel_and_size
from assay_sampling.scoring.evaluation import Cost, cost_of, evaluate, instructions_of
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from assay_sampling.scoring.weights import launch_weights, light_time_of_profile, no_light_run, weigh
from assay_sampling.verdicts.expected import Sizes, expected_errors

# A selection is written with the light time of at most so many cells, 16 bytes each before compression.
MOST_CELLS = 1 << 16


@runtime_checkable
class Sampler(Protocol):
    """A selection method. Other packages add theirs by an entry point of the group "assay.samplers"
    that names an object with these members.

    ``name`` is what people type; ``parameters`` a pydantic model whose fields all have defaults.
    """

    name: str
    parameters: type[BaseModel]

    def select(self, profile: Profile, parameters: Any, *, seed: int) -> Selection:
        """Select on a profile; ``parameters`` is an instance of :attr:`parameters`.

        The same profile, parameters and seed give the same selection. Raises RefusedError where the
        method does not apply.
        """
        ...


def source_of(launches: Launches) -> str:
    """The name of these launches in errors: their files or runs."""
    return ", ".join(launches.sources) or "launches"


def whole_cost(profile: Profile) -> Cost:
    """The cost of every launch of the whole workload: nanoseconds of a light run, cycles of a detailed
    one or a simulator's (where it has none nanoseconds, at last those under the profiler).

    Raises RefusedError for no launches, CounterUnavailableError where a launch lacks its cost.
    """
    launches = profile.whole
    if len(launches) == 0:
        raise RefusedError(source_of(launches), "it holds no launches")
    by_cycles = profile.light is None or launches.metadata.simulated
    cycles = default_cost_counter(launches.table) if by_cycles else None
    return cost_of(launches, cycles or default_time(launches.table))


def instruction_share(launches: Launches, labels: np.ndarray, groups: int) -> np.ndarray | None:
    """Share of all instructions that each group executes, shape (groups,); ``labels`` has shape (n,).

    None where instructions were not measured for all launches.
    """
    executed = instructions_of(launches)
    if executed is None:
        return None
    share: np.ndarray = sums_by(labels, executed, groups) / total(executed)
    return share


def grouped_selection(
    profile: Profile,
    method: str,
    parameters: BaseModel,
    seed: int,
    *,
    labels: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    draws: np.ndarray | None = None,
    cost: Cost | None = None,
    interval: Interval | None = None,
    interval_reason: Note | None = NO_INTERVAL_FIXED_RULE,
    warnings: tuple[Note, ...] = (),
    extra: Mapping[str, Any] | None = None,
    weighed_by: WeightKind = "launches",
    light_time_weights: np.ndarray | None = None,
    drawing: Drawing = "rule",
) -> Selection:
    """The selection of any method that puts every launch of the whole workload in one group.

    Args:
        labels: group of every launch, shape (n,), 0..g-1, none empty.
        rows: rows of the representatives, shape (r,); the group of each is ``labels[rows]``.
        weights: of the representatives, shape (r,).
        draws: how many draws met each, shape (r,), for draws in proportion to light time or its root.
        cost: the cost that is scored; None takes :func:`whole_cost`.
        weighed_by: what the weights count; those by launches replace others where ``weights=launches`` asks.
        light_time_weights: shape (r,), of a method with its own; None takes ``weights`` where they are by
            light time, else computes them from the light run.
        drawing: how the representatives were drawn.

    Raises what :func:`whole_cost`, :func:`assay_sampling.scoring.evaluation.evaluate` and
    :func:`assay_sampling.scoring.weights.weigh` raise.
    """
    launches = profile.whole
    _require_sound(method, labels, rows, weights)
    groups = labels[rows]
    group_launches = counts_by(labels)
    weight_kind = weights_asked(parameters)
    if weight_kind == "launches" and weighed_by == "instructions":
        weights, weighed_by = launch_weights(labels, rows), weight_kind
        interval, interval_reason = None, interval_reason or make_note("interval_of_other_weights")
    own = weights if weighed_by == "light_time" else light_time_weights
    weighing = weigh(
        profile, labels, rows, here=weighed_by, requested_kind=weight_kind, light_time=own, drawing=drawing
    )
    return Selection(
        method=method,
        parameters=parameters.model_dump(mode="json"),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, rows, groups, weights, draws),
        group_launches=group_launches,
        evaluation=evaluate(
            whole_cost(profile) if cost is None else cost,
            rows,
            weights,
            labels=labels,
            representative_groups=groups,
            instructions=instructions_of(launches),
            kind=weighed_by,
        ),
        instruction_share=instruction_share(launches, labels, len(group_launches)),
        labels=labels,
        interval=interval,
        interval_reason=interval_reason,
        warnings=(*warnings, *weighing.warnings),
        extra=extra or {},
        light_time_weights=weighing.light_time,
        weights=weighing.rule,
        drawing=drawing,
    )


def _require_sound(method: str, labels: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> None:
    """Raise MethodFailedError for launches that are not there, and for weights that are not finite."""
    outside = np.flatnonzero((np.asarray(rows) < 0) | (np.asarray(rows) >= len(labels)))
    if len(outside):
        cause = f"it chose the launch in row {rows[outside[0]]} of {len(labels):,} rows"
        raise MethodFailedError(f"method {method!r}", cause)
    odd = np.flatnonzero(~np.isfinite(weights))
    if len(odd):
        raise MethodFailedError(f"method {method!r}", f"it gave a launch the weight {weights[odd[0]]:g}")


def with_both_weights(selection: Selection, profile: Profile, kind: WeightKind | None) -> Selection:
    """The selection of a method that knows of no weights by light time, with them.

    Raises what :func:`assay_sampling.scoring.weights.weigh` raises; a selection without labels that has none
    yet stays as it is.
    """
    if selection.light_time_weights is not None or selection.labels is None:
        return selection
    rows = selection.representatives.row
    weighing = weigh(
        profile,
        selection.labels,
        rows,
        here=selection.weights.here,
        requested_kind=kind,
        drawing=selection.drawing,
    )
    return replace(
        selection,
        light_time_weights=weighing.light_time,
        weights=weighing.rule,
        warnings=(*selection.warnings, *weighing.warnings),
    )


def with_design(selection: Selection, profile: Profile) -> Selection:
    """A selection whose launches were drawn at random, with what intervals on other GPUs need of the profile.

    Raises what :func:`assay_sampling.scoring.evaluation.cost_of` raises.
    """
    labels, launches = selection.labels, profile.whole
    if selection.drawing == "rule" or labels is None:
        return selection
    time = light_time_of_profile(profile)
    design = SampleDesign(
        drawing=selection.drawing,
        launches=selection.group_launches,
        kernels=distinct_kernels(launches.array("kernel_id"), labels),
        cost_cov=cost_cov(cost_of(launches, selection.evaluation.quantity).values, labels),
        light_time=None if time is None else time[selection.representatives.row],
        draws=selection.representatives.draws,
        launches_without_time=0 if time is None else count_where(time, lambda part: part <= 0),
    )
    return replace(selection, design=design)


def with_expected(selection: Selection, profile: Profile, sizes: Sizes | None = None) -> Selection:
    """A selection with the errors to expect of it on another GPU; as it is where nobody knows its groups.
    ``sizes``: of the operations that it divides; None takes the launches'.

    Raises what :func:`assay_sampling.scoring.evaluation.cost_of` raises.
    """
    labels, launches = selection.labels, profile.whole
    if labels is None:
        return selection
    time, light_runs = light_time_of_profile(profile), 1 + len(profile.repeats)
    if time is None:
        time, light_runs = cost_of(launches, selection.evaluation.quantity).values, 0
    return replace(
        selection,
        expected=expected_errors(
            Sizes.of(launches) if sizes is None else sizes,
            labels,
            time,
            selection.representatives.row,
            selection.weights_of(selection.weights.elsewhere),
            light_runs=light_runs,
        ),
    )


def with_cell_times(selection: Selection, profile: Profile) -> Selection:
    """A selection with the light time by group, kernel and size, which tells on another GPU where its error
    comes from; as it is without a light run, and beyond MOST_CELLS cells."""
    labels, time = selection.labels, light_time_of_profile(profile)
    if labels is None or time is None:
        return selection
    cells = Cells.of(labels, kernel_and_size(profile.whole))
    if len(cells) > MOST_CELLS:
        return selection
    return replace(selection, cell_times=CellTimes(cells.launches(), cells.sums(time)))


def weights_asked(parameters: BaseModel) -> WeightKind | None:
    """The parameter ``weights``; None if it was left out, or the method has none."""
    kind: WeightKind | None = getattr(parameters, "weights", None)
    return kind


def drawing_of(per_group: int, light_time: np.ndarray | None) -> Drawing:
    """How launches are drawn if each group is to give ``per_group``: one is chosen by a rule."""
    if per_group == 1:
        return "rule"
    return "uniform" if light_time is None else "light_time"


def time_to_draw_by(profile: Profile, parameters: BaseModel) -> np.ndarray | None:
    """Light time of every launch, shape (n,), if launches are to be drawn in proportion to it, else None.

    Raises RefusedError if that is asked for and there is no light run.
    """
    if weights_asked(parameters) != "light_time":
        return None
    light_time = light_time_of_profile(profile)
    if light_time is None:
        raise no_light_run(profile)
    return light_time
