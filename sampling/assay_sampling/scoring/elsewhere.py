"""Score selections on recordings other than their own, with weights fixed where they were made.

A recording holds the same launches if there are as many and they are the same kernels with the same
blocks in the same order; on the same GPU also with the same grids. Cycles and nanoseconds are never
mixed: one quantity is scored, and the evaluation names it.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.documents.selection import ProfilePart, SequenceHashes
from assay_sampling.errors import (
    CounterUnavailableError,
    MisalignedError,
    ParameterError,
    RefusedError,
)
from assay_sampling.estimation.intervals import Interval
from assay_sampling.estimation.sample_design import SampleDesign, nothing_drawn
from assay_sampling.estimation.target_intervals import target_interval
from assay_sampling.launches.alignment import (
    MATCH_KINDS,
    Alignment,
    MatchKind,
    Shape,
    align,
    require_match,
    shape_totals,
    totals_only,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.running.identity import Origin, condition_conflict
from assay_sampling.scoring.decomposition import LabelFacts, all_together
from assay_sampling.scoring.evaluation import Cost, Evaluation, cost_of, doubts, evaluate, instructions_of
from assay_sampling.scoring.ratio_spread import Chosen, GroupSpread, widest_groups
from assay_sampling.scoring.saved_labels import first_difference
from assay_sampling.scoring.selection import ProfileSummary, SavedSelection, Selection
from assay_sampling.scoring.weights import light_time_of

_DIFFERENCES_SHOWN = 5
_REMEDY = "score it on a recording of the same command, input and seeds"
_DEMANGLE = "write the simulator's log with demangled ones (zcat RUN.out.gz | c++filt > run.out)"


def score_saved(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None = None,
    weights: WeightKind | None = None,
) -> Evaluation:
    """Score a saved selection on a recording of the same launches.

    Args:
        saved: the selection.
        launches: the recording.
        quantity: the cost (a key of COST_UNITS); None takes that of the selection where every launch of
            the recording has it, else the recording's own (cycles, else ``duration_ns``).
        weights: the kind of weights; None takes :func:`default_weights`.

    The group error is None if the selection was saved without labels. Raises MisalignedError naming the
    differences, InputError if the labels cannot be read, RefusedError if one is synthetic and the other
    not, ParameterError for an unknown quantity or weights that the selection lacks,
    CounterUnavailableError for a quantity that was not measured.
    """
    kind = default_weights(saved, launches) if weights is None else weights
    return _placed(saved, launches, quantity).evaluation(saved.weights_of(kind), kind)


def score_saved_by_weights(
    saved: SavedSelection, launches: Launches, quantity: str | None = None
) -> dict[WeightKind, Evaluation]:
    """Score a saved selection with each kind of weights that it has; as :func:`score_saved` otherwise."""
    placed = _placed(saved, launches, quantity)
    return {kind: placed.evaluation(saved.weights_of(kind), kind) for kind in saved.weight_kinds}


def default_weights(saved: SavedSelection, *recordings: Launches) -> WeightKind:
    """The kind of weights for recordings unless told otherwise: those for elsewhere if one of them is of
    another GPU or another condition than the selection, else its own: there light time is no test."""
    own = all(_at_home(saved, launches) for launches in recordings)
    return saved.weights.here if own else saved.weights.elsewhere


def _at_home(saved: SavedSelection, launches: Launches) -> bool:
    """Whether a recording is of the GPU and condition of the selection, as far as both are recorded."""
    if saved.origin != launches.metadata.origin:
        return False
    made_on, scored_on = set(saved.document.profile.devices), set(launches.device_labels())
    if made_on and scored_on and not made_on & scored_on:
        return False
    cost = saved.document.cost
    if cost is None or cost.condition is None:
        return True
    made = cost.condition.model_dump(exclude_none=True)
    return condition_conflict(Condition(**made), launches.metadata.condition) is None


@dataclass(frozen=True)
class _Placed:
    """A selection's representatives and groups on a recording: ``rows`` and ``groups`` of shape (r,).

    ``labels``, and ``light_time`` where the selection was made, have shape (n,) or are None; with
    ``parts_unknown`` nobody knows which groups a model predicted. ``design`` says how the representatives
    were drawn, None if that is unknown; ``kernels``, shape (r,), are their kernels' ids.
    """

    cost: Cost
    rows: np.ndarray
    groups: np.ndarray
    labels: np.ndarray | None
    instructions: np.ndarray | None
    facts: LabelFacts | None
    light_time: np.ndarray | None = None
    parts_unknown: bool = False
    design: SampleDesign | None = None
    kernels: np.ndarray | None = None
    at_home: bool = False

    def evaluation(self, weights: np.ndarray, kind: WeightKind) -> Evaluation:
        found = evaluate(
            self.cost,
            self.rows,
            weights,
            labels=self.labels,
            representative_groups=self.groups,
            instructions=self.instructions,
            facts=self._facts(kind),
            kind=kind,
        )
        interval, reason = self._interval(weights, kind)
        found = replace(found, interval=interval, interval_reason=reason)
        return replace(found, parts=all_together(found.signed_error_percent)) if self.parts_unknown else found

    def _interval(self, weights: np.ndarray, kind: WeightKind) -> tuple[Interval | None, Note | None]:
        if self.design is None or self.kernels is None:
            return None, make_note("interval_of_unknown_design")
        if self.at_home and kind == "light_time":
            return None, make_note("interval_at_home")
        executed = None if self.instructions is None else self.instructions[self.rows]
        costs = self.cost.values[self.rows]
        return target_interval(
            self.design,
            costs,
            self.groups,
            weights,
            kind=kind,
            kernels=self.kernels,
            instructions=executed,
        )

    def _facts(self, kind: WeightKind) -> LabelFacts | None:
        """The facts with the amounts that weights of this kind count."""
        if self.facts is None or self.labels is None or kind == "launches":
            return self.facts
        if kind == "light_time" and self.light_time is not None:
            return replace(self.facts, amounts=self.light_time)
        return self.facts.by_whole_groups(self.labels)


def _placed(saved: SavedSelection, launches: Launches, quantity: str | None) -> _Placed:
    """Where a saved selection is on a recording; raises what :func:`score_saved` raises."""
    profile = saved.document.profile
    _refuse_mixed_origins(saved.origin, launches)
    subject = f"selection on {_source(launches)}"
    if not len(launches):
        raise RefusedError(_source(launches), "it holds no launches")
    if profile.launches != len(launches):
        raise MisalignedError(
            subject,
            f"the selection was made on {profile.launches:,} launches, "
            f"and this recording has {len(launches):,}",
            _REMEDY,
        )
    kind = _kind_needed(profile, launches)
    rows, differences = _rows_of_representatives(saved, launches, kind)
    if differences:
        raise MisalignedError(
            subject,
            f"{len(differences)} of the {len(rows)} representatives are different launches here",
            _remedy(saved, launches.take(rows)),
            tuple(differences[:_DIFFERENCES_SHOWN]),
        )
    if not same_sequence(saved.sequence, ProfileSummary.of(launches).sequence(), kind):
        difference = first_difference(saved.document.labels, launches, kind)
        raise MisalignedError(
            subject,
            f"the representatives agree, but the launches between them differ ({kind} comparison)",
            _REMEDY,
            () if difference is None else (difference,),
        )
    labels, origins = saved.labels(), saved.origins()
    facts = None if labels is None or origins is None else LabelFacts.of(origins)
    return _Placed(
        cost=_cost(launches, quantity, saved_quantity(saved)),
        rows=rows,
        groups=saved.group,
        labels=labels,
        instructions=instructions_of(launches),
        facts=facts,
        parts_unknown=saved.predicts_labels and facts is None,
        design=saved.design,
        kernels=launches.column("kernel_id")[rows],
        at_home=_at_home(saved, launches),
    )


def score_notes(saved: SavedSelection, launches: Launches, evaluation: Evaluation) -> tuple[Note, ...]:
    """Notes on doubtful scores that :func:`score_saved` gave on ``launches``."""
    keys = _row_keys(launches.column("process"), launches.column("launch"))
    rows = np.searchsorted(keys, _row_keys(saved.process, saved.launch))
    return doubts(evaluation, rows, saved.process, saved.launch)


@dataclass(frozen=True)
class RelativeScore:
    """How well one selection predicts how much faster the second recording is than the first.

    speedup_true      = total of the first / total of the second
    speedup_predicted = projected of the first / projected of the second

    Both are of one quantity; ``error_percent`` is 100 |predicted - true| / true. ``widest_groups`` are those
    whose launches scale least alike from the first to the second.
    """

    first: Evaluation
    second: Evaluation
    widest_groups: tuple[GroupSpread, ...] = ()

    @property
    def speedup_true(self) -> float:
        return self.first.total / self.second.total

    @property
    def speedup_predicted(self) -> float:
        return self.first.projected / self.second.projected

    @property
    def error_percent(self) -> float:
        return 100.0 * abs(self.speedup_predicted - self.speedup_true) / self.speedup_true

    def to_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.first.quantity,
            "unit": self.first.unit,
            "speedup_true": self.speedup_true,
            "speedup_predicted": self.speedup_predicted,
            "speedup_error_percent": self.error_percent,
            "widest_groups": [each.to_dict() for each in self.widest_groups],
        }


def score_relative(
    saved: SavedSelection,
    first: Launches,
    second: Launches,
    quantity: str | None = None,
    weights: WeightKind | None = None,
) -> RelativeScore:
    """Score a saved selection on two recordings of its launches: two GPUs, or two shares of the SMs of one.

    Args:
        saved: the selection, its weights equal on both.
        first, second: the recordings.
        quantity: the cost (a key of COST_UNITS); None takes that of the selection where both recordings
            have it, else ``duration_ns``, else the first that both have.
        weights: the kind of weights on both; None takes :func:`default_weights` of both together.

    Raises what :func:`score_saved` raises; MisalignedError too if both are of one GPU and their grids
    differ, and CounterUnavailableError if no cost was measured on both.
    """
    shared = set(first.device_labels()) & set(second.device_labels())
    kind: MatchKind = "exact" if shared else "name_block"
    evaluated = _common_quantity(saved, first, second) if quantity is None else quantity
    kind_of_weights = default_weights(saved, first, second) if weights is None else weights
    found = RelativeScore(
        score_saved(saved, first, evaluated, kind_of_weights),
        score_saved(saved, second, evaluated, kind_of_weights),
    )
    if not same_sequence(ProfileSummary.of(first).sequence(), ProfileSummary.of(second).sequence(), kind):
        raise MisalignedError(
            f"{_source(first)} and {_source(second)}",
            f"both hold the launches of the selection, but differ from each other ({kind} comparison)",
            "record both with the same command, input and seeds",
        )
    labels = saved.labels()
    if labels is None:
        return found
    keys = _row_keys(first.column("process"), first.column("launch"))
    rows = np.searchsorted(keys, _row_keys(saved.process, saved.launch))
    here, there = (cost_of(each, found.first.quantity).values for each in (first, second))
    used = saved.weights_of(kind_of_weights)
    chosen = Chosen(rows, rows, saved.group, used, saved.kernel, saved.grid)
    return replace(found, widest_groups=widest_groups(here, there, labels, chosen))


def widest_groups_there(
    selection: Selection, here: Launches, there: Launches, alignment: Alignment, quantity: str
) -> tuple[GroupSpread, ...]:
    """The groups of a selection made ``here`` whose launches scale least alike there.

    ``alignment`` has ``here`` on the left; all representatives are matched (:func:`score_on`). Nothing if
    the selection has no labels, or ``here`` was not measured in ``quantity``.
    """
    if selection.labels is None or not _measured(here, quantity):
        return ()
    representatives = selection.representatives
    chosen = Chosen(
        rows_here=representatives.row,
        rows_there=_counterparts(alignment, selection, _source(there)),
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


def _common_quantity(saved: SavedSelection, first: Launches, second: Launches) -> str:
    wanted = [saved_quantity(saved), "duration_ns", *COST_UNITS]
    for candidate in wanted:
        if candidate in COST_UNITS and _measured(first, candidate) and _measured(second, candidate):
            return candidate
    raise CounterUnavailableError(
        f"{_source(first)} and {_source(second)}",
        "no cost was measured for all launches of both",
        "record both with durations, or both with the same cycle counter",
    )


def _measured(launches: Launches, quantity: str) -> bool:
    return quantity in launches.table.schema.names and not launches.table[quantity].null_count


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
        quantity: as in :func:`score_saved`.
        alignments: of ``reference`` and ``other`` by every kind, if already known: callers with several
        selections align the recordings once.
        weights: the kind of weights; None takes the selection's for elsewhere.

    Returns the evaluation and the match in percent of every kind. Launches of ``other`` without a
    counterpart belong to no group: their whole cost counts in the group error. Raises MisalignedError if the
    numbers of launches differ, less than 99 % match, or a representative has no counterpart, and RefusedError
    if one is synthetic and the other not, ParameterError for weights that the selection lacks.
    """
    used = selection.weights.elsewhere if weights is None else weights
    found, match = score_on_by_weights(
        selection, other, kind, reference=reference, quantity=quantity, alignments=alignments, only=used
    )
    return found[used], match


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
    _refuse_mixed_origins(selection.profile.origin, other)
    if len(reference) != selection.profile.launches:
        raise RefusedError(
            _source(reference),
            f"it has {len(reference):,} launches, and the selection was made on "
            f"{selection.profile.launches:,}",
        )
    subject = f"{_source(reference)} and {_source(other)}"
    _refuse_other_counts(subject, reference, other)
    found = alignments or {each: align(reference, other, each) for each in MATCH_KINDS}
    require_match(found[kind], subject=subject)
    rows = _counterparts(found[kind], selection, subject)
    labels = None
    if selection.labels is not None:
        labels = np.full(len(other), len(selection.group_launches), np.int64)
        labels[found[kind].right_rows] = selection.labels[found[kind].left_rows]
    placed = _Placed(
        cost=_cost(other, quantity, selection.evaluation.quantity),
        rows=rows,
        groups=selection.representatives.group,
        labels=labels,
        instructions=instructions_of(other),
        facts=_facts_there(selection, found[kind], len(other)),
        light_time=_light_time_there(reference, found[kind], len(other)),
        design=selection.design or nothing_drawn(selection.drawing),
        kernels=other.column("kernel_id")[rows],
    )
    kinds = selection.weight_kinds if only is None else (only,)
    scores = {each: placed.evaluation(selection.weights_of(each), each) for each in kinds}
    return scores, {each: alignment.match_percent for each, alignment in found.items()}


