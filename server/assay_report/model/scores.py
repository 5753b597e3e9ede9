"""Rows and the summary: the scores of each selection method on each workload, GPU and condition."""

from __future__ import annotations

from typing import Annotated, ClassVar

from assay_report.model.common import FlagEntry, Judged, Match, OverlapEntry, Placed
from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.by_method import Accuracies, LabelScores, Window
from assay_sampling.documents.common import (
    ConditionEntry,
    FairEntry,
    GroupSpreadEntry,
    NoteEntry,
    Parameters,
    RecommendationEntry,
    Scores,
    VerdictEntry,
    WeightedScores,
)
from assay_sampling.documents.selection import IntervalEntry
from assay_sampling.parameters import Unit, WeightKind


class SelectedOn(Part):
    """Where a selection was made."""

    device: Annotated[str, says("kind of GPU")]
    condition: Annotated[ConditionEntry, says("condition")]


class LabelModel(LabelScores):
    """A model that labels the launches after the window."""

    name: Annotated[
        str,
        says(
            "`sgd`, `gaussian_nb`, `mlp`, their vote, `combined`; `nearest_light_time`, `scaled_counters` "
            "([two-level.md](methods/two-level.md#models))"
        ),
    ]


class ChosenModel(Accuracies):
    """The model whose labels a two-level selection took."""

    chosen: Annotated[str, says("its name")]
    agreement_percent: Annotated[
        float | None, says("labelled launches on which `sgd`, `gaussian_nb` and `mlp` agree", "percent")
    ] = None
    ambiguous_percent: Annotated[
        float | None, says("launches whose signature appears in more than one group", "percent")
    ] = None
    classified_launches: Annotated[int | None, says("launches that a model labelled", "launches")] = None
    models: Annotated[list[LabelModel], says("all models")] = []


class Unknown(Part):
    """Launches of kernels that the window never saw."""

    launches: Annotated[int, says("how many", "launches")]
    groups: Annotated[int | None, says("distinct signatures; each becomes a group", "groups")] = None
    percent: Annotated[float | None, says("share of all launches", "percent")] = None


class AssumptionEntry(Part):
    """What the interval of a total on another GPU rests on."""

    scales_at_most: Annotated[float, says("no launch scales more than so many times as its kernel does")]
    unlike_percent: Annotated[
        float, says("launches that do, unlike any drawn, have at most this share of the time", "percent")
    ]


class OperationsMatched(Part):
    """How far two recordings make the same calls, matched by operator, input shapes and order."""

    calls_matched: Annotated[int, says("calls found on both", "operations")]
    selection_calls_percent: Annotated[float, says("of the selection's recording", "percent")]
    recording_calls_percent: Annotated[float, says("of this recording", "percent")]
    selection_time_percent: Annotated[float, says("their share of the selection's recording", "percent")]
    recording_time_percent: Annotated[float, says("their share of this recording's time", "percent")]
    lower_bound: Annotated[bool, says("they differ in so many places that more may match")]


class Row(Scores, Judged, Placed):
    """A selection method on a workload, GPU and condition."""

    method: Annotated[str, says("selection method")]
    verdict: Annotated[
        VerdictEntry | None,
        says("whether to trust it on another GPU; away from the selection's GPU by its errors there"),
    ] = None
    asked_parameters: Annotated[Parameters, says("parameters of the campaign file")] = {}
    parameters: Annotated[Parameters, says("all parameters that were used")] = {}
    seed: Annotated[int, says("seed of every random choice")] = 0
    selected_on: Annotated[SelectedOn | None, says("where the selection was made")] = None
    selection: Annotated[str | None, says("its key in `selections`")] = None
    rank: Annotated[
        int | None, says("the process that alone is evaluated; `null`: all of them", "ordinal")
    ] = None
    processes: Annotated[int | None, says("processes of which the launches are", "processes")] = None
    unit: Annotated[Unit, says("what the groups divide: launches, or operations")] = "launch"
    launches: Annotated[int | None, says("launches of the workload", "launches")] = None
    kernels: Annotated[int | None, says("distinct kernels", "kernels")] = None
    groups: Annotated[int | None, says("groups of the selection", "groups")] = None
    representatives: Annotated[int | None, says("launches that stand for the groups", "launches")] = None
    weights: Annotated[
        WeightKind | None,
        says("weights of these scores: `light_time` away from the selection's GPU if it has them"),
    ] = None
    by_weights: Annotated[
        dict[WeightKind, WeightedScores],
        says("away from the selection's GPU: the scores with each kind of weights that it has, by kind"),
    ] = {}
    interval: Annotated[
        IntervalEntry | None, says("of the projected total with these weights, here or where it is scored")
    ] = None
    interval_reason: Annotated[NoteEntry | None, says("why there is no interval; `null` if there is one")] = (
        None
    )
    interval_assumption: Annotated[
        AssumptionEntry | None, says("away from the selection's GPU: what the interval rests on")
    ] = None
    not_vouched_percent: Annotated[
        float | None,
        says(
            "away from the selection's GPU: share of the time in groups of which fewer than two launches "
            "were drawn at random",
            "percent",
        ),
    ] = None
    match: Annotated[Match | None, says("of the levels, or of this GPU with the selection's")] = None
    operations: Annotated[
        OperationsMatched | None, says("by operation: how this GPU's calls match the selection's")
    ] = None
    model: Annotated[
        ChosenModel | None, says("of a two-level selection: the model that labels launches after the window")
    ] = None
    window: Annotated[Window | None, says("of a two-level selection: the window's own scores")] = None
    unknown: Annotated[Unknown | None, says("of a two-level selection: kernels the window never saw")] = None
    unseen_time_percent: Annotated[
        float | None,
        says(
            "of a two-level selection: share of the light time in signatures that the window never saw",
            "percent",
        ),
    ] = None
    part_error_percent: Annotated[
        float | None,
        says(
            "on another GPU: error by kernel and grid (by operation: what is called with which shapes), one "
            "partition for all methods, with the weights of the row",
            "percent",
        ),
    ] = None
    fair: Annotated[
        FairEntry | None, says("where the selection was made: the method's score over further tries")
    ] = None
    star: Annotated[
        bool,
        says(
            "no other method has less error on the other GPUs, of the total and by kernel and grid; where "
            "none was scored: less fair error here, at no less fair speedup"
        ),
    ] = False
    no_star: Annotated[NoteEntry | None, says("why it has no star; `null` elsewhere than `fair`")] = None
    widest_groups: Annotated[
        list[GroupSpreadEntry],
        says("on another GPU or condition: the groups whose launches scale least alike, at most five"),
    ] = []
    overlap: Annotated[
        OverlapEntry | None, says("of the launches; above 1 % the row is flagged `concurrent_launches`")
    ] = None
    flags: Annotated[list[FlagEntry], says("flags of the runs that the row uses")] = []
    runs: Annotated[list[str], says("the runs that the row uses")] = []
    notes: Annotated[list[NoteEntry], says("remarks")] = []

    @property
    def is_selected_here(self) -> bool:
        """Whether its selection was made on its GPU."""
        return self.selected_on is not None and self.selected_on.device == self.device

    @property
    def matched_percent(self) -> float | None:
        """The match that counts: by operation the time matched on the side that has less of it."""
        if self.operations is not None:
            return min(self.operations.selection_time_percent, self.operations.recording_time_percent)
        return self.match.percent if self.match else None


