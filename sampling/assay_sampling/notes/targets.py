"""Notes on intervals of the total on another GPU."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind

TARGET_INTERVALS = (
    NoteKind(
        "interval_of_no_draw",
        "the launches were not drawn one by one at random",
        lambda: (
            "the launches were not drawn one by one at random, so nothing tells how far their costs here are "
            "from what they stand for; launches_per_group=8 draws them, for methods that have it"
        ),
    ),
    NoteKind(
        "interval_of_few_residuals",
        "too few launches were drawn for weights by light time or instructions",
        lambda least: (
            f"fewer than {least} launches are drawn of a group, and of its kernel where it has one alone: "
            f"ratios of so few follow their launches; launches_per_group={least} (of STEM "
            f"least_samples={least}) draws enough"
        ),
    ),
    NoteKind(
        "interval_of_few_launches",
        "too few launches were drawn for weights by launches",
        lambda least: (
            f"fewer than {least} launches are drawn of a group, and of its kernel where it has one alone: "
            f"they may all miss launches that take longer on this GPU alone; launches_per_group={least} (of "
            f"STEM least_samples={least}) draws enough"
        ),
    ),
    NoteKind(
        "interval_of_launches_without_time",
        "launches have a light time of 0, so weights by light time count them for nothing",
        lambda launches: (
            f"{launches:,} launches have a light time of 0 where they were selected: weights by light time "
            "count them for nothing, and nothing tells what they cost here; use weights by launches, or a "
            "clock that shows their time"
        ),
    ),
    NoteKind(
        "interval_without_amounts",
        "the light time or instructions that weigh the launches are not known",
        lambda: (
            "the light time or instructions by which these launches are weighed are not known: select again, "
            "or record the instructions here too"
        ),
    ),
    NoteKind(
        "interval_of_weights_not_drawn_for",
        "there is no interval with these weights for launches drawn so",
        lambda weights, drawing: (
            f"launches drawn by the design {drawing!r} have no interval with weights by {weights}; other "
            "weights may have one (--weights)"
        ),
    ),
    NoteKind(
        "interval_of_unknown_design",
        "the selection does not say how its launches were drawn",
        lambda: "the selection does not say how its launches were drawn; select again with this release",
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