def _facts_there(selection: Selection, alignment: Alignment, launches: int) -> LabelFacts | None:
    """What is known of the groups of another recording's launches: as much as of their counterparts."""
    unmatched = np.ones(launches, bool)
    unmatched[alignment.right_rows] = False
    origins = np.zeros(launches, np.uint8)
    if selection.label_origins is not None:
        origins[alignment.right_rows] = selection.label_origins[alignment.left_rows]
    elif not unmatched.any():
        return None
    return replace(LabelFacts.of(origins), unmatched=unmatched)


def _light_time_there(reference: Launches, alignment: Alignment, launches: int) -> np.ndarray | None:
    """The light time of another recording's launches where the selection was made; 0 without counterpart."""
    here = light_time_of(reference)
    if here is None:
        return None
    found = np.zeros(launches)
    found[alignment.right_rows] = here[alignment.left_rows]
    return found


def _source(launches: Launches) -> str:
    return ", ".join(launches.sources) or "the recording"


def _refuse_mixed_origins(of_selection: Origin, launches: Launches) -> None:
    """Silicon and simulators are scored on each other, for that is what selections are for."""
    here = launches.metadata.origin
    if of_selection != here and "synthetic" in (of_selection, here):
        raise RefusedError(
            _source(launches),
            f"the selection is of {of_selection} data and this recording is {here}",
            "never score one on the other; mark a file that is synthetic with --synthetic",
        )


