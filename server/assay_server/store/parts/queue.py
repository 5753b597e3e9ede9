"""What the scheduler asks of the queue, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_server.store import statements, tables
from assay_server.store.model import Entrant, GpuUse, OpenEnds, Run, Slice
from assay_server.store.parts.runs import RunRows, run_of, slice_of
from assay_server.store.rows import queue


class QueueRows(RunRows):
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
        """The first slice in these lanes of a campaign that runs, in its order, that waits and is due.

        ``passed``: runs and slices to leave out. ``untried_in``: agent and slot, to leave out slices that
        have failed there.
        """
        given: dict[str, Any] = {"now_ms": now_ms}
        if passed:
            given["passed"] = list(passed)
        if untried_in:
            given |= {"untried_agent": untried_in[0], "untried_slot": untried_in[1]}
        query = queue.first_of_lane(bool(passed), bool(untried_in))
        # A list of slices in a statement has another length each time, so that only SQLAlchemy can run it.
        rows = self.rows if passed else self.driver.rows
        candidates = [row for lane in lane_ids for row in rows(query, {**given, "lane": lane})]
        if not candidates:
            return None
        first = min(candidates, key=lambda row: int(row["ordinal"]))
        piece = slice_of(first)
        run = run_of({column.name: first[queue.OF_RUN + column.name] for column in tables.runs.c})
        self.keep(tables.slices, (piece.run_id, piece.index), piece)
        return self.keep(tables.runs, (run.run_id,), run), piece

    def is_running(self, campaign_id: str) -> bool:
        """Whether slots may have slices of a campaign: it runs and is not paused."""
        return bool(self.driver.rows(statements.running_campaign(), {"campaign_id": campaign_id}))

    def earliest_due_ms(self, lane_id: int) -> int | None:
        """When the first waiting slice of a lane is due; None if none waits."""
        due_ms = self.driver.scalar(queue.earliest_of_lane(), {"lane": lane_id})
        return None if due_ms is None else int(due_ms)

    def gpu_uses(self) -> list[GpuUse]:
        """The use of GPUs: of ended attempts by campaign and hour, and each lease that is held."""
        ended, held = self.rows(queue.gpu_seconds()), self.rows(queue.gpus_held())
        return queue.gpu_uses_from(list(ended), list(held))

    def open_ends(self, campaign_id: str) -> OpenEnds:
        """What keeps a campaign from ending; costs the same for any number of runs."""
        return OpenEnds(**self.driver.rows(queue.open_ends(), {"campaign_id": campaign_id})[0])

    def held_workloads(self, campaign_id: str) -> set[str]:
        """The workloads of a campaign with waiting slices that are held."""
        rows = self.driver.rows(queue.held_workloads(), {"campaign_id": campaign_id})
        return {row["workload"] for row in rows}
