"""Scores of a selection against silicon: one set of formulas for every method.

    projected            = sum over representatives of weight x cost(representative)
    error_percent        = 100 |projected - total| / total
    group_error_percent  = 100 sum over groups |projected_g - total_g| / total    (cannot cancel)
    speedup              = total / sum over representatives of cost(representative)
    speedup_instructions, speedup_launches: that ratio for executed instructions and for launches
    weighted_cov_percent = 100 sum over groups instruction share x (standard deviation / mean of cost)

Source: docs/methods/comparing.md, "Scores"; weighted CoV: Sieve, section 2 (population deviation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from assay_sampling.counters.definitions import COST_UNITS, registry
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.engines.blockwise import (
    counts_by,
    first_not_finite,
    first_row_where,
    smallest,
    sums_by,
    total,
)
from assay_sampling.errors import CounterUnavailableError, RefusedError
from assay_sampling.estimation.intervals import Interval
from assay_sampling.estimation.target_intervals import Assumption
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.error_parts.decomposition import ErrorParts, GroupFacts, decompose


@dataclass(frozen=True)
class Cost:
    """Cost of a profile's launches: quantity, unit, condition, and the values, shape (n,)."""

    quantity: str
    unit: str
    condition: Condition
    values: np.ndarray


def cost_of(launches: Launches, quantity: str) -> Cost:
    """The cost of every launch in ``quantity`` (a key of COST_UNITS).

    Raises CounterUnavailableError if a launch lacks the value, RefusedError if one is negative or not
    finite, or the total is not positive.
    """
    source = ", ".join(launches.sources) or "launches"
    if quantity not in launches.table.schema.names:
        why = launches.unreadable.get(quantity)
        again = (
            how_to_collect((quantity,), table=launches.table) if quantity in registry() else "profile again"
        )
        raise CounterUnavailableError(
            source,
            f"the cost {quantity!r} was not measured" if why is None else f"the cost {quantity!r}: {why}",
            f"choose a measured cost, or {again if why is None else 'profile again'}",
        )
    column = launches.table[quantity]
    if column.null_count:
        first = _launch_at(launches, pc.index(column.is_null(), True).as_py())
        raise CounterUnavailableError(
            source,
            f"the cost {quantity!r} was not measured (n/a or NaN) for {column.null_count:,} of "
            f"{len(launches):,} launches, first for {first}",
            "profile those launches again, or choose another cost",
        )
    values = launches.floats(quantity)
    row = first_not_finite(values)
    if row is not None:
        cause = f"{_launch_at(launches, row)} has the cost {values[row]:g} in {quantity!r}"
        raise RefusedError(source, cause, _PROFILE_AGAIN)
    lowest = smallest(values) if values.size else 0.0
    if lowest < 0:
        row = first_row_where(values, lambda part: part == lowest)
        assert row is not None
        cause = f"{_launch_at(launches, row)} has the negative cost {values[row]:g} in {quantity!r}"
        raise RefusedError(source, cause, _PROFILE_AGAIN)
    whole = total(values)
    if not np.isfinite(whole):
        raise RefusedError(source, f"the sum of the costs in {quantity!r} is too large", _PROFILE_AGAIN)
    if not whole > 0:
        raise RefusedError(source, f"the launches have no cost at all in {quantity!r}", _PROFILE_AGAIN)
    return Cost(quantity, COST_UNITS[quantity], launches.metadata.condition, values)


_PROFILE_AGAIN = "profile the workload again, or choose another cost"


def _launch_at(launches: Launches, row: int) -> str:
    process, launch = launches.table["process"][row].as_py(), launches.table["launch"][row].as_py()
    return f"launch {launch} of process {process}"