def _cost(launches: Launches, asked: str | None, of_selection: str | None) -> Cost:
    """The cost to score: the one asked for, else the selection's, else the recording's own."""
    if asked is not None:
        if asked not in COST_UNITS:
            raise ParameterError(
                "quantity", f"there is no cost {asked!r}", f"use one of {', '.join(COST_UNITS)}"
            )
        return cost_of(launches, asked)
    for candidate in (of_selection, default_cost_counter(launches.table)):
        if candidate in COST_UNITS and _measured(launches, candidate):
            return cost_of(launches, candidate)
    return cost_of(launches, "duration_ns")


def saved_quantity(saved: SavedSelection) -> str | None:
    """The cost by which a saved selection was made and scored."""
    cost = saved.document.cost
    return None if cost is None else cost.quantity


def _kind_needed(profile: ProfilePart, launches: Launches) -> MatchKind:
    """Libraries choose other grids on other GPUs; on the same one, another grid is another launch."""
    return "exact" if set(profile.devices) & set(launches.device_labels()) else "name_block"


def same_sequence(one: SequenceHashes, other: SequenceHashes, kind: MatchKind) -> bool:
    """Whether two recordings launch the same, as far as their hashes of ``kind`` tell."""
    whole = getattr(one, kind) == getattr(other, kind)
    # If one of the two knows only totals of grid and block, both are compared by totals.
    by_totals = one.totals_only or other.totals_only
    return whole or (by_totals and getattr(one, f"{kind}_totals") == getattr(other, f"{kind}_totals"))