class RecommendedEntry(RecommendationEntry, Placed):
    """The method to take for a workload on a GPU under a condition."""

    condition: Annotated[ConditionEntry, says("condition")]
    selection: Annotated[str | None, says("its selection's key in `selections`")] = None
    judged_on: Annotated[
        list[str], says("the other kinds of GPU whose scores decide; empty: those of this GPU")
    ] = []
    worst_error_percent: Annotated[float | None, says("of its total, over these", "percent")] = None
    worst_part_error_percent: Annotated[
        float | None, says("of it by kernel and grid, over these", "percent")
    ] = None


class ShareSummary(Part):
    """An SM share in the summary."""

    sm_percent: Annotated[float, says("share of the SMs", "percent")]
    sm_share: Annotated[str | None, says("`limit` or `partition`")] = None
    effective_sms: Annotated[int | None, says("SMs that the share gave", "SMs")] = None
    speedup_true: Annotated[float | None, says("time at the share / time on all SMs", "times")] = None
    speedup_predicted: Annotated[float | None, says("the same for projected times", "times")] = None


class SummaryEntry(Accuracies, Judged, Placed, ArrangedPart):
    """A workload on a GPU under a condition: the first method, in the campaign's order, that gave numbers."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset(
        {"sm_share", "flushed_difference_percent", "flushed_difference_of_selection_percent"}
    )

    method: Annotated[str, says("the method whose numbers these are")]
    selection: Annotated[str | None, says("its selection's key in `selections`")] = None
    selected_on: Annotated[SelectedOn | None, says("where the selection was made")] = None
    launches: Annotated[int | None, says("launches of the workload", "launches")] = None
    kernels: Annotated[int | None, says("distinct kernels", "kernels")] = None
    groups: Annotated[int | None, says("groups of the selection", "groups")] = None
    error_percent: Annotated[float | None, says("as in `rows`", "percent")] = None
    group_error_percent: Annotated[float | None, says("as in `rows`", "percent")] = None
    speedup: Annotated[float | None, says("as in `rows`", "times")] = None
    cost_quantity: Annotated[str | None, says("what the selection is scored in")] = None
    match_percent: Annotated[
        float | None, says("by the kind that counts; by operation, of the time", "percent")
    ] = None
    match_kind: Annotated[str | None, says("the kind that counts")] = None
    model: Annotated[str | None, says("the model that labels launches after the window")] = None
    agreement_percent: Annotated[
        float | None, says("launches on which `sgd`, `gaussian_nb` and `mlp` agree", "percent")
    ] = None
    ambiguous_percent: Annotated[
        float | None, says("launches whose signature has several groups", "percent")
    ] = None
    unknown_launches: Annotated[
        int | None, says("launches of kernels that the window never saw", "launches")
    ] = None
    unknown_percent: Annotated[float | None, says("their share of all launches", "percent")] = None
    flags: Annotated[list[str], says("names of the flags of the row")] = []
    sm_share: Annotated[
        list[ShareSummary] | None, says("SM shares compared with it; absent where the report has none")
    ] = None
    flushed_difference_percent: Annotated[
        float | None,
        says("how much flushed caches change the window; absent where the report has none", "percent"),
    ] = None
    flushed_difference_of_selection_percent: Annotated[
        float | None, says("the same by the selection's representatives", "percent")
    ] = None