@dataclass(frozen=True)
class Evaluation:
    """Scores of one selection on one profile in one cost quantity. Percentages are of ``total``.

    ``group_error_percent`` is None if the groups of launches are unknown, ``speedup_instructions`` if
    instructions were not measured for all launches, ``weighted_cov_percent``, the spread of the cost within
    groups, in both cases. ``free_rows`` are the rows of representatives that cost nothing: the launches that
    they stand for are projected as 0. ``parts`` add up to ``signed_error_percent``. ``weights`` says by which
    weights the total was projected. ``interval`` is that of the total on a recording other than the
    selection's, or ``interval_reason`` says why there is none; both are None on its own. ``assumption`` is
    what the interval rests on, ``not_vouched_percent`` the share of the time that no draw vouches for.
    """

    quantity: str
    unit: str
    condition: Condition
    total: float
    projected: float
    simulated: float
    error_percent: float
    signed_error_percent: float
    group_error_percent: float | None
    speedup: float
    speedup_launches: float
    speedup_instructions: float | None = None
    weighted_cov_percent: float | None = None
    free_rows: tuple[int, ...] = ()
    parts: ErrorParts | None = None
    weights: WeightKind = "launches"
    interval: Interval | None = None
    interval_reason: Note | None = None
    assumption: Assumption | None = None
    not_vouched_percent: float | None = None

    def cost_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "condition": self.condition.to_dict(),
            "total": self.total,
            "projected": self.projected,
        }

    def weighted_dict(self) -> dict[str, Any]:
        """The numbers that depend on the weights."""
        return {
            "projected": self.projected,
            "error_percent": self.error_percent,
            "signed_error_percent": self.signed_error_percent,
            "group_error_percent": self.group_error_percent,
        }

    def interval_dict(self) -> dict[str, Any]:
        """The interval of the total on another recording, or why there is none."""
        because = self.interval_reason
        return {
            "interval": None if self.interval is None else self.interval.to_dict(),
            "interval_reason": None if because is None else because.to_dict(),
            "interval_assumption": None if self.assumption is None else self.assumption.to_dict(),
            "not_vouched_percent": self.not_vouched_percent,
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "cost": self.cost_dict(),
            "error_percent": self.error_percent,
            "signed_error_percent": self.signed_error_percent,
            "group_error_percent": self.group_error_percent,
            "speedup": self.speedup,
            "speedup_instructions": self.speedup_instructions,
            "speedup_launches": self.speedup_launches,
            "weighted_cov_percent": self.weighted_cov_percent,
            "decomposition": None if self.parts is None else self.parts.to_dict(),
        }


def evaluate(
    cost: Cost,
    representative_rows: np.ndarray,
    weights: np.ndarray,
    *,
    labels: np.ndarray | None = None,
    representative_groups: np.ndarray | None = None,
    instructions: np.ndarray | None = None,
    facts: GroupFacts | None = None,
    kind: WeightKind = "launches",
) -> Evaluation:
    """Score representatives against the true total.

    Args:
        cost: cost of every launch, shape (n,).
        representative_rows: rows of the representatives, shape (r,).
        weights: their weights, shape (r,).
        labels: group of every launch, shape (n,), 0-based; with ``representative_groups``, shape (r,),
            it gives the group error.
        instructions: executed by every launch, shape (n,); it gives the speedup by instructions and,
            with ``labels``, the weighted CoV (:func:`instructions_of`).
        facts: which groups a model predicted, and kernels and sizes; None: all of the error is that of the
            representatives.
        kind: what the weights count.

    Raises RefusedError if the representatives cost nothing (the speedup would be infinite), or the weights
    are so large that the error in percent is not a finite number.
    """
    values = cost.values
    whole = total(values)
    of_representatives = values[representative_rows]
    with np.errstate(over="ignore"):
        projected_each = weights * of_representatives
        projected = float(projected_each.sum())
    signed = 100.0 * (projected - whole) / whole
    if not np.isfinite(signed):
        raise RefusedError(
            "selection",
            f"its weights project too large a total of {cost.quantity!r}",
            "write it again with: assay select METHOD FILE -o selection.json",
        )
    simulated = float(of_representatives.sum())
    if not simulated > 0:
        raise RefusedError("selection", f"its representatives have no cost in {cost.quantity!r}")
    return Evaluation(
        quantity=cost.quantity,
        unit=cost.unit,
        condition=cost.condition,
        total=whole,
        projected=projected,
        simulated=simulated,
        error_percent=abs(signed),
        signed_error_percent=signed,
        group_error_percent=_group_error_percent(values, projected_each, labels, representative_groups),
        speedup=whole / simulated,
        speedup_launches=len(values) / len(representative_rows),
        speedup_instructions=_ratio(instructions, representative_rows),
        weighted_cov_percent=weighted_cov_percent(values, labels, instructions),
        free_rows=tuple(np.asarray(representative_rows)[(of_representatives == 0) & (weights != 0)].tolist()),
        parts=decompose(
            values,
            representative_rows,
            weights,
            labels=labels,
            representative_groups=representative_groups,
            facts=facts,
        ),
        weights=kind,
    )


