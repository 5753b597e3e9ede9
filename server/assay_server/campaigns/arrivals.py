"""Large campaigns come in piece by piece, so that leases and heartbeats have their turn in between.

Nobody sees a campaign before its last piece is there. One comes at a time, so whatever else has begun
was left by a crash, and goes.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assay_sampling.errors import StorageError
from assay_server.access.audit import note_kept_back
from assay_server.campaigns.planning.plan import Plan, next_number
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Campaign, Run, Slice
from assay_server.store.transactions import repeated

# Runs and slices of a piece: its transaction takes some 15 ms.
PIECE_ROWS = 1_000
# A run that goes takes all its slices with it.
_RUNS_GIVEN_UP = 500
# The rest after a piece, as a multiple of its time: others get the writer's lock between two pieces.
_REST = 0.5
_LEAST_REST_SECONDS = 0.002


@dataclass(frozen=True)
class Pace:
    """How large the pieces are, and how to rest between two of them."""

    piece_rows: int = PIECE_ROWS
    rest: Callable[[float], None] = time.sleep

    def is_large(self, plan: Plan) -> bool:
        """Whether a campaign comes in several pieces."""
        return len(plan.runs) + len(plan.slices) > self.piece_rows


ORDINARY = Pace()


class OvertakenError(Exception):
    """The campaign came under its owner's key in another way while its pieces came in; these are given up."""


@dataclass(frozen=True)
class _Piece:
    """Runs with slices; the slices of a run that has very many go on in pieces of their own."""

    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]


@contextlib.contextmanager
def turn(coordinator: Coordinator, pace: Pace) -> Iterator[None]:
    """Wait until no other large campaign comes in, and remove what crashes left of others."""
    with coordinator.arriving:
        _clear(coordinator, pace)
        yield


def clear_arrivals(coordinator: Coordinator, pace: Pace = ORDINARY) -> None:
    """Remove what a crash or a full disk left of campaigns; returns at once while one comes in."""
    if not coordinator.arriving.acquire(blocking=False):
        return
    try:
        _clear(coordinator, pace)
    finally:
        coordinator.arriving.release()


def bring_in(coordinator: Coordinator, campaign: Campaign, plan: Plan, pace: Pace) -> bool:
    """Store a campaign piece by piece; call it in a :func:`turn`. False: its number was taken meanwhile.

    Raises StorageError if the disk refuses a piece, or if this server lost its turn and another one gave the
    campaign up, and OvertakenError if a repeat of the submission was quicker; then nothing of it counts.
    """
    mark = secrets.token_hex(8)
    with note_kept_back():
        if not _begin(coordinator, campaign, mark):
            return False
        for piece in _pieces(plan, pace.piece_rows):
            began = time.monotonic()
            _add(coordinator, campaign.campaign_id, mark, piece)
            pace.rest(max(_LEAST_REST_SECONDS, _REST * (time.monotonic() - began)))
    try:
        _end(coordinator, campaign, mark)
    except OvertakenError:
        _clear(coordinator, pace)
        raise
    return True


@repeated
def _begin(coordinator: Coordinator, campaign: Campaign, mark: str) -> bool:
    with coordinator.schedule() as schedule:
        if campaign.number != next_number(schedule.store.campaign_numbers(campaign.name)):
            return False
        schedule.store.begin_arrival(campaign, mark)
        return True


@repeated
def _add(coordinator: Coordinator, campaign_id: str, mark: str, piece: _Piece) -> None:
    with coordinator.schedule() as schedule:
        if not schedule.store.is_arriving(campaign_id, mark):
            raise _given_up(campaign_id)
        if piece.runs:
            schedule.store.add_runs(piece.runs, piece.slices)
        else:
            first = piece.slices[0]
            schedule.store.replace_slices(first.run_id, first.index, piece.slices)


@repeated
def _end(coordinator: Coordinator, campaign: Campaign, mark: str) -> None:
    """Show a campaign that is there whole; raises OvertakenError if another one came under its key meanwhile.

    A repeat may be small enough to be stored at once: plans change with the times that slices took.
    """
    with coordinator.schedule() as schedule:
        if not schedule.store.is_arriving(campaign.campaign_id, mark):
            raise _given_up(campaign.campaign_id)
        if campaign.submission and schedule.store.submitted_as(campaign.owner, campaign.submission):
            raise OvertakenError  # in the block, so that the audit log gets no entry either
        schedule.end_arrival(campaign.campaign_id)


def _given_up(campaign_id: str) -> StorageError:
    cause = "this server lost the database for a while, and another one gave up what was there of it"
    return StorageError(f"campaign {campaign_id}", cause, "submit it again; nothing of it was kept")


@repeated
def _give_up(coordinator: Coordinator, campaign_id: str) -> bool:
    with coordinator.schedule() as schedule:
        return schedule.store.give_up_arrival(campaign_id, _RUNS_GIVEN_UP)


def _clear(coordinator: Coordinator, pace: Pace) -> None:
    with coordinator.snapshot() as store:
        left = store.arrivals()
    with note_kept_back():
        for campaign_id in left:
            while not _give_up(coordinator, campaign_id):
                pace.rest(_LEAST_REST_SECONDS)


def _pieces(plan: Plan, most_rows: int) -> Iterator[_Piece]:
    """The runs of a plan in order, each with its slices, cut so that no piece has more rows than allowed."""
    of_run: dict[str, list[Slice]] = {}
    for piece in plan.slices:
        of_run.setdefault(piece.run_id, []).append(piece)
    runs: list[Run] = []
    slices: list[Slice] = []
    for run in plan.runs:
        mine = of_run.get(run.run_id, [])
        if runs and len(runs) + len(slices) + 1 + len(mine) > most_rows:
            yield _Piece(tuple(runs), tuple(slices))
            runs, slices = [], []
        with_run = max(1, most_rows - 1)
        runs.append(run)
        slices += mine[:with_run]
        if len(mine) > with_run:
            yield _Piece(tuple(runs), tuple(slices))
            runs, slices = [], []
            for first in range(with_run, len(mine), most_rows):
                yield _Piece((), tuple(mine[first : first + most_rows]))
    if runs:
        yield _Piece(tuple(runs), tuple(slices))
