"""Notes on intervals of the total on another GPU."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind, launches_of, several

TARGET_INTERVALS = (
    NoteKind(
        "interval_of_no_draw",
        "the launches were not drawn one by one at random",
        lambda unit="launch": (
            f"the {several(unit)} were not drawn one by one at random, so nothing tells how far their costs "
            "here are from what they stand for; launches_per_group=2 draws them, for methods that have it"
        ),
    ),
    NoteKind(
        "interval_not_vouched_for",
        "nothing vouches for too much of the time: one launch was drawn of groups that hold it",
        lambda percent, most, unit="launch": (
            f"nothing vouches for {percent:.1f} % of the time, more than {most:g} %: one {unit} was drawn of "
            "the groups that hold it, which does not tell how unlike the others are here; "
            "launches_per_group=2 (of STEM least_samples=2) draws two of each"
        ),
    ),
    NoteKind(
        "interval_of_few_launches",
        "the sample has too few launches",
        lambda launches, least, unit="launch": (
            f"the sample has {launches_of(launches, unit)}, fewer than {least}: all may miss "
            f"{several(unit)} that take longer on this GPU alone; draw more (launches=..., "
            "launches_per_group=..., of STEM "
            "least_samples=...)"
        ),
    ),
    NoteKind(
        "interval_of_few_draws",
        "too few launches were drawn beside those taken whole",
        lambda draws, least, unit="launch": (
            f"beside {several(unit)} taken whole the sample has {launches_of(draws, unit)}, fewer than "
            f"{least}: they tell too little about those left out; draw more (launches=..., "
            "launches_per_group=..., of STEM "
            "least_samples=...)"
        ),
    ),
    NoteKind(
        "interval_of_long_launches",
        "a launch that may not have been drawn holds much of the time",
        lambda percent, most, unit="launch": (
            f"single {several(unit)} that a draw may miss hold about {percent:.0f} % of the time, more than "
            f"{most:g} %: nothing vouches for them; take more {several(unit)}, so that these are taken whole"
        ),
    ),
    NoteKind(
        "interval_of_all_launches",
        "every launch is a representative, so the projected total is exact",
        lambda unit="launch": (
            f"every {unit} is a representative here: the projected total is exact, and has no interval"
        ),
    ),
    NoteKind(
        "interval_of_launches_without_time",
        "launches have a light time of 0, so weights by light time count them for nothing",
        lambda launches, unit="launch": (
            f"{launches_of(launches, unit)} {'has' if launches == 1 else 'have'} a light time of 0 where "
            "they were selected: weights by light time "
            "count them for nothing, and nothing tells what they cost here; use weights by launches, or a "
            "clock that shows their time"
        ),
    ),
    NoteKind(
        "interval_without_amounts",
        "the light time or instructions that weigh the launches are not known",
        lambda unit="launch": (
            f"the light time or instructions by which these {several(unit)} are weighed are not known: "
            "select again, or record the instructions here too"
        ),
    ),
    NoteKind(
        "interval_of_weights_not_drawn_for",
        "there is no interval with these weights for launches drawn so",
        lambda weights, drawing, unit="launch": (
            f"{several(unit)} drawn by the design {drawing!r} have no interval with weights by {weights}; "
            "other weights may have one (--weights)"
        ),
    ),
    NoteKind(
        "interval_of_unknown_design",
        "the selection does not say how its launches were drawn",
        lambda unit="launch": (
            f"the selection does not say how its {several(unit)} were drawn; select again with this release"
        ),
    ),
    NoteKind(
        "interval_of_missing_representatives",
        "a representative by operation has no counterpart on the other recording",
        lambda representatives: (
            f"{representatives:,} {'representative has' if representatives == 1 else 'representatives have'} "
            "no counterpart there, so the sample is not the one that was drawn"
        ),
    ),
    NoteKind(
        "interval_at_home",
        "weights by light time are exact on the GPU and condition where the light time is from",
        lambda: (
            "this is the GPU and condition of the selection, where weights by light time are exact by "
            "construction: an interval of no width would prove nothing"
        ),
    ),
)