def _rows_of_representatives(
    saved: SavedSelection, launches: Launches, kind: MatchKind
) -> tuple[np.ndarray, list[str]]:
    """Rows of the representatives in a recording, shape (r,), and their differences, a line each."""
    keys = _row_keys(launches.column("process"), launches.column("launch"))
    wanted = _row_keys(saved.process, saved.launch)
    rows = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    there = launches.take(rows)
    differences = []
    present = keys[rows] == wanted
    shapes: tuple[Shape, ...] = ("grid", "block") if kind == "exact" else ("block",)
    for index in range(len(wanted)):
        where = f"process {saved.process[index]} launch {saved.launch[index]}"
        if not present[index]:
            differences.append(f"{where} is missing")
            continue
        texts = list(_differences(saved, there.slice(index, 1), index, shapes))
        if texts:
            differences.append(f"{where}: {', '.join(texts)}")
    return rows, differences


def _remedy(saved: SavedSelection, there: Launches) -> str:
    """What to do about representatives that are different launches in ``there``, shape (r,).

    Traces, and so simulators' logs, have mangled names; profilers give demangled ones.
    """
    here = (there.names[identifier] for identifier in there.column("kernel_id").tolist())
    pairs = [(ours, theirs) for ours, theirs in zip(saved.kernel, here, strict=True) if ours != theirs]
    if pairs and all(theirs.startswith("_Z") and not ours.startswith("_Z") for ours, theirs in pairs):
        return f"its kernel names are mangled: {_DEMANGLE}, and score the selection on that"
    if pairs and all(ours.startswith("_Z") and not theirs.startswith("_Z") for ours, theirs in pairs):
        return f"the kernel names of the selection are mangled: {_DEMANGLE}, and select on that"
    return _REMEDY


