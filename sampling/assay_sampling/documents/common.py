"""Parts that several documents use: conditions, notes, costs, scores."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, JsonValue

from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import Note
from assay_sampling.verdicts.expected import ExpectedErrors
from assay_sampling.verdicts.verdict import Reason, ReasonCode, Verdict, VerdictLevel

Parameters = dict[str, JsonValue]
_POINTS = "percentage points of the true total"


class ConditionEntry(ArrangedPart):
    """The condition that launches ran under; an unrecorded value is `null`."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"sm_share"})

    cache: Annotated[str | None, says("`none`: caches are left alone; `all`: flushed before each launch")] = (
        None
    )
    clock: Annotated[str | None, says("`none`: free; `base`, `boost`: locked to it")] = None
    sm_percent: Annotated[float | None, says("share of the SMs", "percent")] = None
    sm_share: Annotated[
        str | None, says("`partition` for a static partition; left out for a share in percent")
    ] = None

    @classmethod
    def of(cls, condition: Condition) -> ConditionEntry:
        return cls.model_validate(condition.to_dict())


class NoteEntry(Part):
    """A remark: its code and parameters for programs, its sentence for people."""

    model_config = ConfigDict(extra="allow")

    code: Annotated[str | None, says("as in [notes.md](notes.md); `null` for a sentence without a code")] = (
        None
    )
    text: Annotated[str, says("the sentence for people, without a full stop")]
    flag: Annotated[str | None, says("the validity flag that it stands for")] = None
    invalidates: Annotated[bool, says("whether that flag invalidates")] = False

    @classmethod
    def of(cls, note: Note) -> NoteEntry:
        return cls.model_validate(note.to_dict())


class ReasonEntry(Part):
    """A reason of a verdict."""

    code: Annotated[ReasonCode, says("as in [methods/README.md](methods/README.md#the-verdict)")]
    numbers: Annotated[dict[str, float], says("the numbers behind it, by name, with units")]


class VerdictEntry(ArrangedPart):
    """Whether to trust a selection or a score ([methods/README.md](methods/README.md#the-verdict))."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"windows"})

    level: Annotated[
        VerdictLevel,
        says("`trust`: total and groups; `total_only`: the total, not what it is made of; `do_not`: neither"),
    ]
    reasons: Annotated[list[ReasonEntry], says("those that decided the level first; at least one")]
    windows: Annotated[list[str], says("of the program, where only these were recorded")] = []

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictEntry:
        return cls.model_validate(verdict.to_dict())

    def verdict(self) -> Verdict:
        reasons = tuple(Reason(each.code, each.numbers) for each in self.reasons)
        return Verdict(self.level, reasons, tuple(self.windows))


class ExpectedElsewhere(Part):
    """Errors to expect of a selection on another GPU, from what is known where it was made."""

    error_percent: Annotated[float, says("of the total, a mean absolute error", "percent")]
    group_error_percent: Annotated[
        float, says("over kernels and sizes, so that none cancels another", "percent")
    ]
    not_vouched_percent: Annotated[
        float, says("time in groups of several launches for which a single one stands", "percent")
    ]
    extrapolated_percent: Annotated[
        float, says("of it, time of kernels and sizes of which that one is none", "percent")
    ]

    def expected(self) -> ExpectedErrors:
        return ExpectedErrors(**self.model_dump())


class Cost(Part):
    """The true cost of a workload's launches, and the cost projected from representatives."""

    quantity: Annotated[str, says("`duration_ns` or a kind of cycles")]
    unit: Annotated[str, says("`ns` or `cycle`")] = ""
    condition: Annotated[ConditionEntry | None, says("the condition it was measured under")] = None
    total: Annotated[float | None, says("sum over all launches", "`unit`")] = None
    projected: Annotated[float | None, says("sum of weight x cost of the representatives", "`unit`")] = None


