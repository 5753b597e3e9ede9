"""The parts of an evaluation's document that launches and operations share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.elsewhere import is_at_home, saved_quantity
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.relative import RelativeScore
from assay_sampling.scoring.saved.verdict_facts import verdict_of_score
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.verdicts.verdict import most_cautious, verdict_from


def verdict_part(
    saved: SavedSelection,
    launches: Launches,
    evaluation: Evaluation,
    unmatched_time_percent: float | None = None,
) -> dict[str, Any]:
    """The verdict on a selection's score on a recording."""
    verdict = verdict_of_score(
        saved.document,
        evaluation,
        at_home=is_at_home(saved, launches),
        unmatched_time_percent=unmatched_time_percent,
    )
    return {"verdict": verdict.to_dict()}


def by_weights(scores: Mapping[WeightKind, Evaluation]) -> dict[str, Any]:
    """The numbers that depend on the weights, by their kind."""
    return {kind: evaluation.weighted_dict() for kind, evaluation in scores.items()}


def selection_part(saved: SavedSelection) -> dict[str, Any]:
    """What a document says of the selection."""
    whole = saved.document.model_dump(
        mode="json", include={"method", "parameters", "seed", "profile"}, exclude_unset=True
    )
    return {
        "method": whole["method"],
        "parameters": whole["parameters"],
        "seed": whole["seed"],
        "selected_on": whole["profile"],
    }


def notes(saved: SavedSelection, evaluation: Evaluation) -> Iterator[Note]:
    """What is doubtful in scores on any recording."""
    made_in = saved_quantity(saved)
    if made_in != evaluation.quantity:
        yield make_note("scored_in_another_cost", quantity=evaluation.quantity, made_in=made_in or "")
    if evaluation.group_error_percent is None:
        yield make_note("saved_without_labels")


def relative(
    saved: SavedSelection,
    scores: Mapping[WeightKind, RelativeScore],
    used: WeightKind,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a speedup, from those of the scores on either recording."""
    relative_score = scores[used]
    doubts = [make_note("cycles_of_two_clocks")] if relative_score.first.unit == "cycle" else []
    verdict = most_cautious([verdict_from(each["verdict"]) for each in (first, second)])
    return {
        "verdict": verdict.to_dict(),
        **selection_part(saved),
        **relative_score.to_dict(),
        "by_weights": {kind: score.weighted_dict() for kind, score in scores.items()},
        "first": dict(first),
        "second": dict(second),
        "notes": [note.to_dict() for note in doubts],
    }
