"""Results of a campaign for its page, out of the Parquet file that its analysis wrote."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay_report.data import SENTENCE
from assay_sampling.verdicts.rules import GOAL_ERROR_PERCENT
from assay_server.store.model import Campaign
from assay_server.store.record_store import RecordStore
from assay_server.web.views import words

_log = logging.getLogger(__name__)

SELECTED_HERE = "selected_here"
_MOST_KEPT = 32
# Of a cell of the summary that row is shown which comes first here, then in the report.
_RANKS = {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}
# Columns of the report's rows, by the argument of _result that each fills.
_COLUMNS = {
    "workload": "workload",
    "device": "device",
    "cache": "condition.cache",
    "clock": "condition.clock",
    "sm_percent": "condition.sm_percent",
    "method": "method",
    "status": "status",
    "reason": "reason",
    "level": "verdict.level",
    "error_percent": "error_percent",
    "group_error_percent": "group_error_percent",
    "speedup": "speedup",
    "launches": "launches",
    "low": "interval.low",
    "high": "interval.high",
    "projected": "cost.projected",
    "flags": "flags",
    "selected_on": "selected_on.device",
}


@dataclass(frozen=True)
class Result:
    """The numbers of a method on a workload and a kind of GPU, as the report's rows have them.

    ``low_percent``, ``high_percent``: the interval of the projected total, as differences to it;
    ``refused``: why there are no numbers. ``level``: of its verdict, "" without one; :data:`SELECTED_HERE`
    where its selection was made and other GPUs say whether to trust it.
    """

    workload: str
    device: str
    condition: str
    method: str
    error_percent: float | None
    speedup: float | None
    launches: int | None
    low_percent: float | None = None
    high_percent: float | None = None
    refused: str = ""
    flags: tuple[str, ...] = ()
    level: str = ""
    status: str = "ok"
    group_error_percent: float | None = None

    @property
    def is_off(self) -> bool:
        """Whether its error is above the goal of :mod:`assay_sampling.verdicts.rules`."""
        return self.error_percent is not None and abs(self.error_percent) > GOAL_ERROR_PERCENT


@dataclass(frozen=True)
class Results:
    """The results of a campaign, and the sentence that its report begins with; "" without a report.

    ``rows``: of each workload, GPU and condition the first method that gave numbers, as the report's summary;
    ``every``: those of all methods.
    """

    rows: tuple[Result, ...] = ()
    verdict: str = ""
    every: tuple[Result, ...] = ()


class ResultsCache:
    """The results of campaigns that have a report, kept for those that were looked at last. Thread-safe."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._results: OrderedDict[tuple[str, int, int], Results] = OrderedDict()

    def of(self, campaign: Campaign) -> Results:
        """Its results in the report's order; none for a report that cannot be read here."""
        path = self._records.report_path(campaign.campaign_id, "parquet")
        try:
            state = path.stat()
            key = (campaign.campaign_id, state.st_mtime_ns, state.st_size)
            with self._lock:
                if key in self._results:
                    self._results.move_to_end(key)
                    return self._results[key]
            results = results_of(path)
            with self._lock:
                self._results[key] = results
                while len(self._results) > _MOST_KEPT:
                    self._results.popitem(last=False)
            return results
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:
            _log.warning("the report of %s cannot be shown: %s", campaign.campaign_id, error)
            return Results()


def results_of(report: Path | bytes) -> Results:
    """The results in a report's Parquet file; raises OSError, and what Arrow raises for a damaged file."""
    file = io.BytesIO(report) if isinstance(report, bytes) else report
    table = pq.read_table(file, columns=list(_COLUMNS.values()))
    columns = [table.column(column).to_pylist() for column in _COLUMNS.values()]
    every = tuple(
        _result(**dict(zip(_COLUMNS, values, strict=True))) for values in zip(*columns, strict=True)
    )
    every = tuple(_judged_elsewhere(every, table.column(_COLUMNS["selected_on"]).to_pylist()))
    cells: dict[tuple[str, str, str], Result] = {}
    for each in every:
        cell = (each.workload, each.device, each.condition)
        if _rank(each) < _rank(cells.setdefault(cell, each)):
            cells[cell] = each
    sentence = (table.schema.metadata or {}).get(SENTENCE.encode(), b"")
    return Results(tuple(cells.values()), sentence.decode(), every)


def _judged_elsewhere(every: Sequence[Result], selected_on: Sequence[str | None]) -> Iterator[Result]:
    """Expectations of other GPUs give way to what was seen there."""
    places = list(zip(every, selected_on, strict=True))
    seen = {
        (each.workload, each.method)
        for each, home in places
        if home not in (None, each.device) and each.level
    }
    for each, home in places:
        here = home == each.device and (each.workload, each.method) in seen and each.level and not each.is_off
        yield replace(each, level=SELECTED_HERE) if here else each


def _rank(result: Result) -> int:
    return _RANKS.get(result.status, len(_RANKS))


def _result(
    *,
    cache: str | None,
    clock: str | None,
    sm_percent: float | None,
    reason: str | None,
    low: float | None,
    high: float | None,
    projected: float | None,
    flags: str | None,
    level: str | None,
    status: str,
    selected_on: str | None,
    **same: Any,
) -> Result:
    return Result(
        condition=words.special_condition(cache, clock, sm_percent),
        low_percent=_difference_percent(low, projected),
        high_percent=_difference_percent(high, projected),
        refused="" if status == "ok" else reason or status,
        flags=_flag_names(flags or "[]"),
        level=level or "",
        status=status,
        **same,
    )


def _difference_percent(end: float | None, projected: float | None) -> float | None:
    return 100 * (end / projected - 1) if end is not None and projected else None


@lru_cache(maxsize=1024)
def _flag_names(flags: str) -> tuple[str, ...]:
    """The names in the JSON of a row's flags, each once."""
    return tuple(dict.fromkeys(str(flag["name"]) for flag in json.loads(flags)))
