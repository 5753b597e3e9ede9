"""Score a selection on another GPU's recording, launch by launch through an alignment of the two.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from assay_sampling.errors import RefusedError
from assay_sampling.estimation.sample_design import nothing_drawn
from assay_sampling.launches.alignment import MATCH_KINDS, Alignment, MatchKind, align, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.error_parts.cells import kernel_and_size
from assay_sampling.scoring.error_parts.decomposition import UNKNOWN_GROUP, GroupFacts
from assay_sampling.scoring.error_parts.ratio_spread import Chosen, GroupSpread, widest_groups
from assay_sampling.scoring.evaluation import Evaluation, cost_of, instructions_of
from assay_sampling.scoring.matching import counterparts_of, refuse_other_counts, source_of
from assay_sampling.scoring.placement import Placed, measured, refuse_mixed_origins, scored_cost
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.weights import light_time_of


def score_on(
    selection: Selection,
    other: Launches,
    kind: MatchKind = "name_block",
    *,
    reference: Launches,
    quantity: str | None = None,
    alignments: Mapping[MatchKind, Alignment] | None = None,
    weights: WeightKind | None = None,
) -> tuple[Evaluation, dict[MatchKind, float]]:
    """Score a selection on another GPU's recording of the same workload.

    Args:
        selection: made on ``reference``.
        other: the recording to score it on.
        kind: how launches are matched; for "position" the caller must flag the result
        (:func:`assay_sampling.launches.alignment.match_flags`).
        reference: the launches the selection was made on.
        quantity: as in :func:`assay_sampling.scoring.elsewhere.score_saved_by_weights`.
        alignments: of ``reference`` and ``other`` by every kind, if already known: callers with several
        selections align the recordings once.
        weights: the kind of weights; None takes the selection's for elsewhere.

    Returns the evaluation and the match in percent of every kind. Launches of ``other`` without a
    counterpart belong to no group: their whole cost counts in the group error. Raises MisalignedError if the
    numbers of launches differ, less than 99 % match, or a representative has no counterpart, and RefusedError
    if one is synthetic and the other not, ParameterError for weights that the selection lacks.
    """
    used = selection.weights.elsewhere if weights is None else weights
    evaluations, match = score_on_by_weights(
        selection, other, kind, reference=reference, quantity=quantity, alignments=alignments, only=used
    )
    return evaluations[used], match


def score_on_by_weights(
    selection: Selection,
    other: Launches,
    kind: MatchKind = "name_block",
    *,
    reference: Launches,
    quantity: str | None = None,
    alignments: Mapping[MatchKind, Alignment] | None = None,
    only: WeightKind | None = None,
) -> tuple[dict[WeightKind, Evaluation], dict[MatchKind, float]]:
    """As :func:`score_on`, with each kind of weights that the selection has, or with one ``only``."""
    refuse_mixed_origins(selection.profile.origin, other)
    if len(reference) != selection.profile.launches:
        raise RefusedError(
            source_of(reference),
            f"it has {len(reference):,} launches, and the selection was made on "
            f"{selection.profile.launches:,}",
        )
    subject = f"{source_of(reference)} and {source_of(other)}"
    refuse_other_counts(subject, reference, other)
    by_kind = alignments or {each: align(reference, other, each) for each in MATCH_KINDS}
    require_match(by_kind[kind], subject=subject)
    rows = counterparts_of(by_kind[kind], selection, subject)
    labels = None
    if selection.labels is not None:
        labels = np.full(len(other), len(selection.group_launches), np.int64)
        labels[by_kind[kind].right_rows] = selection.labels[by_kind[kind].left_rows]
    placed = Placed(
        cost=scored_cost(other, quantity, selection.evaluation.quantity),
        rows=rows,
        groups=selection.representatives.group,
        labels=labels,
        instructions=instructions_of(other),
        facts=_facts_there(selection, by_kind[kind], other),
        light_time=_light_time_there(reference, by_kind[kind], len(other)),
        design=selection.design or nothing_drawn(selection.drawing, selection.group_launches),
    )
    kinds = selection.weight_kinds if only is None else (only,)
    scores = {each: placed.evaluation(selection.weights_of(each), each) for each in kinds}
    return scores, {each: alignment.match_percent for each, alignment in by_kind.items()}


def _facts_there(selection: Selection, alignment: Alignment, other: Launches) -> GroupFacts | None:
    """What is known of the groups of another recording's launches: as much as of their counterparts."""
    if selection.labels is None:
        return None
    unmatched = np.ones(len(other), bool)
    unmatched[alignment.right_rows] = False
    origins = right = None
    if selection.label_origins is not None:
        origins = np.zeros(len(other), np.uint8)
        origins[alignment.right_rows] = selection.label_origins[alignment.left_rows]
    if selection.right_labels is not None:
        right = np.full(len(other), UNKNOWN_GROUP)
        right[alignment.right_rows] = selection.right_labels[alignment.left_rows]
    return GroupFacts(kernel_and_size(other), origins, right=right, unmatched=unmatched)


def _light_time_there(reference: Launches, alignment: Alignment, launches: int) -> np.ndarray | None:
    """The light time of another recording's launches where the selection was made; 0 without counterpart."""
    here = light_time_of(reference)
    if here is None:
        return None
    light_time = np.zeros(launches)
    light_time[alignment.right_rows] = here[alignment.left_rows]
    return light_time


def widest_groups_there(
    selection: Selection, here: Launches, there: Launches, alignment: Alignment, quantity: str
) -> tuple[GroupSpread, ...]:
    """The groups of a selection made ``here`` whose launches scale least alike there.

    ``alignment`` has ``here`` on the left; all representatives are matched (:func:`score_on`). Nothing if
    the selection has no labels, or ``here`` was not measured in ``quantity``.
    """
    if selection.labels is None or not measured(here, quantity):
        return ()
    representatives = selection.representatives
    chosen = Chosen(
        rows_here=representatives.row,
        rows_there=counterparts_of(alignment, selection, source_of(there)),
        group=representatives.group,
        weight=selection.weights_of(selection.weights.elsewhere),
        kernel=representatives.kernel,
        grid=representatives.grid,
    )
    return widest_groups(
        cost_of(here, quantity).values,
        cost_of(there, quantity).values,
        selection.labels,
        chosen,
        rows_here=alignment.left_rows,
        rows_there=alignment.right_rows,
    )