def _row_keys(process: np.ndarray, launch: np.ndarray) -> np.ndarray:
    return (process.astype(np.int64) << 40) + launch.astype(np.int64)


def _differences(
    saved: SavedSelection, one: Launches, index: int, shapes: tuple[Shape, ...]
) -> Iterator[str]:
    """Differences of one launch from the saved representative ``index``."""
    kernel = one.names[int(one.column("kernel_id")[0])]
    if kernel != saved.kernel[index]:
        yield f"kernel {kernel[:80]!r} and not {saved.kernel[index][:80]!r}"
    for what in shapes:
        wanted = (saved.grid if what == "grid" else saved.block)[index]
        found = [int(one.column(f"{what}_{axis}")[0]) for axis in "xyz"]
        # A selection made on totals has them in x; its product is the total either way.
        if totals_only(one, what) or (wanted[1:] == 1).all():
            same = int(shape_totals(one, what)[0]) == int(np.prod(wanted))
        else:
            same = found == wanted.tolist()
        if not same:
            yield f"{what} {[v for v in found if v > 0]} and not {wanted.tolist()}"


def _refuse_other_counts(subject: str, reference: Launches, other: Launches) -> None:
    ours, theirs = (
        dict(zip(*(v.tolist() for v in np.unique(side.column("process"), return_counts=True)), strict=True))
        for side in (reference, other)
    )
    if ours == theirs:
        return
    differences = tuple(
        f"process {process}: {ours.get(process, 0):,} and {theirs.get(process, 0):,} launches"
        for process in sorted(ours.keys() | theirs.keys())
        if ours.get(process) != theirs.get(process)
    )
    raise MisalignedError(
        subject,
        f"they hold different numbers of launches ({len(reference):,} and {len(other):,})",
        "record both with the same command, input and seeds",
        differences[:_DIFFERENCES_SHOWN],
    )


def _counterparts(alignment: Alignment, selection: Selection, subject: str) -> np.ndarray:
    """Rows of the representatives in the other recording, shape (r,)."""
    wanted = selection.representatives.row
    position = np.minimum(np.searchsorted(alignment.left_rows, wanted), len(alignment.left_rows) - 1)
    missing = alignment.left_rows[position] != wanted
    if missing.any():
        index = int(np.argmax(missing))
        representatives = selection.representatives
        raise MisalignedError(
            subject,
            f"the representative at process {representatives.process[index]} launch "
            f"{representatives.launch[index]} ({representatives.kernel[index][:80]}) has no counterpart "
            f"({alignment.kind}, {int(missing.sum())} of {len(wanted)} representatives)",
            "choose representatives by another rule or seed, or match by position",
            alignment.differences,
        )
    return np.asarray(alignment.right_rows[position])