def _group_error_percent(
    values: np.ndarray, projected: np.ndarray, labels: np.ndarray | None, groups: np.ndarray | None
) -> float | None:
    """Sum of the groups' absolute errors in percent of the total, so that none cancels another.

    ``values`` and ``labels``: of every launch, shape (n,); ``projected`` and ``groups``: of the
    representatives, shape (r,). None without groups.
    """
    if labels is None or groups is None:
        return None
    count = int(groups.max(initial=-1)) + 1
    true_by_group = sums_by(labels, values, count)
    count = len(true_by_group)
    projected_by_group = np.bincount(groups, weights=projected, minlength=count)
    return 100.0 * float(np.abs(projected_by_group - true_by_group).sum()) / total(values)


def doubts(
    evaluation: Evaluation, rows: np.ndarray, process: np.ndarray, launch: np.ndarray
) -> tuple[Note, ...]:
    """Notes on doubtful scores: representatives that cost nothing.

    ``rows``, ``process`` and ``launch`` are those of all representatives, each of shape (r,).
    """
    if not evaluation.free_rows:
        return ()
    first = int(np.argmax(rows == evaluation.free_rows[0]))
    return (
        make_note(
            "representative_without_cost",
            quantity=evaluation.quantity,
            representatives=len(evaluation.free_rows),
            of=len(rows),
            process=int(process[first]),
            launch=int(launch[first]),
        ),
    )


def instructions_of(launches: Launches) -> np.ndarray | None:
    """Instructions executed by every launch, shape (n,); None where not measured for all of them."""
    name = "instructions"
    if name not in launches.table.schema.names or launches.table[name].null_count:
        return None
    executed = launches.array(name)
    whole = total(executed)
    return executed if np.isfinite(whole) and whole > 0 and smallest(executed) >= 0 else None


def weighted_cov_percent(
    values: np.ndarray, labels: np.ndarray | None, instructions: np.ndarray | None
) -> float | None:
    """Coefficient of variation of the cost within groups, weighted by their share of the instructions.

    All arrays have shape (n,), labels are 0-based; None if one is missing. A group whose mean cost is zero
    has no variation. Source: Sieve, section 2; docs/methods/sieve.md, "Weights".
    """
    if labels is None or instructions is None:
        return None
    count = counts_by(labels)
    safe = np.maximum(count, 1)
    mean = sums_by(labels, values) / safe
    # Deviations from the mean of the group: squares of the values themselves would cancel.
    variance = sums_by(labels, values, change=lambda part, group: np.square(part - mean[group])) / safe
    cov = np.divide(np.sqrt(variance), mean, out=np.zeros_like(mean), where=mean > 0)
    share = sums_by(labels, instructions) / total(instructions)
    return 100.0 * float((share * cov).sum())


def _ratio(amounts: np.ndarray | None, rows: np.ndarray) -> float | None:
    if amounts is None:
        return None
    chosen = float(amounts[rows].sum())
    return total(amounts) / chosen if chosen > 0 else None
