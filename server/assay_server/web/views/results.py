"""Results of a campaign for its page, out of the report that its analysis wrote."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_server.store.model import Campaign
from assay_server.store.record_store import RecordStore

_log = logging.getLogger(__name__)

# Reading JSON holds all threads of the process: larger reports are only for download.
MOST_BYTES = 16 << 20
_MOST_KEPT = 32
_MOST_ROWS = 200


@dataclass(frozen=True)
class Result:
    """The numbers of a workload on a kind of GPU, as the report's summary has them.

    ``low_percent``, ``high_percent``: the interval of the projected total, as differences to it;
    ``refused``: why there are no numbers.
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


@dataclass(frozen=True)
class Results:
    """The results of a campaign, and the sentence that its report begins with; "" without a report."""

    rows: tuple[Result, ...] = ()
    verdict: str = ""


class ResultsCache:
    """The results of campaigns that have a report, kept for those that were looked at last. Thread-safe."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], Results] = OrderedDict()

    def of(self, campaign: Campaign) -> Results:
        """Its results in the report's order; none for a report that cannot be read here."""
        path = self._records.report_path(campaign.campaign_id, "json")
        try:
            state = path.stat()
            key = (campaign.campaign_id, state.st_mtime_ns, state.st_size)
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
                small = state.st_size <= MOST_BYTES
                found = results_of(json.loads(path.read_bytes())) if small else Results()
                self._kept[key] = found
                if len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
                return found
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.warning("the report of %s cannot be shown: %s", campaign.campaign_id, error)
            return Results()


def results_of(report: Mapping[str, Any], *, every_method: bool = False) -> Results:
    """The results in a report's document, of this or another release: what is not there is left out.

    ``every_method``: of each workload and GPU those by every method, if that are not too many to read.
    """
    rows = {
        (row.get("workload"), row.get("device"), json.dumps(row.get("condition")), row.get("method")): row
        for row in report.get("rows", ())
    }
    part = "rows" if every_method and len(rows) <= _MOST_ROWS else "summary"
    overall = (report.get("verdicts") or {}).get("overall") or {}
    return Results(
        tuple(_result(entry, rows) for entry in report.get(part, ())), str(overall.get("sentence", ""))
    )


def _result(entry: Mapping[str, Any], rows: Mapping[Any, Mapping[str, Any]]) -> Result:
    condition = entry.get("condition")
    key = (entry.get("workload"), entry.get("device"), json.dumps(condition), entry.get("method"))
    low, high = _interval(rows.get(key, {}))
    return Result(
        workload=str(entry.get("workload", "")),
        device=str(entry.get("device", "")),
        condition=_condition(condition),
        method=str(entry.get("method", "")),
        error_percent=_number(entry.get("error_percent")),
        speedup=_number(entry.get("speedup")),
        launches=entry.get("launches"),
        low_percent=low,
        high_percent=high,
        refused="" if entry.get("status", "ok") == "ok" else str(entry.get("reason") or entry["status"]),
        flags=tuple(map(str, entry.get("flags", ()))),
    )


def _condition(condition: object) -> str:
    """What is special about a condition; "" for free clocks, caches left alone and all SMs."""
    if not isinstance(condition, Mapping):
        return ""
    told = ["flushed caches"] if condition.get("cache") == "all" else []
    if condition.get("clock") not in (None, "none"):
        told.append(f"clock {condition['clock']}")
    share = _number(condition.get("sm_percent"))
    if share is not None and share < 100:
        told.append(f"{share:g} % of the SMs")
    return ", ".join(told)


def _interval(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The ends of a row's interval as percentages of its projected total."""
    interval, cost = row.get("interval"), row.get("cost")
    projected = _number(cost.get("projected")) if isinstance(cost, Mapping) else None
    if not isinstance(interval, Mapping) or not projected:
        return None, None
    ends = [_number(interval.get(end)) for end in ("low", "high")]
    low, high = (None if end is None else 100 * (end / projected - 1) for end in ends)
    return low, high


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
