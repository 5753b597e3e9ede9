"""Notes on selections, their scores and their intervals."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind, count_of, launch_at, launches_of, part_of, several
from assay_sampling.parameters import Unit

_RANDOM_INSTEAD = "the method stratified with launches_per_group=2 draws two of each kernel at random"


def _kinds(number: int, unit: Unit) -> str:
    """Groups that are never mixed: kernels, or kinds of operations."""
    return (
        count_of(number, "kernel", "kernels")
        if unit == "launch"
        else count_of(number, "operator", "operators")
    )


def _best_elsewhere(
    *,
    method: str,
    weights: str,
    error_percent: float,
    part_error_percent: float,
    speedup: float,
    targets: int,
    within_goals: bool,
    unit: Unit = "launch",
) -> str:
    return (
        f"{method} by {weights.replace('_', ' ')}, by {count_of(targets, 'other GPU', 'other GPUs')}: at "
        f"most {error_percent:,.2f} % off in total and {part_error_percent:,.2f} % by {part_of(unit)}, "
        f"at a speedup of {speedup:,.1f}" + ("" if within_goals else "; that misses the goals of 3 % and 6 %")
    )


SELECTIONS = (
    NoteKind(
        "spacing_meets_period",
        "the workload repeats, and launches at equal spacing keep meeting the same positions of an iteration",
        lambda period, met, expected, unit="launch": (
            f"the workload repeats every {launches_of(period, unit)}, and equal spacing meets only {met:,} "
            f"of these positions (random draws: {expected:,.0f}): choose another number of {several(unit)}, "
            "or random"
        ),
    ),
    NoteKind(
        "launches_dominate",
        "a few launches hold much of the cost, and a random draw rarely meets them",
        lambda launches, cost_percent, unit="launch": (
            f"{launches_of(launches, unit)} {'holds' if launches == 1 else 'hold'} {cost_percent:.1f} % of "
            f"the cost and {'is' if launches == 1 else 'are'} drawn like all others: most draws miss "
            f"{'it' if launches == 1 else 'them'} and project too little, a few far too much; "
            f"dominating=whole takes {'it' if launches == 1 else 'them'} whole"
        ),
    ),
    NoteKind(
        "features_chosen",
        "launches were compared by other counters than a published set",
        lambda features, missing_of_pka, measured=0, unit="launch": (
            f"{several(unit)} are compared by {count_of(len(features), 'counter', 'counters')}: "
            f"{', '.join(features)}; of the twelve of PKA {', '.join(missing_of_pka) or 'none'} "
            f"{'is' if len(missing_of_pka) < 2 else 'are'} missing"
            + (f"; features=all takes all {measured} that were measured" if measured > len(features) else "")
        ),
    ),
    NoteKind(
        "k_without_cycles",
        "no cycles were measured, so time chose the number of groups",
        lambda quantity: f"no cycles were measured: the number of groups was chosen by {quantity}",
    ),
    NoteKind(
        "block_sizes_unknown",
        "TBPoint did not get the sizes of thread blocks",
        lambda unit="launch": (
            f"sizes of thread blocks are not known: their variation counts as 0 for every {unit}"
        ),
    ),
    NoteKind(
        "scored_in_another_cost",
        "a selection is scored in a different cost than it was made in",
        lambda quantity, made_in: (
            f"scored in {quantity}, but the selection was made in {made_in or 'an unknown cost'}: these "
            "errors are not those of the selection"
        ),
    ),
    NoteKind(
        "operation_slices_left_out",
        "by operation: slices of the detailed run do not hold the launches of the light run, so no counters "
        "come from them",
        lambda slices, of, first_launch, last_launch, difference: (
            f"{slices:,} of the {count_of(of, 'slice', 'slices')} of the detailed run "
            f"{'does' if slices == 1 else 'do'} not match the light run and {'is' if slices == 1 else 'are'} "
            f"left out, first launches {first_launch:,} to {last_launch:,}: {difference}"
        ),
    ),
    NoteKind(
        "representatives_unmatched",
        "by operation: representatives have no counterpart on the other recording",
        lambda representatives, groups: (
            f"{count_of(representatives, 'representative has', 'representatives have')} no counterpart: "
            "the others of the group take over the weight"
            + (f", and {count_of(groups, 'group that has', 'groups that have')} no other counts as 0"
               if groups else "")
        ),
    ),
    NoteKind(
        "operations_unmatched",
        "operations have no counterpart on the other recording; their time counts in full as an error",
        lambda selection_calls, recording_calls, time_percent, difference: (
            f"{selection_calls:,} of the operations of the selection's recording and {recording_calls:,} of "
            f"this one have no counterpart, with {time_percent:.2g} % of the time, first: {difference}"
        ),
    ),
    NoteKind(
        "operations_without_shapes",
        "operations with 5 % of the time or more were matched by name and order, for want of input shapes",
        lambda time_percent: (
            f"operations with {time_percent:.1f} % of the selection's time have no input shapes: they are "
            "matched by name and order alone, so calls of other sizes may match"
        ),
    ),
    NoteKind(
        "saved_without_labels",
        "a selection was saved without labels, so its group error is not known",
        lambda: "the group error is not known: the selection was saved without labels",
    ),
    NoteKind(
        "no_light_time_weights",
        "a representative has no time in the light run, so there are no weights by light time",
        lambda representatives, of, process, launch, unit="launch": (
            f"{representatives:,} of {count_of(of, 'representative', 'representatives')} took no time in the "
            f"light run, first {launch_at(process, launch, unit)}: there are no weights by light time, and "
            "other GPUs are scored with the others"
        ),
    ),
    NoteKind(
        "cycles_of_two_clocks",
        "a speedup is a ratio of cycles of two clocks",
        lambda: "cycles of two clocks are compared: their ratio is not one of times (--cost duration_ns)",
    ),
    NoteKind(
        "launches_never_drawn",
        "launches without any light time are never drawn in proportion to it, and nothing stands for them",
        lambda launches, quantity, unit="launch": (
            f"{launches_of(launches, unit)} without any {quantity} can never be drawn in proportion to it: "
            "what they cost on another GPU is missing there"
        ),
    ),
    NoteKind(
        "kernels_without_draw",
        "no launch was drawn of kernels with at least 1 % of the time; they share the groups of others",
        lambda kernels, time_percent, unit="launch": (
            f"no {unit} was drawn of {_kinds(kernels, unit)} with {time_percent:.1f} % of "
            f"the time: others stand for them; take more {several(unit)} (launches=N, or a smaller speedup)"
        ),
    ),
    NoteKind(
        "groups_put_together",
        "hardly anything repeats: groups of one kernel were put together, so that simulating saves half",
        lambda groups, left, unit="launch": (
            f"hardly anything repeats: {count_of(groups, 'group', 'groups')} of least time joined others of "
            f"the same {'kernel' if unit == 'launch' else 'operator'}; with more than the {left:,} left, "
            "simulating would save less than half"
        ),
    ),
    NoteKind(
        "kernels_share_group",
        "kernels of little time share one group: with less than 1 % together, or without any; with less than "
        "1 % each, where one launch of every kernel would save less than half",
        lambda kernels, time_percent, unit="launch": (
            f"{_kinds(kernels, unit)} with {time_percent:.2f} % of the time share one "
            "group: each of them may be far off"
        ),
    ),
)  # fmt: skip
_BASES = {
    "draws": "over {trials:,} draws",
    "split_halves": "over {trials:,} halves that did not choose",
    "as_scored": "by a fixed rule that reads no cost",
}


def _how(basis: str, trials: int) -> str:
    return _BASES.get(basis, basis).format(trials=trials)


COMPARISONS = (
    NoteKind(
        "beaten_by",
        "no star: another method has less error at no less speedup, or more speedup at no more error",
        lambda method: f"{method} has less error and no less speedup, or more speedup and no more error",
    ),
    NoteKind(
        "exact_by_construction",
        "no star: the method's error is 0 here whatever it draws; another GPU shows what it is worth",
        lambda: "its error is 0 here whatever it draws: score it on another GPU (assay evaluate)",
    ),
    NoteKind(
        "chosen_by_own_error",
        "no star: the method chose its groups by the error that it is scored by",
        lambda: "it chose its groups by the error that it is scored by",
    ),
    NoteKind(
        "interval_seldom_held",
        "no star: over the draws, the method's interval held the truth too seldom",
        lambda coverage_percent, least: (
            f"its interval held the truth in {coverage_percent:.1f} % of the draws, less than {least:g} %"
        ),
    ),
    NoteKind(
        "error_above_most",
        "no star: the method's error is too large for any speedup",
        lambda error_percent, most: f"its error of {error_percent:,.1f} % is above {most:g} %",
    ),
    NoteKind(
        "fastest_within_target",
        "the recommended method: the fastest whose error is within the target",
        lambda method, error_percent, speedup, target_error_percent, basis, trials: (
            f"{method} is the fastest within {target_error_percent:g} %: error {error_percent:,.2f} % "
            f"({_how(basis, trials)}) at a speedup of {speedup:,.1f}"
        ),
    ),
    NoteKind(
        "least_error",
        "the recommended method: none is within the target, and it has the least error",
        lambda method, error_percent, speedup, target_error_percent, basis, trials: (
            f"no method that can be judged is within {target_error_percent:g} %; {method} has the least "
            f"error: {error_percent:,.2f} % ({_how(basis, trials)}) at a speedup of {speedup:,.1f}"
        ),
    ),
    NoteKind(
        "beaten_elsewhere",
        "no star: another method has no larger error on the other GPUs, of the total and by kernel and grid "
        "(by operation: stratum and size), at no less speedup",
        lambda method, weights, unit="launch": (
            f"{method} by {weights.replace('_', ' ')} has no larger error there, of the total and by "
            f"{part_of(unit)}, at no less speedup"
        ),
    ),
    NoteKind(
        "groups_unknown",
        "no star: the method does not say which launches a group has",
        lambda unit="launch": (
            f"it does not say which {several(unit)} a group has, so nobody can score it by {part_of(unit)}"
        ),
    ),
    NoteKind(
        "not_scored_elsewhere",
        "no star: the method could not be scored on the other GPUs",
        lambda reason: f"it could not be scored on the other GPUs: {reason}",
    ),
    NoteKind(
        "slower_than_compared",
        "no star: the method cannot reach the speedup at which methods are compared",
        lambda speedup, compared_at: (
            f"its speedup is {speedup:,.1f}, and methods are compared at {compared_at:,.4g}"
        ),
    ),
    NoteKind(
        "best_elsewhere",
        "the recommended method: of those that no other beats on the other GPUs, the one whose worse error "
        "is the smallest share of its goal (3 % of the total, 6 % by kernel and grid)",
        _best_elsewhere,
    ),
    NoteKind(
        "nothing_to_recommend_elsewhere",
        "no method can be recommended: none has a star on the other GPUs",
        lambda: "no method earned a star on the other GPUs: ask for less speedup, or record them again",
    ),
    NoteKind(
        "no_target_scored",
        "no other GPU could be scored, so stars and recommendation are those of this recording alone",
        lambda targets: (
            f"{count_of(targets, 'recording', 'recordings')} of other GPUs given and none could be scored: "
            "stars and recommendation are of this recording alone"
        ),
    ),
    NoteKind(
        "nothing_to_recommend",
        "no method can be recommended: none has a star",
        lambda unit="launch": (
            f"no method earned a star here: record counters, or draw more {several(unit)} "
            "(--param launches=N)"
        ),
    ),
)
INTERVALS = (
    NoteKind(
        "interval_of_fixed_rule",
        "no interval: representatives are chosen by a fixed rule",
        lambda: (
            "the representatives are chosen by a fixed rule, not at random: their spread is unknown; "
            "launches_per_group=2 draws two at random"
        ),
    ),
    NoteKind(
        "interval_of_single_launch",
        "no interval: one launch was drawn of a group of several",
        lambda unit="launch": (
            f"one {unit} of a larger group was drawn: its spread is unknown; launches_per_group=2 (of STEM "
            "least_samples=2) draws two"
        ),
    ),
    NoteKind(
        "interval_of_unsampled_group",
        "no interval: no launch of a group was drawn",
        lambda unit="launch": f"no {unit} of a group was drawn: its cost is unknown",
    ),
    NoteKind(
        "interval_exact_by_construction",
        "no interval: launches were drawn in proportion to the very cost that is scored",
        lambda quantity, unit="launch": (
            f"{several(unit)} were drawn in proportion to {quantity}, so its total is exact here by "
            "construction, which proves nothing; evaluate on another GPU's recording gives the error and "
            "an interval"
        ),
    ),
    NoteKind(
        "interval_exact_by_weights",
        "no interval: the weights make the very cost that is scored exact",
        lambda quantity: (
            f"the weights make the total of {quantity} exact here by construction, which proves nothing; "
            "evaluate on another GPU's recording gives the error and an interval"
        ),
    ),
    NoteKind(
        "interval_of_other_weights",
        "no interval: the launches were drawn for other weights than this score uses",
        lambda unit="launch": (
            f"the {several(unit)} were drawn or weighed for other weights than those of this total: its "
            "spread is unknown; leave weights out"
        ),
    ),
    NoteKind(
        "interval_of_light_time_draw",
        "no interval: the launches were drawn for weights by light time, and the profile is scored by others",
        lambda unit="launch": (
            f"the {several(unit)} were drawn in proportion to light time, for weights by light time: on the "
            "profile itself, which is scored with other weights, they are no fair sample"
        ),
    ),
    NoteKind(
        "interval_of_one_start",
        "no interval: the launches at equal spacing begin at a given start",
        lambda unit="launch": (
            f"{several(unit)} at equal spacing from a given start are not drawn at random: repetitions=30 "
            f"shows the errors of other starts, and without start the seed draws one; {_RANDOM_INSTEAD}"
        ),
    ),
    NoteKind(
        "interval_of_one_iteration",
        "no interval: one iteration is taken for all",
        lambda: (
            f"one iteration is not drawn at random: the spread of iterations is unknown; {_RANDOM_INSTEAD}"
        ),
    ),
    NoteKind(
        "interval_of_first_launches",
        "no interval: the first launches are taken for all",
        lambda unit="launch": (
            f"the first {several(unit)} are not drawn at random: the spread of {several(unit)} is unknown; "
            f"{_RANDOM_INSTEAD}"
        ),
    ),
    NoteKind(
        "interval_of_stem_artifact",
        "no interval: STEM's variant `artifact` has no bound for the total",
        lambda: (
            "variant=artifact leaves clusters without a sample and bounds each kernel alone: no bound holds "
            "for the total; variant=sound has one"
        ),
    ),
)  # fmt: skip
