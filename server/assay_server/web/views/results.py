"""Results of a campaign for its page, out of the Parquet file that its analysis wrote."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
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
from assay_server.web.views.templating import special_condition

_log = logging.getLogger(__name__)

SELECTED_HERE = "selected_here"
_MOST_KEPT = 32
# Of a cell of the summary that row is shown which comes first here, then in the report.
_RANKS = {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}
# Columns of the report's rows that Result has under the same names.
_SAME = (
    "workload", "device", "method", "status", "error_percent", "group_error_percent", "speedup", "launches",
)  # fmt: skip
_CONDITION = ("condition.cache", "condition.clock", "condition.sm_percent")
_OTHERS = ("reason", "verdict.level", "interval.low", "interval.high", "cost.projected", "flags",
           "selected_on.device")  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The numbers of a method on a workload and a kind of GPU, as the report's rows have them.

    ``low_percent``, ``high_percent``: the interval of the projected total, as differences to it;
    ``refused``: why there are no numbers. ``level``: of its verdict, "" without one; :data:`SELECTED_HERE`
    where its selection was made and other GPUs say whether to trust it. ``selected_on``: that GPU.
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
    selected_on: str | None = None

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


def stored_results(records: RecordStore, campaign: Campaign) -> Results:
    """The results in a campaign's report, in its order; none without a report that can be read here.

    Those that were looked at last are kept. Thread-safe.
    """
    if not campaign.has_report:
        return Results()
    path = records.report_path(campaign.campaign_id, "parquet")
    try:
        state = path.stat()
        return _results_in(path, state.st_mtime_ns, state.st_size)
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        _log.warning("the report of %s cannot be shown: %s", campaign.campaign_id, error)
        return Results()


@lru_cache(maxsize=_MOST_KEPT)
def _results_in(path: Path, _mtime_ns: int, _size: int) -> Results:
    return results_of(path)


def results_of(report: Path | bytes) -> Results:
    """The results in a report's Parquet file; raises OSError, and what Arrow raises for a damaged file."""
    file = io.BytesIO(report) if isinstance(report, bytes) else report
    table = pq.read_table(file, columns=[*_SAME, *_CONDITION, *_OTHERS])
    every = tuple(_judged_elsewhere([_result(row) for row in table.to_pylist()]))
    cells: dict[tuple[str, str, str], Result] = {}
    for each in every:
        cell = (each.workload, each.device, each.condition)
        if _rank(each) < _rank(cells.setdefault(cell, each)):
            cells[cell] = each
    sentence = (table.schema.metadata or {}).get(SENTENCE.encode(), b"")
    return Results(tuple(cells.values()), sentence.decode(), every)


def _judged_elsewhere(every: Sequence[Result]) -> Iterator[Result]:
    """Expectations of other GPUs give way to what was seen there."""
    seen = {
        (each.workload, each.method)
        for each in every
        if each.selected_on not in (None, each.device) and each.level
    }
    for each in every:
        was_seen = each.selected_on == each.device and (each.workload, each.method) in seen
        yield replace(each, level=SELECTED_HERE) if was_seen and each.level and not each.is_off else each


def _rank(result: Result) -> int:
    return _RANKS.get(result.status, len(_RANKS))


def _result(row: Mapping[str, Any]) -> Result:
    return Result(
        **{name: row[name] for name in _SAME},
        condition=special_condition(*(row[name] for name in _CONDITION)),
        low_percent=_difference_percent(row["interval.low"], row["cost.projected"]),
        high_percent=_difference_percent(row["interval.high"], row["cost.projected"]),
        refused="" if row["status"] == "ok" else row["reason"] or row["status"],
        flags=_flag_names(row["flags"] or "[]"),
        level=row["verdict.level"] or "",
        selected_on=row["selected_on.device"],
    )


def _difference_percent(end: float | None, projected: float | None) -> float | None:
    return 100 * (end / projected - 1) if end is not None and projected else None


@lru_cache(maxsize=1024)
def _flag_names(flags: str) -> tuple[str, ...]:
    """The names in the JSON of a row's flags, each once."""
    return tuple(dict.fromkeys(str(flag["name"]) for flag in json.loads(flags)))
