"""What only some methods say in the document of a selection: two levels, tiers, sweeps, groupings, draws."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict

from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.common import (
    Scores,
)

_CHRONOLOGICAL = "trained on the first 80 % of the window, tested on the last 20 %"
_GROUPED = "no signature (kernel, shape, NVTX path, operator) on both sides"
_EXPECTED = (
    "what to expect after the window: seen signatures among the later launches, and held-out ones of known "
    "kernels, each by its share of the light time there"
)


class Accuracies(Part):
    """How well a model labels held-out launches of the window."""

    chronological_accuracy_percent: Annotated[float | None, says(_CHRONOLOGICAL, "percent")] = None
    chronological_balanced_accuracy_percent: Annotated[
        float | None, says("the same as mean over groups", "percent")
    ] = None
    grouped_accuracy_percent: Annotated[float | None, says(_GROUPED, "percent")] = None
    grouped_balanced_accuracy_percent: Annotated[
        float | None, says("the same as mean over groups", "percent")
    ] = None
    expected_accuracy_percent: Annotated[float | None, says(_EXPECTED, "percent")] = None


class LabelScores(Accuracies):
    """A model's accuracies, and the workload's scores under its labels, with one representative a group."""

    error_percent: Annotated[float | None, says("error under its labels", "percent")] = None
    signed_error_percent: Annotated[float | None, says("with its sign", "percent")] = None
    group_error_percent: Annotated[
        float | None, says("over groups, so that errors do not cancel", "percent")
    ] = None
    speedup: Annotated[float | None, says("total / cost of the representatives", "times")] = None


class Window(Scores, ArrangedPart):
    """The detailed window that a two-level selection was made on, in its own cost."""

    written_first: ClassVar[tuple[str, ...]] = (
        "launches", "matched_launches", "first_launch", "slices", "weighted_group_error_percent", "k"
    )  # fmt: skip

    launches: Annotated[int, says("launches with counters", "launches")]
    matched_launches: Annotated[int | None, says("of these, also in the light run", "launches")] = None
    first_launch: Annotated[int | None, says("its first launch", "ordinal")] = None
    slices: Annotated[int | None, says("stretches of launches with gaps between them", "stretches")] = None
    weighted_group_error_percent: Annotated[
        float | None,
        says(
            "of slices that are not the beginning: group error with each launch as often as the light run "
            "has its signature; K is chosen by it, below `target_error_percent`; `null`: by the error",
            "percent",
        ),
    ] = None
    k: Annotated[int | None, says("groups that the counters gave", "groups")] = None


class UnknownEntry(Part):
    """Launches of kernels that the window lacks."""

    launches: Annotated[int, says("how many", "launches")]
    groups: Annotated[int, says("distinct signatures, each a separate group", "groups")]


class Abstained(Part):
    """Launches whose label is not sure, by the vote of the paper's models or by a chosen model of ours."""

    launches: Annotated[int, says("with signatures that the window lacks", "launches")]
    signatures: Annotated[int, says("their distinct signatures", "signatures")]
    groups: Annotated[int, says("with `abstain=true` each signature is a group; else 0", "groups")]
    threshold: Annotated[
        float | None,
        says(
            "confidence that an unseen signature needs; 0: all are sure; `null`: none is sure, or unknown",
            "fraction",
        ),
    ]
    held_out_accuracy_percent: Annotated[
        float | None, says("of held-out signatures above the threshold, labelled right", "percent")
    ]
    held_out_abstained_percent: Annotated[
        float | None, says("of held-out signatures, below the threshold", "percent")
    ]


class TwoLevels(Part):
    """The evidence for a selection with `--light`."""

    window: Annotated[Window, says("scores on the detailed window, in its cycles")]
    match_percent: Annotated[
        float, says("how far the window and the beginning of the light recording match", "percent")
    ]
    match_kind: Annotated[str, says("how launches were matched")]
    models: Annotated[
        dict[str, LabelScores] | None,
        says(
            "by name, each model that labels launches after the window; `null`: nothing to label, or labels "
            "decide no group and no model was asked for"
        ),
    ]
    chosen_model: Annotated[
        str | None,
        says(
            "the one asked for, by default that of the best expected accuracy; its labels are used if "
            "`labels_used`; `null`: no model"
        ),
    ]
    labels_used: Annotated[
        bool,
        says("whether labels decide groups: with `mixing=never` only where counters divide kernel and size"),
    ] = True
    classified_unseen_time_percent: Annotated[
        float | None,
        says("share of new signatures in the light time of the launches that a model labels", "percent"),
    ] = None
    vote_weights: Annotated[dict[str, float] | None, says("weight of each model in the vote", "fraction")]
    agreement_percent: Annotated[
        float | None, says("labelled launches on which `sgd`, `gaussian_nb` and `mlp` agree", "percent")
    ]
    ambiguous_percent: Annotated[
        float | None, says("launches whose signature was seen in more than one group", "percent")
    ]
    unknown: Annotated[UnknownEntry, says("launches of kernels that the window lacks")]
    unseen_time_percent: Annotated[
        float | None,
        says(
            "share of the light time in signatures (kernel, grid, block, operator, input shapes) that the "
            "window lacks: by default, their launches are grouped by kernel and size",
            "percent",
        ),
    ] = None
    abstained: Annotated[
        Abstained | None, says("labels with too little confidence; `null`: no model labelled any")
    ] = None
    classified_launches: Annotated[
        int,
        says(
            "launches after the window, of kernels that it has met: a model labels them, if any", "launches"
        ),
    ]
    span_ns: Annotated[int | None, says("union of the launches' intervals", "ns")]
    overlap_percent: Annotated[
        float | None,
        says("share of the launches' time that overlaps; over 1 %: flag `concurrent_launches`", "percent"),
    ]
    flags: Annotated[list[str], says("what you must know about the numbers")]


