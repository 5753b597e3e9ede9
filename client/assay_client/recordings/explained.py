"""Why a selection has the launches that it has: which group a launch is in, what stands for it, and why.

Of a selection by operation, which operation a launch belongs to, and the same of that.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np

from assay_sampling.documents.base import ArrangedPart, says
from assay_sampling.documents.common import VerdictEntry
from assay_sampling.documents.selection import (
    GroupEntry,
    OperationEntry,
    RepresentativeEntry,
    SelectionDocument,
)
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import Unit
from assay_sampling.scoring.by_operation import place_saved_operations
from assay_sampling.scoring.elsewhere import saved_quantity, score_saved_by_weights
from assay_sampling.scoring.placement import scored_cost
from assay_sampling.scoring.saved.verdict_facts import verdict_of_selection
from assay_sampling.scoring.saved_selection import SavedSelection

# "{one}" is a launch or an operation, "{all}" several.
_BY_PARAMETER = {
    "first": "it is the first {one} of its group",
    "centre": "it is the {one} nearest to the centre of its group",
    "random": "it was drawn at random from its group",
    "weighted_median": "half of its group's time is in {all} that last no longer",
    "first_dominant": "it is the first {one} of its stratum with the most frequent thread-block size",
    "median": "its instructions are the median of its stratum",
    "nearest_mean": "its instructions are nearest to the mean of its stratum",
}
_BY_METHOD = {
    "sieve": "it is the first {one} of its stratum with the most frequent thread-block size",
    "tbpoint": "it is the {one} nearest to the centre of its cluster",
    "photon": "it is the first {one} that executed these basic blocks about as often",
    "single_iteration": "it is in the iteration that represents all others",
    "first_instructions": "it is among the first {all} of the workload",
}
_DRAWN = {
    "uniform": "it was drawn at random from its group",
    "light_time": "it was drawn from its group with a chance in proportion to its light time",
    "proportional": "it was drawn from all {all} with a chance in proportion to its light time",
    "root_light_time": (
        "it was drawn from all {all}, at equal steps, with a chance in proportion to the root of its time"
    ),
}
_WORDS: dict[Unit, dict[str, str]] = {
    "launch": {"one": "launch", "all": "launches"},
    "operation": {"one": "operation", "all": "operations"},
}


class RepresentativeExplained(ArrangedPart):
    """A launch or operation that stands for others, and why it was taken."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"operation"})

    process: Annotated[int, says("process", "ordinal")]
    launch: Annotated[int, says("0-based launch of the process, in API order", "ordinal")]
    sim_id: Annotated[int, says("1-based id of simulators: launch + 1", "ordinal")]
    kernel: Annotated[str, says("demangled name; by operation the stratum")]
    operation: Annotated[OperationEntry | None, says("by operation: what it is, and its launches")] = None
    weight: Annotated[float, says("by which its cost is multiplied", "launches")]
    group: Annotated[int, says("its group", "ordinal")]
    group_launches: Annotated[int, says("launches, by operation operations, of the group", "launches")]
    why: Annotated[str, says("why this one and no other of its group")]


class LaunchExplained(ArrangedPart):
    """A launch of the recording, or the operation that it belongs to, and what stands for it."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"operation"})

    process: Annotated[int, says("process", "ordinal")]
    launch: Annotated[int, says("0-based launch of the process, in API order", "ordinal")]
    kernel: Annotated[str, says("demangled name")]
    operation: Annotated[str | None, says("by operation: name and input shapes of the one that has it")] = (
        None
    )
    group: Annotated[int, says("its group", "ordinal")]
    chosen: Annotated[bool, says("it is a representative itself, or a launch of one")]
    cost: Annotated[float | None, says("its cost, or its operation's; `null`: not measured", "`unit`")]
    group_mean_cost: Annotated[float | None, says("mean cost in its group", "`unit`")]
    representative_cost: Annotated[float | None, says("cost of the first representative", "`unit`")]
    unit: Annotated[str, says("unit of the costs")]


class SelectionExplained(ArrangedPart):
    """``assay explain SELECTION --json``."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"operations"})

    kind: Literal["selection"] = "selection"
    verdict: Annotated[VerdictEntry, says("whether to trust it on another GPU")]
    method: Annotated[str, says("the method that chose")]
    seed: Annotated[int, says("seed of its random choices")]
    page: Annotated[str, says("page of `assay docs` about the method")]
    groups: Annotated[int, says("groups", "groups")]
    launches: Annotated[int, says("launches of the profile", "launches")]
    operations: Annotated[int | None, says("by operation: operations that the groups divide")] = None
    representatives: Annotated[list[RepresentativeExplained], says("of the largest weight first")]
    asked: Annotated[LaunchExplained | None, says("the launch that was asked for")] = None


def explain_selection(
    saved: SavedSelection, whole: Launches | None = None, launch_key: tuple[int, int] | None = None
) -> SelectionExplained:
    """Say why each representative was taken, and what stands for one launch.

    Args:
        saved: the selection.
        whole: the recording that it was made on; only it tells the group of a launch that was not chosen.
        launch_key: (process, launch) of a launch; the representatives are then those of its group.

    Raises ParameterError for a launch that is not there, or that only the recording could place, and
    MisalignedError for a recording of other launches or operations.
    """
    document = saved.document
    representatives = [
        _explained(document, group, each) for group in document.groups for each in group.representatives
    ]
    about = None if launch_key is None else _explained_launch(saved, whole, launch_key)
    if about is not None:
        representatives = [each for each in representatives if each.group == about.group]
    operations = document.operations
    return SelectionExplained(
        verdict=VerdictEntry.of(verdict_of_selection(document)),
        method=document.method,
        seed=document.seed,
        page=f"methods/{document.method}",
        groups=len(document.groups),
        launches=document.profile.launches,
        **({} if operations is None else {"operations": operations.calls}),
        representatives=sorted(representatives, key=lambda each: -each.weight),
        asked=about,
    )


