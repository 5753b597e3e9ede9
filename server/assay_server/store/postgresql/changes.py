"""What is not known any more when another server has written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from assay_server.store import tables
from assay_server.store.connections.noted import EXPECTED, Key, NotedRows
from assay_server.store.parts.attempts import OF_SLICE
from assay_server.store.parts.known import COURSE, ENDS, STATES_BESIDE, WAITING
from assay_server.store.parts.tokens import RESERVED
from assay_server.store.rows.expected import EndsOfCampaign, WaitingSlices


def leave_out(rows: NotedRows, changed: Iterable[Key]) -> None:
    """Remove what has these keys, and what follows from it; others have leased or ended something."""
    rows.pop(RESERVED, None)  # a token that is given later is larger, whoever gives it
    slices, runs = set(), set()
    for key in changed:
        rows.pop(key, None)
        match key:
            case (tables.attempts.name, run_id, index, _):
                rows.pop((OF_SLICE, run_id, index), None)
            case (tables.slices.name, run_id, index):
                rows.pop((STATES_BESIDE, run_id), None)
                slices.add((run_id, index))
            case (tables.runs.name, run_id):
                runs.add(run_id)
            case (tables.campaigns.name, campaign_id):
                rows.pop((COURSE, campaign_id), None)
            case _ if key == EXPECTED:
                rows.drop_expected()
    for key, value in rows.expected():
        if key[0] == WAITING:
            rows[key] = _without_slices(value, slices)
        elif key[0] == ENDS:
            rows[key] = _without_runs(value, runs)


def _without_slices(waiting: WaitingSlices, changed: set[tuple[str, int]]) -> WaitingSlices:
    """Slices that wait again, or newly, are told as such, so those that were changed wait no more."""
    left = tuple(each for each in waiting.found if (each[1].run_id, each[1].index) not in changed)
    return replace(waiting, found=left)


def _without_runs(ends: EndsOfCampaign, changed: set[str]) -> EndsOfCampaign:
    """Whether those that were changed are still open is not known: others than these may be, too."""
    left = tuple(each for each in ends.open_runs if each not in changed)
    return replace(ends, open_runs=left, is_cut=ends.is_cut or len(left) < len(ends.open_runs))
