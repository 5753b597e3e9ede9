"""Results of a campaign that still runs, as they firm up: analysed again while somebody looks.

One analysis at a time, for all campaigns together; each campaign rests ten times as long as its last analysis
took. A page that nobody watches asks for none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from hashlib import blake2b

from assay_core.records.campaign import RunState
from assay_sampling.errors import AssayError
from assay_server.campaigns.analysing.provisional import ProvisionalReports
from assay_server.campaigns.errors import NotYetError
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import OPEN_RUNS, Run, Slice
from assay_server.store.sql import SqlTransaction
from assay_server.web.views.results import Results, results_of

_log = logging.getLogger(__name__)

_LEAST_REST_SECONDS = 5.0
_REST_TIMES = 10.0
_MOST_KEPT = 8

Cell = tuple[str, str]


@dataclass(frozen=True)
class SoFar:
    """What a campaign has so far.

    ``there_percent``: by workload and kind of GPU, how many of the launches to be measured are there; None
    where nobody knows how many there will be. ``open_cells``: those with runs that had not ended.
    ``document``: the report (JSON), ``key``: its hash.
    ``problem``: why there are no results yet, "" if there are. ``made_at_ms``: Unix time.
    """

    results: Results = field(default_factory=Results)
    there_percent: Mapping[Cell, float | None] = field(default_factory=dict)
    open_cells: frozenset[Cell] = frozenset()
    document: bytes = b""
    key: str = ""
    problem: str = ""
    made_at_ms: int = 0


@dataclass
class _Entry:
    so_far: SoFar | None = None
    version: int = -1
    not_before: float = float("-inf")


class ResultsSoFar:
    """The newest results of running campaigns. Thread-safe.

    Args:
        coordinator: the store.
        reports: makes reports of what is there.
        thread: where that is waited for.
        version: a number that changes with a campaign.
        made: called with the campaign that has newer results, so that its page is drawn again.
        monotonic: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        reports: ProvisionalReports,
        thread: Executor,
        *,
        version: Callable[[str], int],
        made: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._reports = reports
        self._thread = thread
        self._version = version
        self._made = made
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._busy = False

    def of(self, campaign_id: str) -> SoFar | None:
        """The newest results; None before the first. Never waits: newer ones are begun if they are due."""
        with self._lock:
            entry = self._entries.setdefault(campaign_id, _Entry())
            self._entries.move_to_end(campaign_id)
            while len(self._entries) > _MOST_KEPT:
                self._entries.popitem(last=False)
            version = self._version(campaign_id)
            due = version != entry.version and self._monotonic() >= entry.not_before
            if due and not self._busy:
                self._busy = True
                try:
                    self._thread.submit(self._make, campaign_id, version)
                except RuntimeError:  # the server ends
                    self._busy = False
            return entry.so_far

    def _make(self, campaign_id: str, version: int) -> None:
        began = self._monotonic()
        try:
            so_far: SoFar | None = self._results_so_far(campaign_id)
        except NotYetError:  # somebody asked for a report so far; their analysis goes first
            so_far = None
        except AssayError as error:
            so_far = SoFar(problem=error.explained, made_at_ms=self._coordinator.clock.now_ms())
        except Exception:  # noqa: BLE001 - whoever looks at the page sees the results of before
            _log.exception("the results of %s so far were not made", campaign_id)
            so_far = None
        took = self._monotonic() - began
        with self._lock:
            self._busy = False
            entry = self._entries.setdefault(campaign_id, _Entry())
            entry.not_before = self._monotonic() + max(_LEAST_REST_SECONDS, _REST_TIMES * took)
            if so_far is None:
                return
            changed = (
                entry.so_far is None
                or so_far.key != entry.so_far.key
                or so_far.problem != entry.so_far.problem
            )
            entry.so_far, entry.version = so_far, version
        if changed:
            self._made(campaign_id)

    def _results_so_far(self, campaign_id: str) -> SoFar:
        # First: what arrives during the analysis is not in its results.
        now_ms = self._coordinator.clock.now_ms()
        with self._coordinator.snapshot() as store:
            runs = store.runs(campaign_id)
            there = _there(store, runs)
        open_cells = frozenset((run.workload, run.device_kind) for run in runs if run.state in OPEN_RUNS)
        pages = self._reports(campaign_id, windows_so_far=True)
        if pages is None:
            return SoFar(there_percent=there, problem="no launches are there yet", made_at_ms=now_ms)
        results = results_of(pages[2])
        key = blake2b(pages[0], digest_size=8).hexdigest()
        return SoFar(results, there, open_cells, pages[0], key, made_at_ms=now_ms)


def _there(store: SqlTransaction, runs: Sequence[Run]) -> dict[Cell, float | None]:
    """How many percent of the launches that get counters each workload has on each kind of GPU.

    Of all launches, where none get counters.
    """
    by_cell: dict[Cell, list[tuple[Run, list[Slice]]]] = {}
    for run in runs:
        by_cell.setdefault((run.workload, run.device_kind), []).append((run, store.slices(run.run_id)))
    percents: dict[Cell, float | None] = {}
    for cell, every in by_cell.items():
        ended = (pieces for run, pieces in every if run.state is RunState.DONE and run.level == "light")
        whole = max((sum(piece.launches for piece in pieces) for pieces in ended), default=0)
        those = [each for each in every if each[0].level == "detailed"] or every
        expected = [_expected(run, pieces, whole) for run, pieces in those]
        there = sum(piece.launches for _, pieces in those for piece in pieces if piece.file)
        percents[cell] = min(100.0, 100.0 * there / sum(expected)) if all(expected) else None
    return percents


def _expected(run: Run, pieces: list[Slice], whole: int) -> int:
    """Launches that a run will have; 0: nobody knows."""
    if run.state is RunState.DONE:
        return sum(piece.launches for piece in pieces)
    launch_count = sum(piece.launch_count for piece in pieces) if all(p.launch_count for p in pieces) else 0
    return min(launch_count, whole) if launch_count and whole else launch_count or whole
