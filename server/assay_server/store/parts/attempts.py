"""Attempts at slices in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure
from assay_core.records.runs_request import RunsRequest
from assay_server.store import statements, tables
from assay_server.store.connections.prepared import Question
from assay_server.store.connections.remembered import DONE_WITH
from assay_server.store.model import ACTIVE_ATTEMPTS, Agent, AgentSession, Attempt
from assay_server.store.parts.tokens import TokenRows
from assay_server.store.rows import deleting, heartbeats, held, selected_runs
from assay_server.store.values.attempts import attempt_of, attempt_values
from assay_server.store.values.fields import Row, failure_of

# What is known by slice and by slot is a list.
OF_SLICE = "attempts of a slice"
OF_SLOT = "leases of a slot"


class AttemptRows(TokenRows):
    """Attempts at slices in SQL."""

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None:
        return self.by_key(tables.attempts, (run_id, slice_index, attempt), attempt_of)

    def next_attempt(self, run_id: str, slice_index: int) -> tuple[list[Attempt], int]:
        """The attempts at a slice so far, and the token of the next one, as :meth:`next_token` gives it."""
        if self.reserved:
            return self.attempts(run_id, slice_index), self.reserved.pop(0)
        place = {"run_id": run_id, "slice": slice_index}
        earlier, token = self.driver.rows_of(
            [(statements.attempts_of(tuple(place)), place), (statements.advance_token(), {})]
        )
        return self.attempts_known(earlier), self.first_unless(token)

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        """The attempts of a run or of one of its slices, in the order of slice and attempt."""
        if slice_index is None:
            return self.attempts_known(
                self.driver.rows(statements.attempts_of(("run_id",)), {"run_id": run_id})
            )
        known: list[Attempt] | None = self.known.get((OF_SLICE, run_id, slice_index))
        if known is None:
            given = {"run_id": run_id, "slice": slice_index}
            known = self.attempts_known(self.driver.rows(statements.attempts_of(tuple(given)), given))
            self.known[(OF_SLICE, run_id, slice_index)] = known
        return list(known)

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        """Attempts in one of these states, in the order of their tokens."""
        wanted = {"agent_id": agent_id, "slot_id": slot_id, "lease_ended_before_ms": lease_ended_before_ms}
        given = {name: value for name, value in wanted.items() if value is not None}
        leased: list[Attempt] | None = self.known.get((OF_SLOT, agent_id, slot_id))
        if leased is not None and tuple(states) == (AttemptState.LEASED,) and lease_ended_before_ms is None:
            return list(leased)
        if agent_id is not None and tuple(states) == (AttemptState.LEASED,):
            return self.attempts_known(self.driver.rows(statements.leases_of(tuple(given)), given))
        rows = self.rows(statements.attempts_in(tuple(given)), {"states": [str(s) for s in states], **given})
        return [attempt_of(row) for row in rows]

    def attempts_of(self, run_ids: Sequence[str], states: Sequence[AttemptState]) -> list[Attempt]:
        """Attempts of these runs in one of these states, in the order of their tokens."""
        return [attempt_of(row) for row in self.rows(selected_runs.select_attempts_of(run_ids, states))]

    def sessions_and_attempts(
        self, agent_ids: Sequence[str], keys: Sequence[AttemptKey]
    ) -> tuple[dict[str, AgentSession], list[Attempt]]:
        """The current processes of those of these agents that are known, and the attempts with these keys.

        The attempts are in no order; keys without an attempt are left out.
        """
        sessions: dict[str, AgentSession] = {}
        for agent_id in dict.fromkeys(agent_ids):
            agent: Agent | None = self.known.get((tables.agents.name, agent_id))
            if agent is not None:
                sessions[agent_id] = AgentSession(agent.session_id, agent.seen_at_ms)
        agents = [each for each in dict.fromkeys(agent_ids) if each not in sessions]
        asked: list[Question] = [(heartbeats.session(), {"agent_id": each}) for each in agents]
        named = dict.fromkeys(keys)
        wanted = [key for key in named if (tables.attempts.name, *_place_of(key)) not in self.known]
        asked += [(statements.select_of(tables.attempts), held.key_of(key)) for key in wanted]
        answers = self.driver.rows_of(asked) if asked else []
        for agent_id, rows in zip(agents, answers, strict=False):
            if rows:
                sessions[agent_id] = AgentSession(rows[0]["session_id"], rows[0]["seen_at_ms"])
        read = {each.key: each for each in self.attempts_known(list(chain(*answers[len(agents) :])))}
        found = [read.get(key) or self.known.get((tables.attempts.name, *_place_of(key))) for key in named]
        return sessions, [attempt for attempt in found if attempt is not None and attempt.key in named]

    def requested_attempts(self, asked: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        """Attempts of the requested runs in one of these states, in the order of their tokens."""
        return [attempt_of(row) for row in self.rows(selected_runs.select_attempts(asked, states))]

    def untried_from(self, run_id: str) -> int:
        """The index from which on no slice of a run was ever leased."""
        a = tables.attempts.c
        last = self.connection.scalar(sa.select(sa.func.max(a.slice)).where(a.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def seconds_spent(self, run_id: str) -> float:
        """How long all ended attempts of a run ran, with any outcome."""
        return float(self.connection.scalar(statements.seconds_spent(), {"run_id": run_id}) or 0.0)

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        """Slots and failure of all failed attempts of a workload, in the order of their tokens."""
        given = {"campaign_id": campaign_id, "workload": workload}
        rows = self.rows(statements.workload_failures(), given)
        return [((row["slot_id"], *row["gang"]), failure_of(row["failure"])) for row in rows]

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        """When the published attempts of a run were leased (Unix time, ms), and their facts, by slice."""
        rows = self.rows(statements.published_facts(), {"run_id": run_id})
        return [(int(row["leased_at_ms"]), row["facts"]) for row in rows]

    def add_attempt(self, attempt: Attempt) -> None:
        self.driver.write_later(statements.insert_into(tables.attempts), attempt_values(attempt))
        self._keep_attempt(attempt)
        self._list_again(attempt)

    def save_attempt(self, attempt: Attempt) -> None:
        self.save(tables.attempts, _place_of(attempt.key), attempt, attempt_values)
        self._list_again(attempt)
        self._let_go(attempt)

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        """Note that leased attempts live: their leases end later, and they are confirmed.

        ``progress``: with each, how many launches its agent has spooled; the number never falls.
        """
        for key, spooled in progress:
            extended = {"spooled": spooled, "ends_at_ms": lease_ends_at_ms}
            of_one = {statements.KEY + name: value for name, value in held.key_of(key).items()}
            self.driver.write_later(heartbeats.extend_attempt(), of_one | extended)
            known: Attempt | None = self.known.get((tables.attempts.name, *_place_of(key)))
            if known is None:  # a list may have it
                self.known.clear()
                continue
            most_spooled = max(spooled, known.launches_spooled)
            later = replace(
                known, lease_ends_at_ms=lease_ends_at_ms, confirmed=True, launches_spooled=most_spooled
            )
            self._keep_attempt(later)
            self._list_again(later)

    def forget_logs(self, before_ms: int, most: int, told: str) -> int:
        """Replace by ``told`` the logs of attempts without a result of campaigns that ended before then.

        At most ``most`` of them; returns how many it was.
        """
        self.known.clear()
        return deleting.forget_logs(self.connection, before_ms, most, told)

    def _list_again(self, attempt: Attempt) -> None:
        """Bring the known lists in line that have an attempt, or have it from now on."""
        key = attempt.key
        slot = (OF_SLOT, attempt.agent_id, attempt.slot_id)
        self.known.note((tables.attempts.name, *_place_of(key)), slot)
        of_slice: list[Attempt] | None = self.known.get((OF_SLICE, key.run_id, key.slice_index))
        if of_slice is not None:
            others = [each for each in of_slice if each.key.attempt != key.attempt]
            self.known[(OF_SLICE, key.run_id, key.slice_index)] = sorted([*others, attempt], key=_number_of)
        of_slot: list[Attempt] | None = self.known.get(slot)
        if of_slot is not None:
            others = [each for each in of_slot if _place_of(each.key) != _place_of(key)]
            now = [*others, attempt] if attempt.state is AttemptState.LEASED else others
            self.known[slot] = sorted(now, key=_token_of)

    def attempts_known(self, rows: Sequence[Row]) -> list[Attempt]:
        """The attempts of these rows, which need not be read again."""
        found = [attempt_of(row) for row in rows]
        for attempt in found:
            self._keep_attempt(attempt)
        return found

    def _keep_attempt(self, attempt: Attempt) -> None:
        self.keep(tables.attempts, _place_of(attempt.key), attempt)
        self._let_go(attempt)

    def _let_go(self, attempt: Attempt) -> None:
        """Have an attempt that has ended forgotten with the transaction: its log is long."""
        if attempt.state not in ACTIVE_ATTEMPTS:
            of_slice = (OF_SLICE, attempt.key.run_id, attempt.key.slice_index)
            ended = (tables.attempts.name, *_place_of(attempt.key))
            self.known.setdefault(DONE_WITH, []).extend((ended, of_slice))


def _place_of(key: AttemptKey) -> tuple[str, int, int]:
    return key.run_id, key.slice_index, key.attempt


def _number_of(attempt: Attempt) -> int:
    return attempt.key.attempt


def _token_of(attempt: Attempt) -> int:
    return attempt.key.token
