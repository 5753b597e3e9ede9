"""What a two-level selection says about itself, as the rows of a report have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_sampling.selection import Selection
from assay_server.analysis.rows import plain

_OF_THE_CHOSEN = (
    "chronological_accuracy_percent",
    "chronological_balanced_accuracy_percent",
    "grouped_accuracy_percent",
    "grouped_balanced_accuracy_percent",
)


def two_level_facts(selection: Selection) -> dict[str, Any]:
    """``model``, ``window`` and ``unknown`` of a row; each None where the selection has only one level.

    ``model`` holds the accuracies of the chosen model and, under ``models``, accuracies and errors of all.
    It is None too where the window covers the whole workload, so that nothing had to be labelled.
    """
    found = selection.extra.get("two_level")
    if found is None:
        return {"model": None, "window": None, "unknown": None}
    facts: Mapping[str, Any] = plain(found)
    whole = facts["unknown"]["launches"] / max(int(selection.group_launches.sum()), 1)
    return {
        "model": _model(facts),
        "window": facts["window"],
        "unknown": {**facts["unknown"], "percent": 100.0 * whole},
    }


def _model(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    chosen, models = facts["chosen_model"], facts["models"]
    if chosen is None or not models:
        return None
    return {
        "chosen": chosen,
        **{name: models[chosen][name] for name in _OF_THE_CHOSEN},
        "agreement_percent": facts["agreement_percent"],
        "ambiguous_percent": facts["ambiguous_percent"],
        "classified_launches": facts["classified_launches"],
        "models": [{"name": name, **model} for name, model in models.items()],
    }
