"""What the scheduler asks of the queue, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from assay_server.store import statements, tables
from assay_server.store.model import OPEN_RUNS, Entrant, GpuUse, OpenEnds, Run, Slice
from assay_server.store.parts.known import ENDS, WAITING
from assay_server.store.parts.slices import SliceRows
from assay_server.store.rows import queue
from assay_server.store.rows.expected import EndsOfCampaign, WaitingSlices
from assay_server.store.values.runs import run_of
from assay_server.store.values.slices import slice_of


class QueueRows(SliceRows):
    """What the scheduler asks of the queue, in SQL."""

    def entrants(self, campaign_ids: Sequence[str] | None = None) -> list[Entrant]:
        """Running campaigns with waiting slices, due or not, oldest first; None: of all campaigns.

        Slices of held runs do not count.
        """
        given = {} if campaign_ids is None else {"campaign_ids": list(campaign_ids)}
        return queue.entrants_from(list(self.rows(queue.entrants(bool(given)), given)))

    def first_waiting(
        self,
        lane_ids: Sequence[int],
        now_ms: int,
        passed: Sequence[tuple[str, int]] = (),
        untried_in: tuple[str, str] | None = None,
    ) -> tuple[Run, Slice] | None:
        """The first slice in these lanes of a campaign, in its order, that waits and is due.

        ``passed``: runs and slices to leave out. ``untried_in``: agent and slot, to leave out slices that
        have failed there.
        """
        if untried_in is None:
            with suppress(LookupError):
                return self._expected_first(lane_ids, now_ms, passed)
        given: dict[str, Any] = {"now_ms": now_ms}
        if passed:
            given["passed"] = list(passed)
        if untried_in:
            given |= {"untried_agent": untried_in[0], "untried_slot": untried_in[1]}
        query = queue.first_of_lane(bool(passed), bool(untried_in))
        # A list of slices in a statement has another length each time, so that only SQLAlchemy can run it.
        rows = self.rows if passed else self.driver.rows
        found = [row for lane in lane_ids for row in rows(query, {**given, "lane": lane})]
        if not found:
            return None
        first = min(found, key=lambda row: int(row["slices.ordinal"]))
        of_slice, of_run = statements.parted(first, tables.slices, tables.runs)
        run, piece = run_of(of_run), slice_of(of_slice)
        self.keep(tables.slices, (piece.run_id, piece.index), piece)
        return self.keep(tables.runs, (run.run_id,), run), piece

    def _expected_first(
        self, lane_ids: Sequence[int], now_ms: int, passed: Sequence[tuple[str, int]]
    ) -> tuple[Run, Slice] | None:
        """The first waiting slice of lanes that were read before. Raises LookupError."""
        lanes: list[WaitingSlices] = [self.known[(WAITING, lane)] for lane in lane_ids]
        if not all(lane.is_fresh(now_ms) for lane in lanes):
            raise LookupError
        found = [first for lane in lanes if (first := lane.first(passed, self.still_waits)) is not None]
        if not found:
            if any(lane.now_ms != now_ms for lane in lanes):  # one may be due by now
                raise LookupError
            return None
        run, piece = min(found, key=lambda each: each[0].ordinal)
        return self.known[(tables.runs.name, run.run_id)], piece

    def still_waits(self, run: Run, piece: Slice) -> bool:
        """Whether a slice waits as when it was read. Raises LookupError if that is not known any more."""
        now: Run = self.known[(tables.runs.name, run.run_id)]
        return now.state in OPEN_RUNS and self.known[(tables.slices.name, piece.run_id, piece.index)] == piece

    def earliest_due_ms(self, lane_id: int) -> int | None:
        """When the first waiting slice of a lane is due; None if none waits."""
        found = self.driver.scalar(queue.earliest_of_lane(), {"lane": lane_id})
        return None if found is None else int(found)

    def gpu_uses(self) -> list[GpuUse]:
        """The use of GPUs: of ended attempts by campaign and hour, and each lease that is held."""
        ended, held = self.rows(queue.gpu_seconds()), self.rows(queue.gpus_held())
        return queue.gpu_uses_from(list(ended), list(held))

    def open_ends(self, campaign_id: str) -> OpenEnds:
        """What keeps a campaign from ending; costs the same for any number of runs."""
        expected: EndsOfCampaign | None = self.known.get((ENDS, campaign_id))
        if expected is not None:
            with suppress(LookupError):
                return expected.now(self.run_has_ended)
        asked = (statements.an_open_run(), statements.a_request(), queue.held_workloads())
        runs, requests, held = self.driver.rows_of([(each, {"campaign_id": campaign_id}) for each in asked])
        return OpenEnds(bool(runs), bool(requests), frozenset(row["workload"] for row in held))

    def run_has_ended(self, run_id: str) -> bool:
        run: Run | None = self.known.get((tables.runs.name, run_id))
        return run is not None and run.state not in OPEN_RUNS

    def held_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with waiting slices that are held."""
        rows = self.driver.rows(queue.held_workloads(), {"campaign_id": campaign_id})
        return {row["workload"] for row in rows}