class Tier(Part):
    """A tier of Sieve: kernels whose launches execute equal instructions (1), similar ones (2) or neither."""

    tier: Annotated[int, says("1, 2 or 3")]
    kernels: Annotated[int, says("its kernels", "kernels")]
    strata: Annotated[int, says("its strata", "strata")]
    launches: Annotated[int, says("its launches", "launches")]
    launch_share: Annotated[float, says("of all launches", "fraction")]
    instruction_share: Annotated[float, says("of all executed instructions", "fraction")]


class SweepEntry(ArrangedPart):
    """A value that a method tried. Each method fills in only its own fields."""

    model_config = ConfigDict(extra="allow")
    left_out_unless_set: ClassVar[frozenset[str]] = frozenset(
        {"k", "theta", "threshold", "strata", "kernels_by_tier", "groups", "error_percent", "speedup",
         "speedup_instructions", "weighted_cov_percent", "inertia"}
    )  # fmt: skip

    k: Annotated[int | None, says("PKS: number of groups tried", "groups")] = None
    theta: Annotated[float | None, says("Sieve, with `theta_sweep=true`: 0.1 to 1.0")] = None
    threshold: Annotated[float | None, says("TBPoint, with `sweep=true`: 0.01 to 0.20", "distance")] = None
    strata: Annotated[int | None, says("Sieve: strata", "strata")] = None
    kernels_by_tier: Annotated[list[int] | None, says("Sieve: kernels in tiers 1, 2 and 3", "kernels")] = None
    groups: Annotated[int | None, says("TBPoint: clusters", "groups")] = None
    error_percent: Annotated[float | None, says("error with that value", "percent")] = None
    speedup: Annotated[float | None, says("speedup with that value", "times")] = None
    speedup_instructions: Annotated[float | None, says("speedup in instructions", "times")] = None
    weighted_cov_percent: Annotated[float | None, says("spread within groups", "percent")] = None
    inertia: Annotated[
        float | None, says("PKS: within-group sum of squares after scaling and PCA", "squared distance")
    ] = None


class Division(Part):
    """Groups within kernels that were judged on launches that did not choose their representatives."""

    size_ratio: Annotated[
        float | None,
        says(
            "sizes of a group that run less than eight times differ by less than this; `null`: by any",
            "times",
        ),
    ]
    time_ratio: Annotated[float | None, says("and their times by less than this", "times")]
    counter_groups: Annotated[int, says("clusters of counters that divide groups; 1: none", "clusters")]
    groups: Annotated[int, says("how many groups; of a tried division among the judged launches", "groups")]
    held_out_group_error_percent: Annotated[
        float, says("group error by kernel and size of launches that were held out", "percent")
    ]


class SharedKernels(Part):
    """The group of kernels that together have less than 1 % of the time."""

    group: Annotated[int, says("its number", "0-based")]
    kernels: Annotated[int, says("its kernels", "kernels")]
    launches: Annotated[int, says("its launches", "launches")]
    time_percent: Annotated[float, says("their share of the time", "percent")]


class Grouping(Division):
    """How groups that never mix kernels were divided."""

    mixing: Annotated[str, says("`never`")]
    shared: Annotated[SharedKernels | None, says("kernels that share a group; `null`: none do")]
    tried: Annotated[list[Division], says("the divisions that were not taken, in the order of trying")] = []


class SeedEntry(Part):
    """PKS with another seed (with two levels, of the window)."""

    seed: Annotated[int, says("the seed")]
    k: Annotated[int, says("groups", "groups")]
    error_percent: Annotated[float | None, says("error", "percent")] = None
    group_error_percent: Annotated[float | None, says("group error", "percent")] = None
    speedup: Annotated[float | None, says("speedup", "times")] = None


class Repetitions(Part):
    """Further samples of a method that draws at random."""

    count: Annotated[int, says("samples drawn", "samples")]
    mean_error_percent: Annotated[float, says("their mean error", "percent")]
    mean_signed_error_percent: Annotated[float, says("their mean error with its sign", "percent")]
    low_signed_error_percent: Annotated[float, says("95 % of their errors lie above", "percent")]
    high_signed_error_percent: Annotated[float, says("and below", "percent")]


class Iterations(Part):
    """The iterations that `single_iteration` found."""

    launches: Annotated[int, says("launches of one", "launches")]
    count: Annotated[int, says("whole iterations", "iterations")]
    first_launch: Annotated[int, says("where they begin", "row")]
    outside_launches: Annotated[int, says("that belong to no whole one", "launches")]


class PhotonPart(Part):
    """Results that only Photon has."""

    launches_matched_to_other_kernels: Annotated[
        int, says("represented by a launch of another kernel; 0 unless `cross_kernel=true`", "launches")
    ]


# Keys that only one method adds. Methods of other packages may use them for something else.
