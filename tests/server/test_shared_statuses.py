"""Watchers of one campaign share its statuses: made once for all, and never older than their pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from assay_core.records.campaign import CampaignState, CampaignStatus
from assay_server.rpc.changes import Changes, campaign_topic
from assay_server.rpc.watching.shared import Made, Pace, SharedStatuses


class Board:
    """Makes statuses with 1, 2, 3, ... finished runs."""

    def __init__(self) -> None:
        self.made = 0

    async def make(self) -> CampaignStatus:
        self.made = number = self.made + 1
        await asyncio.sleep(0)  # others ask meanwhile
        return CampaignStatus(campaign_id="c-1", name="c", state=CampaignState.RUNNING, runs_done=number)


def play(course: Callable[[Board, SharedStatuses, Changes], Coroutine[Any, Any, None]], pace: Pace) -> Board:
    board, changes = Board(), Changes()

    async def on_a_loop() -> None:
        changes.attach(asyncio.get_running_loop())
        await asyncio.wait_for(course(board, SharedStatuses(changes), changes), 60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay_server.rpc.watching.shared.PACE", pace)
        asyncio.run(on_a_loop())
    return board


def done(made: Made) -> int:
    return made.status.runs_done


def test_watchers_who_ask_together_get_one_status_and_one_message() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        with shared.watching("c-1") as one, shared.watching("c-1") as two, shared.watching("c-2") as other:
            first, second, third = await asyncio.gather(*(w.next(board.make) for w in (one, two, other)))
        assert first is second and first.message.runs_done == done(first)
        assert done(third) != done(first)

    assert play(course, Pace(least_seconds=3_600.0)).made == 2


def test_in_the_pause_a_newcomer_gets_the_last_one_and_whoever_has_it_a_new_one() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        with shared.watching("c-1") as one, shared.watching("c-1") as two:
            assert [done(await one.next(board.make)), done(await two.next(board.make))] == [1, 1]
            assert [done(await one.next(board.make)), done(await two.next(board.make))] == [2, 2]

    assert play(course, Pace(least_seconds=3_600.0)).made == 2


def test_after_the_pause_there_is_a_new_one() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        with shared.watching("c-1") as one, shared.watching("c-1") as two:
            assert done(await one.next(board.make)) == 1
            assert done(await two.next(board.make)) == 2

    play(course, Pace(least_seconds=0.0, rest=0.0))


def test_news_that_a_shared_status_lacks_end_the_rest_at_once() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        with shared.watching("c-1") as one, shared.watching("c-1") as two:
            await one.next(board.make)
            changes.announce([campaign_topic("c-1")])
            await asyncio.sleep(0)
            assert done(await two.next(board.make)) == 1
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(changes, "rest", lambda seconds: asyncio.sleep(0))  # the pause is over
                await two.rest()  # or this takes the hour of the poll

    play(course, Pace(poll_seconds=3_600.0, least_seconds=3_600.0))


def test_a_watcher_who_goes_away_while_a_status_is_made_takes_it_from_nobody() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        async def never() -> CampaignStatus:
            await asyncio.Event().wait()
            raise AssertionError

        with shared.watching("c-1") as one, shared.watching("c-1") as two:
            gone = asyncio.create_task(one.next(never))
            waiting = asyncio.create_task(two.next(board.make))
            await asyncio.sleep(0)
            gone.cancel()
            assert done(await waiting) == 1

    play(course, Pace())


def test_nothing_is_kept_of_a_campaign_that_nobody_watches() -> None:
    async def course(board: Board, shared: SharedStatuses, changes: Changes) -> None:
        with shared.watching("c-1") as one:
            with shared.watching("c-1") as two:
                await two.next(board.make)
            assert done(await one.next(board.make)) == 1
        with shared.watching("c-1") as later:
            assert done(await later.next(board.make)) == 2

    play(course, Pace(least_seconds=3_600.0))


@pytest.mark.parametrize(("took", "pause"), [(0.001, 0.1), (0.2, 2.0), (9.0, 5.0)])
def test_the_pause_is_a_multiple_of_what_a_status_takes_within_bounds(took: float, pause: float) -> None:
    assert Pace().pause(took) == pause
