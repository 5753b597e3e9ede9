"""What leases and ends ask for one thing after the other, read in one message, in SQL.

A file answers each question at once; a database server is waited for. So the questions that depend on the
answers to others are only asked together where that saves a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from assay_core.records.attempt import AttemptKey
from assay_server.store import statements, tables
from assay_server.store.connections.prepared import Question
from assay_server.store.model import Attempt, LikelyLeases, SliceState
from assay_server.store.parts.attempts import OF_SLICE, OF_SLOT, AttemptRows
from assay_server.store.parts.known import COURSE, ENDS, STATES_BESIDE, WAITING
from assay_server.store.parts.queue import QueueRows
from assay_server.store.rows import expected, held, queue
from assay_server.store.values.agents import agent_of
from assay_server.store.values.fields import Row
from assay_server.store.values.runs import run_of
from assay_server.store.values.slices import slice_of, states_of

_Answers = Sequence[Sequence[Row]]


class FetchingRows(QueueRows, AttemptRows):
    """Reads at once what will be asked for."""

    def fetch_attempts(self, keys: Sequence[AttemptKey], *, ending: bool = False) -> None:
        keys = [key for key in keys if not self._is_fetched(key)]
        if not keys:
            return
        asked: list[Question] = [(statements.attempt_in_place(), held.key_of(key)) for key in keys]
        more = self._asked_at_ends(keys) if ending and self.driver.asks_together else []
        answers = self.driver.rows_of([*asked, *more])
        for row in chain.from_iterable(answers[: len(asked)]):
            found = statements.parted(row, tables.attempts, tables.slices, tables.runs)
            [attempt] = self.attempts_known([found[0]])
            self.keep(tables.slices, (attempt.key.run_id, attempt.key.slice_index), slice_of(found[1]))
            self.keep(tables.runs, (attempt.key.run_id,), run_of(found[2]))
        if more:
            self._expect_ends(keys, answers[len(asked) :])

    def _is_fetched(self, key: AttemptKey) -> bool:
        place = (key.run_id, key.slice_index)
        wanted = (tables.attempts.name, *place, key.attempt), (tables.slices.name, *place)
        return all(each in self.known for each in (*wanted, (tables.runs.name, key.run_id)))

    @staticmethod
    def _asked_at_ends(keys: Sequence[AttemptKey]) -> list[Question]:
        """Questions about the ends of slices, and about the campaign of the first of them."""
        run = {"run_id": keys[0].run_id}
        beside = [
            (statements.states_beside(), {"run_id": key.run_id, "slice": key.slice_index}) for key in keys
        ]
        return [
            *beside,
            (expected.some_open_runs(), {**run, "most": len(keys) + 1}),
            (expected.a_request(), run),
            (expected.held_workloads(), run),
        ]

    def _expect_ends(self, keys: Sequence[AttemptKey], answers: _Answers) -> None:
        *beside, open_runs, requests, held_now = answers
        for key, states in zip(keys, beside, strict=True):
            of_run: dict[int, frozenset[SliceState]] = self.known.setdefault((STATES_BESIDE, key.run_id), {})
            of_run[key.slice_index] = states_of(states)
        campaign_id = self.campaign_of(keys[0].run_id)
        if campaign_id is not None:
            self.known[(ENDS, campaign_id)] = expected.EndsOfCampaign(
                tuple(row["run_id"] for row in open_runs),
                len(open_runs) > len(keys),
                bool(requests),
                frozenset(row["workload"] for row in held_now),
            )

    def fetch_slots(
        self, places: Sequence[tuple[str, str]], likely: Callable[[], Sequence[LikelyLeases]], now_ms: int
    ) -> None:
        asked: list[Question] = []
        for agent_id, slot_id in places:
            slot = {"agent_id": agent_id, "slot_id": slot_id}
            asked += [(statements.agent_with_labels(), slot), (statements.leases_of(tuple(slot)), slot)]
        leases = expected.worth_reading(likely()) if self.driver.asks_together else []
        more = _asked_for(leases, now_ms)
        answers = self.driver.rows_of([*asked, *more])
        ours = answers[: len(asked)]
        for place, agents, of_slot in zip(places, ours[::2], ours[1::2], strict=True):
            for row in agents:
                self.keep(tables.agents, (row["agent_id"],), agent_of(row))
            self.known[(OF_SLOT, *place)] = self.attempts_known(of_slot)
        if leases:
            self._expect_leases(leases, answers[len(asked) :], now_ms)

    def _expect_leases(self, leases: Sequence[LikelyLeases], answers: _Answers, now_ms: int) -> None:
        left = iter(answers)
        tokens, number = next(left), sum(each.number for each in leases)
        self.reserve(tokens, number)
        for each in leases:
            self.known[(COURSE, each.campaign_id)] = next(iter(next(left)), None)
            for lane in each.lane_ids:
                self._expect_waiting(lane, each.number, next(left), next(left), now_ms)

    def _expect_waiting(
        self, lane: int, most: int, firsts: Sequence[Row], attempts: Sequence[Row], now_ms: int
    ) -> None:
        # Whole lists are kept: whatever is kept may make room by forgetting all that was kept before.
        tried: dict[tuple[str, int], list[Attempt]] = {}
        for attempt in self.attempts_known(attempts):
            tried.setdefault((attempt.key.run_id, attempt.key.slice_index), []).append(attempt)
        found = []
        for row in firsts:
            of_slice, of_run = statements.parted(row, tables.slices, tables.runs)
            run, piece = run_of(of_run), slice_of(of_slice)
            place = (piece.run_id, piece.index)
            self.keep(tables.slices, place, piece)
            self.keep(tables.runs, (run.run_id,), run)
            self.known[(OF_SLICE, *place)] = tried.get(place, [])
            found.append((run, piece))
        self.known[(WAITING, lane)] = expected.WaitingSlices(now_ms, tuple(found), len(found) == most)


def _asked_for(leases: Sequence[LikelyLeases], now_ms: int) -> list[Question]:
    """Questions that these leases will ask; their tokens first."""
    if not leases:
        return []
    asked: list[Question] = [(statements.advance_tokens(), {"number": sum(each.number for each in leases)})]
    for each in leases:
        asked.append((statements.course_of_campaign(), {"campaign_id": each.campaign_id}))
        for lane in each.lane_ids:
            of_lane = {"lane": lane, "now_ms": now_ms, "most": each.number}
            asked += [(queue.firsts_of_lane(), of_lane), (queue.attempts_at_firsts_of_lane(), of_lane)]
    return asked