class ErrorDecomposition(Part):
    """Parts of the signed error that add up to it ([error-decomposition.md](methods/error-decomposition.md)).

    `null`: nothing was measured for the part, or it cannot be in this error.
    """

    representatives: Annotated[
        float | None,
        says("representatives cost other than their kernel and size in their group", _POINTS),
    ] = None
    labels: Annotated[float | None, says("launches were put in groups other than counters give", _POINTS)] = (
        None
    )
    group_spread: Annotated[
        float | None,
        says("groups hold kernels or sizes that cost unlike for what weights count", _POINTS),
    ] = None
    kernels_never_profiled: Annotated[
        float | None, says("groups of kernels that have no counters", _POINTS)
    ] = None
    unmatched: Annotated[
        float | None, says("launches that have no counterpart where the selection was made", _POINTS)
    ] = None
    cold_start: Annotated[float | None, says("representatives were charged with cold caches", _POINTS)] = None
    projection_within_launches: Annotated[
        float | None, says("simulations of representatives were stopped early", _POINTS)
    ] = None
    not_separated: Annotated[
        float | None, says("together, of launches where parts could not be told apart", _POINTS)
    ] = None
    not_separated_parts: Annotated[list[str], says("the parts that are together in it")] = []


class FairEntry(Part):
    """The fair score of a method where it selected ([comparing.md](methods/comparing.md))."""

    basis: Annotated[
        str,
        says(
            "`draws`: over further draws; `split_halves`: chosen on one half of the launches, scored on the "
            "other; `as_scored`: a fixed rule that reads no cost; `in_sample`: chosen by the error that is "
            "scored; `by_construction`: the error is 0 whatever is drawn"
        ),
    ]
    trials: Annotated[int, says("tries that it rests on", "tries")]
    error_percent: Annotated[float, says("root mean square of their signed errors", "percent")]
    mean_signed_error_percent: Annotated[float, says("mean of their signed errors", "percent")]
    speedup: Annotated[float | None, says("true total / mean cost of their representatives", "times")]
    coverage_percent: Annotated[
        float | None, says("tries whose interval held the truth; `null`: no interval", "percent")
    ]


class RecommendationEntry(Part):
    """The method to take on a recording."""

    method: Annotated[str | None, says("its name; `null`: no method has a star")]
    reason: Annotated[NoteEntry, says("why")]


class GroupSpreadEntry(Part):
    """A group whose launches do not scale alike from one recording to another."""

    group: Annotated[int, says("its id in the selection", "ordinal")]
    kernel: Annotated[str, says("of its first representative")]
    grid: Annotated[list[int], says("of that, along x, y, z", "blocks")]
    launches: Annotated[int, says("its launches", "launches")]
    ratio: Annotated[float, says("cost of the group there / where the selection was made", "times")]
    representative_ratio: Annotated[
        float | None, says("the same of its representatives; `null`: they cost nothing", "times")
    ]
    spread_percent: Annotated[
        float,
        says("100 x the sum over its launches of |cost there - ratio x cost| / its cost there", "percent"),
    ]
    misfit_points: Annotated[float, says("that sum in points of the true total", _POINTS)]
    error_points: Annotated[float, says("its signed error there", _POINTS)]


class WeightedScores(Part):
    """Scores with one kind of weights."""

    projected: Annotated[float | None, says("sum of weight x cost of the representatives", "`cost.unit`")] = (
        None
    )
    error_percent: Annotated[float | None, says("100 |projected - total| / total", "percent")] = None
    signed_error_percent: Annotated[float | None, says("with its sign", "percent")] = None
    group_error_percent: Annotated[
        float | None, says("100 x the sum over groups of |projected - total| / total", "percent")
    ] = None


class Scores(Part):
    """Scores of a selection on the launches of one run."""

    cost: Annotated[Cost | None, says("the cost that it is scored in")] = None
    error_percent: Annotated[float | None, says("100 |projected - total| / total", "percent")] = None
    signed_error_percent: Annotated[float | None, says("with its sign", "percent")] = None
    group_error_percent: Annotated[
        float | None, says("100 x the sum over groups of |projected - total| / total", "percent")
    ] = None
    speedup: Annotated[float | None, says("total / cost of the representatives", "times")] = None
    speedup_instructions: Annotated[
        float | None, says("total / representatives, in instructions", "times")
    ] = None
    speedup_launches: Annotated[float | None, says("total / representatives, in launches", "times")] = None
    weighted_cov_percent: Annotated[
        float | None,
        says(
            "standard deviation / mean of the cost within groups, weighted by their instructions", "percent"
        ),
    ] = None
    decomposition: Annotated[ErrorDecomposition | None, says("where `signed_error_percent` comes from")] = (
        None
    )
