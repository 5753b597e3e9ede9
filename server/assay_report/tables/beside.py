"""Tables of published results and of simulations, beside the report's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay_report.judging.target import error_of
from assay_report.model.beside import PublishedEntry, SimulatedEntry
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.tables.table import Filled, Table, Width, names, numbers, table_of
from assay_report.tables.verdicts import SIMULATED, simulated_columns
from assay_report.texts import ABSENT, count, percent, ratio, text

_OTHER_RUNS = (
    "Published numbers are of other GPUs, inputs and releases of the same workloads: they show the order of "
    "size, not a contest."
)


@dataclass(frozen=True)
class _Pair:
    """A published result, and the row for the same workload: of that method and GPU if there is one."""

    published: PublishedEntry
    ours: Row | None


_PAIRS: list[Filled[_Pair]] = [
    names("workload", lambda pair: pair.published.workload, clips=True),
    names("suite", lambda pair: text(pair.published.suite), optional=True, shared=True),
    names("published method", lambda pair: text(pair.published.method), optional=True),
    names("published GPU", lambda pair: text(pair.published.device), optional=True),
    numbers("published error", lambda pair: percent(pair.published.error_percent), "%"),
    numbers("published speedup", lambda pair: ratio(pair.published.speedup)),
    names("our method", lambda pair: ABSENT if pair.ours is None else pair.ours.method),
    names("our GPU", lambda pair: ABSENT if pair.ours is None else pair.ours.device),
    numbers("our error", lambda pair: percent(None if pair.ours is None else error_of(pair.ours)), "%"),
    numbers("our speedup", lambda pair: ratio(None if pair.ours is None else pair.ours.speedup)),
    names("source", lambda pair: text(pair.published.source), shared=True),
]


@dataclass(frozen=True)
class _Means:
    """The means of a published suite."""

    key: tuple[str, str, str, str]
    entries: Sequence[PublishedEntry]


_MEANS: list[Filled[_Means]] = [
    names("source", lambda found: text(found.key[3]), clips=True),
    names("suite", lambda found: text(found.key[2]), optional=True),
    names("method", lambda found: text(found.key[0]), optional=True),
    names("GPU", lambda found: text(found.key[1]), optional=True),
    numbers("workloads", lambda found: count(len(found.entries))),
    numbers("mean error", lambda found: percent(_mean(found.entries)), "%"),
    numbers("mean speedup", lambda found: ratio(_geometric(found.entries))),
]


def _silicon(entry: SimulatedEntry) -> str:
    return ", ".join(entry.silicon_devices) or ABSENT


def _itself(entry: SimulatedEntry) -> SimulatedEntry:
    return entry


_SIMULATED: list[Filled[SimulatedEntry]] = [
    names("suite", lambda entry: text(entry.suite), optional=True),
    names("workload", lambda entry: text(entry.application), clips=True),
    names("method", lambda entry: text(entry.method), optional=True),
    names("silicon", _silicon, optional=True, width=Width.WIDE),
    names("simulator", lambda entry: text(entry.simulator), optional=True, width=Width.WIDE),
    *simulated_columns(_itself),
]


def beside_tables(report: Report) -> list[Table]:
    """What the reader set beside the report."""
    found = []
    if report.simulated:
        found.append(table_of("Simulated", _SIMULATED, report.simulated, [SIMULATED]))
    if report.published:
        means: dict[tuple[str, str, str, str], list[PublishedEntry]] = {}
        for entry in report.published:
            means.setdefault((entry.method, entry.device, entry.suite, entry.source), []).append(entry)
        lines = [_Means(key, entries) for key, entries in means.items()]
        found.append(table_of("Published suites", _MEANS, lines, [_OTHER_RUNS]))
        pairs = _pairs(report)
        if pairs:
            found.append(table_of("Published and ours, by workload", _PAIRS, pairs))
    return found


def _pairs(report: Report) -> list[_Pair]:
    """The published results of workloads that the report has, each beside the closest row."""
    rows: dict[str, list[Row]] = {}
    for row in report.rows:
        rows.setdefault(row.workload.casefold(), []).append(row)
    return [
        _Pair(entry, _closest(entry, rows[entry.workload.casefold()]))
        for entry in report.published
        if entry.workload.casefold() in rows
    ]


def _closest(entry: PublishedEntry, rows: Sequence[Row]) -> Row | None:
    def fits(row: Row) -> tuple[bool, bool, bool]:
        method = row.method.casefold() == entry.method.casefold()
        return error_of(row) is not None, method, row.device.casefold() == entry.device.casefold()

    return max(rows, key=fits, default=None)


def _mean(entries: Sequence[PublishedEntry]) -> float | None:
    known = [entry.error_percent for entry in entries if entry.error_percent is not None]
    return math.fsum(known) / len(known) if known else None


def _geometric(entries: Sequence[PublishedEntry]) -> float | None:
    known = [entry.speedup for entry in entries if entry.speedup is not None and entry.speedup > 0]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None