def _explained(
    document: SelectionDocument, group: GroupEntry, each: RepresentativeEntry
) -> RepresentativeExplained:
    return RepresentativeExplained(
        process=each.process,
        launch=each.launch,
        sim_id=each.sim_id,
        kernel=each.kernel,
        **({} if each.operation is None else {"operation": each.operation}),
        weight=each.weight,
        group=group.id,
        group_launches=group.launches,
        why=_why(document, group, each),
    )


def _why(document: SelectionDocument, group: GroupEntry, each: RepresentativeEntry) -> str:
    words = _WORDS[document.unit]
    if group.launches == 1:
        return "it is the only {one} of its group".format_map(words)
    if len(group.representatives) == group.launches:
        return "every {one} of its group was taken".format_map(words)
    if each.draws == 0:
        return "it lasts so long that it was taken without a draw"
    if document.drawing in _DRAWN:
        return f"{_DRAWN[document.drawing].format_map(words)} (seed {document.seed})"
    rule = document.parameters.get("representative")
    if rule == "auto":
        by_light_time = document.weights is not None and document.weights.elsewhere == "light_time"
        rule = "weighted_median" if by_light_time else "random"
    if isinstance(rule, str) and rule in _BY_PARAMETER:
        return f"{_BY_PARAMETER[rule].format_map(words)} (representative={rule})"
    return _BY_METHOD.get(document.method, f"the rule of {document.method} takes it").format_map(words)


def _explained_launch(
    saved: SavedSelection, whole: Launches | None, launch_key: tuple[int, int]
) -> LaunchExplained:
    process, launch = launch_key
    selected, labels = saved.by_launch(), saved.operation_labels()
    chosen = np.flatnonzero((selected.process == process) & (selected.launch == launch))
    if whole is not None:
        if saved.unit == "operation":
            return _placed_operation(saved, whole, launch_key)
        return _placed(saved, whole, launch_key, chosen=bool(len(chosen)))
    if not len(chosen):
        raise ParameterError(
            "--launch",
            f"launch {launch} of process {process} is not among the {len(selected.launch):,} launches that "
            "were chosen, and a selection does not say which group another launch is in",
            "name the recording that the selection was made on after it",
        )
    at = int(chosen[0])
    return LaunchExplained(
        process=process,
        launch=launch,
        kernel=selected.kernel[at],
        **({"operation": labels[at]} if labels else {}),
        group=int(selected.group[at]),
        chosen=True,
        cost=None,
        group_mean_cost=None,
        representative_cost=None,
        unit="",
    )


def _placed(
    saved: SavedSelection, whole: Launches, launch_key: tuple[int, int], *, chosen: bool
) -> LaunchExplained:
    # Refuses, with the first difference, a recording that does not launch the same.
    score_saved_by_weights(saved, whole)
    labels = saved.labels()
    if labels is None:
        raise _without_labels()
    row = _row_asked(whole, launch_key)
    group = int(labels[row])
    cost = scored_cost(whole, None, saved_quantity(saved))
    first = int(np.flatnonzero(saved.group == group)[0])
    return LaunchExplained(
        process=launch_key[0],
        launch=launch_key[1],
        kernel=whole.names[int(whole.column("kernel_id")[row])],
        group=group,
        chosen=chosen,
        cost=float(cost.values[row]),
        group_mean_cost=float(cost.values[labels == group].mean()),
        representative_cost=float(
            cost.values[_row(whole, int(saved.process[first]), int(saved.launch[first]))]
        ),
        unit=cost.unit,
    )


def _placed_operation(saved: SavedSelection, whole: Launches, launch_key: tuple[int, int]) -> LaunchExplained:
    """The operation that a launch of a recording belongs to, and what stands for it."""
    placement = place_saved_operations(saved, whole)
    placed, labels = placement.placed, placement.placed.labels
    if labels is None:
        raise _without_labels()
    row = _row_asked(whole, launch_key)
    of = int(placement.operations.of_launch[row])
    group = int(labels[of])
    label = placement.operations.identities[int(placement.operations.identity[of])].label()
    if group >= len(saved.document.groups):
        raise ParameterError(
            "--launch",
            f"launch {launch_key[1]} of process {launch_key[0]} belongs to {label!r}, which the "
            "selection's recording does not have there",
            "name the recording that the selection was made on",
        )
    costs = placed.cost.values
    standing = placed.rows[placed.groups == group]
    return LaunchExplained(
        process=launch_key[0],
        launch=launch_key[1],
        kernel=whole.names[int(whole.column("kernel_id")[row])],
        operation=label,
        group=group,
        chosen=bool((placed.rows == of).any()),
        cost=float(costs[of]),
        group_mean_cost=float(costs[labels == group].mean()),
        representative_cost=float(costs[standing[0]]) if len(standing) else None,
        unit=placed.cost.unit,
    )


def _without_labels() -> ParameterError:
    return ParameterError(
        "SELECTION", "it was saved without the group of each launch", "select again with assay select -o"
    )


def _row_asked(whole: Launches, launch_key: tuple[int, int]) -> int:
    row = _row(whole, *launch_key)
    if row is None:
        raise ParameterError(
            "--launch",
            f"the recording has no launch {launch_key[1]} of process {launch_key[0]}",
            "see what it has with: assay inspect FILE",
        )
    return row


def _row(whole: Launches, process: int, launch: int) -> int | None:
    rows = np.flatnonzero((whole.column("process") == process) & (whole.column("launch") == launch))
    return int(rows[0]) if len(rows) else None
