"""Resolves the units in which NVIDIA's reader gives a report's metrics, and finds unreadable metrics.

The package ``ncu_report`` gives some counts the unit ``""`` where the raw page of the same report prints
``request``. So only here an empty unit is the base unit of a plain count
(:attr:`assay_sampling.counters.definitions.Counter.plain_count`); prefixes scale as on a page. A report of a
full set holds hundreds of metrics, of which an analysis needs a few: one that cannot be read is left out with
a note, and only an analysis that needs it refuses. Grid and block are always needed.

Source: full-set reports of an RTX 4060 by Nsight Compute 2024.1.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay_sampling.counters.definitions import counter_of_metric
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.ncu.columns import SHAPE_METRICS, ColumnError, base_unit_of, factor_to_base

_EXPORT = "export the raw page, and look at the metric there: ncu --import REPORT --csv --page raw"


@dataclass(frozen=True)
class ReportUnits:
    """The metrics that can be read, each with its unit, and notes on the others."""

    units: dict[str, str]
    notes: tuple[Note, ...]


def resolve_units(metric_units: Mapping[str, Sequence[str]], not_numbers: Mapping[str, str]) -> ReportUnits:
    """The metrics of a report that can be read.

    Args:
        metric_units: the units that each metric comes in, in the order of the results.
        not_numbers: for each metric with values that are not numbers, the first of these.

    Raises ColumnError where grid or block cannot be read.
    """
    units: dict[str, str] = {}
    notes: list[Note] = []
    for metric, own_units in metric_units.items():
        try:
            units[metric] = _unit(metric, own_units, not_numbers)
        except ColumnError as error:
            if metric in SHAPE_METRICS:
                raise
            counter = counter_of_metric(metric)
            name = counter.name if counter else metric
            notes.append(make_note("metric_unreadable", counter=name, metric=metric, cause=error.cause))
    return ReportUnits(units, tuple(notes))


def _unit(metric: str, units: Sequence[str], not_numbers: Mapping[str, str]) -> str:
    """The one unit of a metric, as a page would print it; raises ColumnError."""
    base = base_unit_of(metric)
    if base is None:
        return units[0]
    if metric in not_numbers:
        raise ColumnError(metric, f"its value {not_numbers[metric]!r} is not a number", _EXPORT)
    counter = counter_of_metric(metric)
    plain = counter is not None and counter.plain_count
    resolved = [base if plain and unit == "" else unit for unit in units]
    factors = {factor_to_base(metric, unit, base) for unit in resolved}
    if len(factors) > 1:
        raise ColumnError(metric, f"it comes in {units[0]!r} and in {units[1]!r}", _EXPORT)
    return resolved[0]
