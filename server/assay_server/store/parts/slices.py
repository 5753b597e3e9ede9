"""Slices of runs, and their places in the queue, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from assay_server.store import statements, tables
from assay_server.store.model import Need, Run, Slice, SliceState, SliceTime, need_of
from assay_server.store.parts.runs import RunRows, command_of, new_run_values, of_need
from assay_server.store.rows import deleting, queue
from assay_server.store.values.fields import Row


class SliceRows(RunRows):
    """Slices of runs, and their places in the queue, in SQL."""

    def slice(self, run_id: str, index: int) -> Slice | None:
        return self.by_key(tables.slices, (run_id, index), slice_of)

    def slices(self, run_id: str) -> list[Slice]:
        return [slice_of(row) for row in self.driver.rows(statements.slices_of(), {"run_id": run_id})]

    def published_slices(self) -> list[Slice]:
        """Every slice of every campaign that has a published file."""
        query = sa.select(*statements.SLICE).where(tables.slices.c.file != "")
        return [slice_of(row) for row in self.rows(query)]

    def published_bytes(self) -> int:
        """The bytes of all published files."""
        return deleting.published_bytes(self.connection)

    def resting_slices(self, now_ms: int) -> list[Slice]:
        """Slices of any campaign that wait but are not yet due."""
        s = tables.slices.c
        query = sa.select(*statements.SLICE).where(
            s.state == str(SliceState.WAITING), s.not_before_ms > now_ms
        )
        return [slice_of(row) for row in self.rows(query.order_by(s.run_id, s.index))]

    def states_beside(self, run_id: str, index: int) -> frozenset[SliceState]:
        """The states of a run's other slices."""
        rows = self.driver.rows(statements.states_beside(), {"run_id": run_id, "slice": index})
        return states_of(rows)

    def slice_times(self, most: int) -> list[SliceTime]:
        """The times of the newest published slices of detailed live runs, of any campaign, newest first."""
        return [slice_time_of(row) for row in self.rows(statements.slice_times(), {"most": most})]

    def save_slice(self, piece: Slice) -> None:
        self.save(tables.slices, (piece.run_id, piece.index), piece, slice_values)

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        """Replace the slices of a run from an index on, none of which was ever tried."""
        s = tables.slices.c
        self.write(sa.delete(tables.slices).where(s.run_id == run_id, s.index >= index))
        run = self.run(run_id)
        self._add_slices(slices, [] if run is None else [run])

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Add runs to existing campaigns."""
        self.known.clear()
        insert = statements.insert_into(tables.runs)
        self.driver.insert_copies(insert, runs, new_run_values, ("run_id", "ordinal", "repeat"))
        self._add_slices(slices, runs)

    def _add_slices(self, slices: Sequence[Slice], runs: Sequence[Run]) -> None:
        """Insert slices of these runs into their lanes."""
        lanes: dict[tuple[int, ...], int] = {}
        places = {}
        for run in runs:
            # Most runs of a campaign share these very objects; to compare them by value takes long.
            bundled = run.command is not None and run.command.bundle is not None
            alike = (bundled, *map(id, of_need(run)))
            if alike not in lanes:
                lanes[alike] = self._lane(run.campaign_id, need_of(run))
            lane = -lanes[alike] if run.holds else lanes[alike]
            places[run.run_id] = {"lane": lane, "ordinal": run.ordinal}
        rows = (slice_values(piece) | places[piece.run_id] for piece in slices)
        self.driver.insert(statements.insert_into(tables.slices), tables.slices.c.keys(), rows)

    def _lane(self, campaign_id: str, need: Need) -> int:
        """The lane of a need in a campaign, made at its first use."""
        lane, values = tables.lanes.c, {"campaign_id": campaign_id, "need": queue.need_text(need)}
        where = (lane.campaign_id == values["campaign_id"], lane.need == values["need"])
        query = sa.select(lane.lane_id).where(*where)
        found = self.connection.scalar(query)
        if found is None:
            self.write(sa.insert(tables.lanes), [values])
            found = self.connection.scalar(query)
        return int(found or 0)


def slice_of(row: Row) -> Slice:
    """The slice of a row that may have other columns too."""
    values = {column.name: row[column.name] for column in statements.SLICE}
    return Slice(**{**values, "state": SliceState(row["state"])})


def slice_values(piece: Slice) -> dict[str, Any]:
    """The row of a slice without its place in the queue."""
    return {**vars(piece), "state": str(piece.state)}


def slice_time_of(row: Row) -> SliceTime:
    """The time of a slice, of a row."""
    values = {**row, "command": command_of(row["command"]), "counters": tuple(row["counters"])}
    return SliceTime(**values)


def states_of(rows: Sequence[Row]) -> frozenset[SliceState]:
    """The states in these rows."""
    return frozenset(SliceState(row["state"]) for row in rows)
