"""Facts for the verdict on a selection or a score, from its document and from an evaluation."""

from __future__ import annotations

from dataclasses import replace

from assay_sampling.documents.by_method import TwoLevels
from assay_sampling.documents.selection import SelectionDocument
from assay_sampling.estimation.intervals import Interval
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.verdicts.facts import VerdictFacts
from assay_sampling.verdicts.rules import verdict_of
from assay_sampling.verdicts.verdict import Verdict
from assay_sampling.verdicts.windows import windows_of


def verdict_of_selection(document: SelectionDocument) -> Verdict:
    """The verdict on a selection where it was made: whether it may be trusted on another GPU."""
    return verdict_of(facts_of_selection(document))


def verdict_of_score(
    document: SelectionDocument,
    evaluation: Evaluation,
    *,
    at_home: bool,
    unmatched_time_percent: float | None = None,
) -> Verdict:
    """The verdict on a selection's score on a recording.

    ``at_home``: of the GPU and condition of the selection; what to expect of another one is then all that
    the selection knows of it. ``unmatched_time_percent``: share of the time without a counterpart, by
    operation.
    """
    selection_facts = facts_of_selection(document)
    facts = replace(
        selection_facts,
        elsewhere=not at_home,
        # Where the truth is known nothing is left to expect.
        expected=selection_facts.expected if at_home else None,
        error_percent=evaluation.error_percent,
        group_error_percent=evaluation.group_error_percent,
        interval_half_percent=_half_percent(evaluation.interval, evaluation.total),
        unmatched_time_percent=unmatched_time_percent,
        weighed_otherwise=False,
    )
    return verdict_of(facts)


def facts_of_selection(document: SelectionDocument) -> VerdictFacts:
    """The facts that a selection's document holds."""
    interval, cost, levels = document.interval, document.cost, document.two_level
    weights = document.weights
    expected = document.expected_elsewhere
    return VerdictFacts(
        error_percent=document.error_percent,
        group_error_percent=document.group_error_percent,
        groups=len(document.groups),
        kernels=document.profile.kernels,
        representatives=sum(len(group.representatives) for group in document.groups),
        launches=sum(group.launches for group in document.groups),
        drawn=document.drawing not in (None, "rule"),
        expected=None if expected is None else expected.expected(),
        interval_half_percent=None
        if interval is None or cost is None or not cost.total
        else 50.0 * (interval.high - interval.low) / cost.total,
        unseen_time_percent=levels.unseen_time_percent if isinstance(levels, TwoLevels) else None,
        weights="launches" if weights is None else weights.elsewhere,
        weighed_otherwise=weights is not None and weights.here != weights.elsewhere,
        windows=windows_of(note.to_dict() for note in document.profile.notes),
    )


def _half_percent(interval: Interval | None, total: float) -> float | None:
    return None if interval is None or not total > 0 else 50.0 * (interval.high - interval.low) / total
