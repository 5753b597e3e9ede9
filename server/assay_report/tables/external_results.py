"""Tables of published results and of simulations, beside the report's own numbers."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from assay_report.model.external_results import PublishedEntry, SimulatedEntry
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.tables.table import Filled, Table, Width, filled, names, numbers, table_of
from assay_report.tables.verdicts import SIMULATED, simulated_columns
from assay_report.texts import ABSENT, count, percent, ratio, text
from assay_report.verdicts.errors import error_of

_OTHER_RUNS = (
    "Published numbers are of other GPUs, inputs and releases of the same workloads: they show the order of "
    "size, not a contest."
)
# On silicon, PKA is its selection alone.
_OTHER_NAMES = {"pka": "pks"}
_ARCHITECTURES = {
    "pascal": re.compile(r"\b(P100|P40|P4|GTX 10\d\d|TITAN Xp?)\b"),
    "volta": re.compile(r"\b(G?V100|TITAN V)\b"),
    "turing": re.compile(r"\b(RTX 20\d\d|GTX 16\d\d|T4|TITAN RTX)\b"),
    "ampere": re.compile(r"\b(A100|A30|A10G?|A40|RTX 30\d\d|RTX A\d000)\b"),
    "ada": re.compile(r"\b(RTX 40\d\d|L4|L40S?)\b"),
    "hopper": re.compile(r"\bG?H[12]00\b"),
}


@dataclass(frozen=True)
class _Pair:
    """A published result, and our row for the same workload, method and GPU, if there is one."""

    published: PublishedEntry
    ours: Row | None

    @property
    def our_error_percent(self) -> float | None:
        return None if self.ours is None else error_of(self.ours)


def _more_points(pair: _Pair) -> str:
    """By how much our error is larger than the published one; negative where it is smaller."""
    ours, theirs = pair.our_error_percent, pair.published.error_percent
    return percent(None if ours is None or theirs is None else ours - theirs, signed=True)


def _quotient(pair: _Pair) -> float | None:
    ours, theirs = None if pair.ours is None else pair.ours.speedup, pair.published.speedup
    return None if ours is None or not theirs else ours / theirs


_PAIRS: list[Filled[_Pair]] = [
    names("workload", lambda pair: pair.published.workload, clips=True),
    names("suite", lambda pair: text(pair.published.suite), optional=True, shared=True),
    names("published method", lambda pair: text(pair.published.method), optional=True),
    names("published GPU", lambda pair: text(pair.published.device), optional=True),
    numbers("published error", lambda pair: percent(pair.published.error_percent), "%"),
    numbers("published speedup", lambda pair: ratio(pair.published.speedup)),
    names("our method", lambda pair: ABSENT if pair.ours is None else pair.ours.method),
    names("our GPU", lambda pair: ABSENT if pair.ours is None else pair.ours.device),
    numbers("our error", lambda pair: percent(pair.our_error_percent), "%"),
    numbers("our speedup", lambda pair: ratio(None if pair.ours is None else pair.ours.speedup)),
    numbers("our error more by", _more_points, "points"),
    numbers("our speedup / theirs", lambda pair: ratio(_quotient(pair))),
    names("source", lambda pair: text(pair.published.source), shared=True),
]


_MEANS: list[Filled[list[PublishedEntry]]] = [
    names("source", lambda suite: text(suite[0].source), clips=True),
    names("suite", lambda suite: text(suite[0].suite), optional=True),
    names("method", lambda suite: text(suite[0].method), optional=True),
    names("GPU", lambda suite: text(suite[0].device), optional=True),
    numbers("workloads", lambda suite: count(len(suite))),
    numbers("mean error", lambda suite: percent(_mean(suite)), "%"),
    numbers("mean speedup", lambda suite: ratio(_geometric(suite))),
]


def _silicon(entry: SimulatedEntry) -> str:
    return ", ".join(entry.silicon_devices) or ABSENT


_SIMULATORS: list[Filled[SimulatedEntry]] = simulated_columns(lambda entry: entry)
_SIMULATED: list[Filled[SimulatedEntry]] = [
    names("suite", lambda entry: text(entry.suite), optional=True),
    names("workload", lambda entry: text(entry.application), clips=True),
    names("method", lambda entry: text(entry.method), optional=True),
    names("silicon", _silicon, optional=True, width=Width.WIDE),
    names("simulator", lambda entry: text(entry.simulator), optional=True, width=Width.WIDE),
    *_SIMULATORS,
]


def beside_tables(report: Report) -> list[Table]:
    """What the reader set beside the report."""
    suites: dict[tuple[str, ...], list[PublishedEntry]] = {}
    for entry in report.published:
        suites.setdefault((entry.method, entry.device, entry.suite, entry.source), []).append(entry)
    return filled(
        table_of("Simulated", _SIMULATED, report.simulated, [SIMULATED]),
        table_of("Published suites", _MEANS, suites.values(), [_OTHER_RUNS]),
        table_of("Published and ours, by workload", _PAIRS, _pairs(report)),
    )


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
    """The row of the published method and GPU, as far as the publication names them; with an error, if one
    has. Another method or GPU would not be a comparison."""
    fitting = [row for row in rows if _is_method(entry, row) and _is_gpu(entry, row)]
    return max(fitting, key=lambda row: (error_of(row) is not None, row.is_selected_here), default=None)


def _is_method(entry: PublishedEntry, row: Row) -> bool:
    theirs = entry.method.casefold()
    return not theirs or row.method.casefold() == _OTHER_NAMES.get(theirs, theirs)


def _is_gpu(entry: PublishedEntry, row: Row) -> bool:
    """Whether it is the published GPU, or one of the architecture that the publication names."""
    theirs = entry.device.casefold()
    of_architecture = _ARCHITECTURES.get(theirs)
    if of_architecture is not None:
        return of_architecture.search(row.device) is not None
    return not theirs or row.device.casefold() == theirs


def _mean(entries: Sequence[PublishedEntry]) -> float | None:
    errors = [entry.error_percent for entry in entries if entry.error_percent is not None]
    return statistics.fmean(errors) if errors else None


def _geometric(entries: Sequence[PublishedEntry]) -> float | None:
    speedups = [entry.speedup for entry in entries if entry.speedup is not None and entry.speedup > 0]
    return statistics.geometric_mean(speedups) if speedups else None
