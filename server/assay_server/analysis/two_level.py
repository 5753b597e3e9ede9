"""The facts of a two-level selection in the rows of a report."""

from __future__ import annotations

from assay_report.model.scores import ChosenModel, LabelModel, Row, Unknown
from assay_sampling.documents.base import plain
from assay_sampling.documents.by_method import Accuracies, TwoLevels
from assay_sampling.scoring.selection import Selection


def describe_two_levels(row: Row, selection: Selection) -> None:
    """Fill in ``model``, ``window``, ``unknown`` and the unseen share; nothing if the selection has only one
    level.

    ``model`` holds the accuracies of the chosen model and, under ``models``, accuracies and errors of all.
    It is None if no model was trained: the window covers the whole workload, or labels decide no group.
    """
    levels = selection.extra.get("two_level")
    if levels is None:
        return
    facts = TwoLevels.model_validate(plain(levels))
    share = facts.unknown.launches / max(int(selection.group_launches.sum()), 1)
    row.model = _model(facts)
    row.window = facts.window
    row.unknown = Unknown(launches=facts.unknown.launches, groups=facts.unknown.groups, percent=100.0 * share)
    row.unseen_time_percent = facts.unseen_time_percent


def _model(facts: TwoLevels) -> ChosenModel | None:
    chosen, models = facts.chosen_model, facts.models
    if chosen is None or not models:
        return None
    return ChosenModel(
        chosen=chosen,
        **{name: getattr(models[chosen], name) for name in Accuracies.model_fields},
        agreement_percent=facts.agreement_percent,
        ambiguous_percent=facts.ambiguous_percent,
        classified_launches=facts.classified_launches,
        models=[LabelModel(name=name, **dict(model)) for name, model in models.items()],
    )
