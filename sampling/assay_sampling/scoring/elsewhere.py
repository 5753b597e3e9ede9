"""Score saved selections on recordings other than their own, with weights fixed where they were made.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

import numpy as np

from assay_sampling.errors import MisalignedError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import Note
from assay_sampling.parameters import WeightKind
from assay_sampling.running.identity import condition_conflict
from assay_sampling.scoring.error_parts.cells import kernel_and_size
from assay_sampling.scoring.error_parts.decomposition import GroupFacts
from assay_sampling.scoring.evaluation import Evaluation, doubts, instructions_of
from assay_sampling.scoring.matching import (
    SAME_COMMAND,
    keys_of,
    kind_needed,
    on_the_same_gpu,
    other_launches,
    row_keys,
    rows_of_representatives,
    same_sequence,
    source_of,
)
from assay_sampling.scoring.placement import Placed, checked_scale, refuse_mixed_origins, scored_cost
from assay_sampling.scoring.saved.labels import first_difference
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary


def score_saved_by_weights(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None = None,
    *,
    scales_at_most: float | None = None,
) -> dict[WeightKind, Evaluation]:
    """Score a saved selection with each kind of weights that it has, on a recording of the same launches.

    Args:
        saved: the selection.
        launches: the recording.
        quantity: the cost (a key of COST_UNITS); None takes that of the selection where every launch of
            the recording has it, else the recording's own (cycles, else ``duration_ns``).
        scales_at_most: no launch scales more than so many times as its kernel does, the assumption of the
            interval; None: 3.

    The group error is None if the selection was saved without labels. Raises MisalignedError naming the
    differences, InputError if the labels cannot be read, RefusedError if one is synthetic and the other
    not, ParameterError for an unknown quantity, CounterUnavailableError for a quantity that was not measured.
    """
    placed = placed_on(saved, launches, quantity, scales_at_most)
    return {kind: placed.evaluation(saved.weights_of(kind), kind) for kind in saved.weight_kinds}


def default_weights(saved: SavedSelection, *recordings: Launches) -> WeightKind:
    """The kind of weights for recordings unless told otherwise: those for elsewhere if one of them is of
    another GPU or another condition than the selection, else its own: there light time is no test."""
    own = all(is_at_home(saved, launches) for launches in recordings)
    return saved.weights.here if own else saved.weights.elsewhere


def is_at_home(saved: SavedSelection, launches: Launches) -> bool:
    """Whether a recording is of the GPU and the condition of the selection, as far as both are known."""
    if saved.origin != launches.metadata.origin:
        return False
    if on_the_same_gpu(saved.document.profile, launches) is False:
        return False
    cost = saved.document.cost
    if cost is None or cost.condition is None:
        return True
    made = cost.condition.model_dump(exclude_none=True)
    return condition_conflict(Condition(**made), launches.metadata.condition) is None


def rows_on(saved: SavedSelection, launches: Launches) -> np.ndarray:
    """Rows of the representatives in a recording of the same launches, shape (r,).

    Raises RefusedError for an empty one, MisalignedError with the first differences for another workload's.
    """
    profile = saved.document.profile
    subject = f"selection on {source_of(launches)}"
    if not len(launches):
        raise RefusedError(source_of(launches), "it holds no launches")
    if profile.launches != len(launches):
        raise MisalignedError(
            subject,
            f"the selection was made on {profile.launches:,} launches, "
            f"and this recording has {len(launches):,}",
            SAME_COMMAND,
        )
    kind = kind_needed(profile, launches)
    rows, differences = rows_of_representatives(saved, launches, kind)
    if differences:
        raise other_launches(subject, saved, launches.take(rows), differences)
    if not same_sequence(saved.sequence, ProfileSummary.of(launches).sequence(), kind):
        difference = first_difference(saved.document.labels, launches, kind)
        raise MisalignedError(
            subject,
            f"the representatives agree, but the launches between them differ ({kind} comparison)",
            SAME_COMMAND,
            () if difference is None else (difference,),
        )
    return rows


def placed_on(
    saved: SavedSelection, launches: Launches, quantity: str | None, scales_at_most: float | None = None
) -> Placed:
    """Where a saved selection is on a recording; raises what :func:`score_saved_by_weights` raises."""
    refuse_mixed_origins(saved.origin, launches)
    rows = rows_on(saved, launches)
    labels, origins = saved.labels(), saved.origins()
    facts = light_time = None
    if labels is not None:
        kinds, times = kernel_and_size(launches), saved.cell_times()
        facts = GroupFacts(kinds, origins, right=saved.right_labels())
        light_time = None if times is None else times.of_launches(labels, kinds)
    return Placed(
        cost=scored_cost(launches, quantity, saved_quantity(saved)),
        rows=rows,
        groups=saved.group,
        labels=labels,
        instructions=instructions_of(launches),
        facts=facts,
        light_time=light_time,
        parts_unknown=saved.predicts_labels and (labels is None or origins is None),
        design=saved.design,
        at_home=is_at_home(saved, launches),
        scales_at_most=checked_scale(scales_at_most),
    )


def score_notes(saved: SavedSelection, launches: Launches, evaluation: Evaluation) -> tuple[Note, ...]:
    """Notes on doubtful scores that :func:`score_saved_by_weights` gave on ``launches``."""
    keys = keys_of(launches)
    rows = np.searchsorted(keys, row_keys(saved.process, saved.launch))
    return doubts(evaluation, rows, saved.process, saved.launch)


def saved_quantity(saved: SavedSelection) -> str | None:
    """The cost by which a saved selection was made and scored."""
    cost = saved.document.cost
    return None if cost is None else cost.quantity
