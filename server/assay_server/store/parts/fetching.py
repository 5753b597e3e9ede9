"""What leases and ends ask for one thing after the other, read in one message, in SQL.

A file answers each question at once; a database server is waited for. So the questions that depend on the
answers to others are only asked together where that saves a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from assay_core.records.attempt import AttemptKey
from assay_server.store import statements, tables
from assay_server.store.connections.prepared import Question
from assay_server.store.model import Attempt, LikelyLeases, Run, SliceState
from assay_server.store.parts.attempts import OF_SLICE, OF_SLOT, AttemptRows
from assay_server.store.parts.known import COURSE, ENDS, STATES_BESIDE, WAITING
from assay_server.store.parts.queue import QueueRows
from assay_server.store.rows import expected, held, queue
from assay_server.store.rows.expected import EndsOfCampaign, WaitingSlices
from assay_server.store.values.agents import agent_of
from assay_server.store.values.fields import Row
from assay_server.store.values.runs import run_of
from assay_server.store.values.slices import slice_of, states_of

_Rows = Sequence[Row]


@dataclass(frozen=True)
class _Wanted:
    """Questions, and who takes the answers to them."""

    questions: Sequence[Question]
    take: Callable[[Sequence[_Rows]], None]


class FetchingRows(QueueRows, AttemptRows):
    """Reads at once what will be asked for, and is not known yet."""

    def _fetch(self, wanted: Sequence[_Wanted]) -> None:
        if not wanted:
            return
        answers = iter(self.driver.rows_of([each for one in wanted for each in one.questions]))
        for one in wanted:
            one.take(list(islice(answers, len(one.questions))))

    def fetch_attempts(self, keys: Sequence[AttemptKey], *, ending: bool = False) -> None:
        """Read attempts, their slices and their runs at once, because all of them will be asked for.

        ``ending``: their slices will be done, so what else that asks for, too.
        """
        wanted = [self._wanted_of(key) for key in keys if not self._is_fetched(key)]
        if ending and keys and self.driver.asks_together:
            wanted += [self._wanted_beside(key) for key in keys if not self._is_known_beside(key)]
            if not self._are_ends_known(keys):
                wanted.append(self._wanted_ends(keys))
        self._fetch(wanted)

    def _is_fetched(self, key: AttemptKey) -> bool:
        place = (key.run_id, key.slice_index)
        wanted = (tables.attempts.name, *place, key.attempt), (tables.slices.name, *place)
        return all(each in self.known for each in (*wanted, (tables.runs.name, key.run_id)))

    def _wanted_of(self, key: AttemptKey) -> _Wanted:
        """An attempt, its slice and its run."""

        def take(answers: Sequence[_Rows]) -> None:
            for row in answers[0]:
                found = statements.parted(row, tables.attempts, tables.slices, tables.runs)
                self.attempts_known([found[0]])
                self.keep(tables.slices, (key.run_id, key.slice_index), slice_of(found[1]))
                self.keep(tables.runs, (key.run_id,), run_of(found[2]))

        return _Wanted([(statements.attempt_in_place(), held.key_of(key))], take)

    def _is_known_beside(self, key: AttemptKey) -> bool:
        return key.slice_index in self.known.get((STATES_BESIDE, key.run_id), {})

    def _wanted_beside(self, key: AttemptKey) -> _Wanted:
        """The states of the other slices of a run."""

        def take(answers: Sequence[_Rows]) -> None:
            of_run: dict[int, frozenset[SliceState]] = self.known.setdefault((STATES_BESIDE, key.run_id), {})
            of_run[key.slice_index] = states_of(answers[0])

        of_slice = {"run_id": key.run_id, "slice": key.slice_index}
        return _Wanted([(statements.states_beside(), of_slice)], take)

    def _are_ends_known(self, keys: Sequence[AttemptKey]) -> bool:
        run: Run | None = self.known.get((tables.runs.name, keys[0].run_id))
        ends: EndsOfCampaign | None = None if run is None else self.known.get((ENDS, run.campaign_id))
        return ends is not None and ends.covers(len(keys), self.run_has_ended)

    def _wanted_ends(self, keys: Sequence[AttemptKey]) -> _Wanted:
        """What decides whether the campaign of the first of these attempts ends."""
        run, most = {"run_id": keys[0].run_id}, len(keys) + 1 + self.ahead

        def take(answers: Sequence[_Rows]) -> None:
            open_runs, requests, held_now = answers
            campaign_id = self.campaign_of(keys[0].run_id)
            if campaign_id is not None:
                ends = EndsOfCampaign(
                    tuple(row["run_id"] for row in open_runs),
                    len(open_runs) == most,
                    bool(requests),
                    frozenset(row["workload"] for row in held_now),
                )
                self.known.expect((ENDS, campaign_id), ends)

        questions: list[Question] = [
            (expected.some_open_runs(), {**run, "most": most}),
            (expected.a_request(), run),
            (expected.held_workloads(), run),
        ]
        return _Wanted(questions, take)

    def fetch_slots(
        self, places: Sequence[tuple[str, str]], likely: Callable[[], Sequence[LikelyLeases]], now_ms: int
    ) -> None:
        """Read agents and what is leased in their slots at once, because it will be asked for.

        ``likely``: what these slots will be given at this moment, for a store where it is worth reading all
        that is asked for it at once, too.
        """
        wanted: list[_Wanted] = []
        for place in places:
            wanted += self._wanted_slot(place)
        if self.driver.asks_together:
            for each in expected.worth_reading(likely()):
                wanted += self._wanted_lease(each, now_ms)
            number = sum(each.number for each in expected.worth_reading(likely()))
            if number > len(self.reserved):
                wanted.append(self._wanted_tokens(number + self.ahead))
        self._fetch(wanted)

    def _wanted_slot(self, place: tuple[str, str]) -> Iterator[_Wanted]:
        """An agent, and the leases of its slot."""
        slot = {"agent_id": place[0], "slot_id": place[1]}

        def take_agent(answers: Sequence[_Rows]) -> None:
            for row in answers[0]:
                self.keep(tables.agents, (row["agent_id"],), agent_of(row))

        def take_leases(answers: Sequence[_Rows]) -> None:
            self.known[(OF_SLOT, *place)] = self.attempts_known(answers[0])

        if (tables.agents.name, place[0]) not in self.known:
            yield _Wanted([(statements.agent_with_labels(), slot)], take_agent)
        if (OF_SLOT, *place) not in self.known:
            yield _Wanted([(statements.leases_of(tuple(slot)), slot)], take_leases)

    def _wanted_tokens(self, number: int) -> _Wanted:
        def take(answers: Sequence[_Rows]) -> None:
            self.reserve(answers[0], number)

        return _Wanted([(statements.advance_tokens(), {"number": number})], take)

    def _wanted_lease(self, likely: LikelyLeases, now_ms: int) -> Iterator[_Wanted]:
        """Whether a campaign runs, and what waits first in its lanes."""
        campaign_id = likely.campaign_id

        def take(answers: Sequence[_Rows]) -> None:
            self.known[(COURSE, campaign_id)] = next(iter(answers[0]), None)

        if self.known.get((COURSE, campaign_id)) is None:
            yield _Wanted([(statements.course_of_campaign(), {"campaign_id": campaign_id})], take)
        for lane in likely.lane_ids:
            if not self._is_lane_known(lane, likely.number, now_ms):
                yield self._wanted_lane(lane, likely.number + self.ahead, now_ms)

    def _is_lane_known(self, lane: int, number: int, now_ms: int) -> bool:
        waiting: WaitingSlices | None = self.known.get((WAITING, lane))
        try:
            return waiting is not None and waiting.covers(number, now_ms, self.still_waits)
        except LookupError:
            return False

    def _wanted_lane(self, lane: int, most: int, now_ms: int) -> _Wanted:
        def take(answers: Sequence[_Rows]) -> None:
            self._expect_waiting(lane, most, answers[0], answers[1], now_ms)

        of_lane = {"lane": lane, "now_ms": now_ms, "most": most}
        return _Wanted(
            [(queue.firsts_of_lane(), of_lane), (queue.attempts_at_firsts_of_lane(), of_lane)], take
        )

    def _expect_waiting(self, lane: int, most: int, firsts: _Rows, attempts: _Rows, now_ms: int) -> None:
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
        self.known.expect((WAITING, lane), WaitingSlices(now_ms, tuple(found), len(found) == most))
