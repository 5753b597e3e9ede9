"""Attempts at slices in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure
from assay_core.records.runs_request import RunsRequest
from assay_server.store import statements, tables
from assay_server.store.model import Attempt
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import deleting, heartbeats, held, selected_runs
from assay_server.store.values.attempts import attempt_of, attempt_values
from assay_server.store.values.fields import Row, failure_of
from assay_server.store.values.runs import run_of
from assay_server.store.values.slices import slice_of

_OF_SLICE = "attempts of a slice"  # what is known by this is a list


class AttemptRows(KnownRows):
    """Attempts at slices in SQL."""

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None:
        return self.by_key(tables.attempts, (run_id, slice_index, attempt), attempt_of)

    def fetch_attempt(self, key: AttemptKey) -> None:
        row = self.driver.first(statements.attempt_in_place(), held.key_of(key))
        if row is None:
            return
        found = statements.parted(row, tables.attempts, tables.slices, tables.runs)
        self._attempts_known([attempt_of(found[0])])
        self.keep(tables.slices, (key.run_id, key.slice_index), slice_of(found[1]))
        self.keep(tables.runs, (key.run_id,), run_of(found[2]))

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        if slice_index is None:
            return self._attempts(self.driver.rows(statements.attempts_of(("run_id",)), {"run_id": run_id}))
        known: list[Attempt] | None = self.known.get((_OF_SLICE, run_id, slice_index))
        if known is None:
            given = {"run_id": run_id, "slice": slice_index}
            known = self._attempts(self.driver.rows(statements.attempts_of(tuple(given)), given))
            self.known[(_OF_SLICE, run_id, slice_index)] = known
        return list(known)

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        lease_ended_before_ms: int | None = None,
    ) -> list[Attempt]:
        wanted = {"agent_id": agent_id, "slot_id": slot_id, "lease_ended_before_ms": lease_ended_before_ms}
        given = {name: value for name, value in wanted.items() if value is not None}
        if agent_id is not None and tuple(states) == (AttemptState.LEASED,):
            return self._attempts(self.driver.rows(statements.leases_of(tuple(given)), given))
        rows = self.rows(statements.attempts_in(tuple(given)), {"states": [str(s) for s in states], **given})
        return [attempt_of(row) for row in rows]

    def attempts_of(self, run_ids: Sequence[str], states: Sequence[AttemptState]) -> list[Attempt]:
        return [attempt_of(row) for row in self.rows(selected_runs.select_attempts_of(run_ids, states))]

    def attempts_by_key(self, keys: Sequence[AttemptKey]) -> list[Attempt]:
        found = [attempt_of(row) for row in heartbeats.attempts_by_key(self.connection, keys)]
        wanted = set(keys)
        return [attempt for attempt in found if attempt.key in wanted]

    def requested_attempts(self, asked: RunsRequest, states: Sequence[AttemptState]) -> list[Attempt]:
        return [attempt_of(row) for row in self.rows(selected_runs.select_attempts(asked, states))]

    def untried_from(self, run_id: str) -> int:
        a = tables.attempts.c
        last = self.connection.scalar(sa.select(sa.func.max(a.slice)).where(a.run_id == run_id))
        return 0 if last is None else int(last) + 1

    def seconds_spent(self, run_id: str) -> float:
        return float(self.connection.scalar(statements.seconds_spent(), {"run_id": run_id}) or 0.0)

    def workload_failures(
        self, campaign_id: str, workload: str
    ) -> list[tuple[tuple[str, ...], Failure | None]]:
        given = {"campaign_id": campaign_id, "workload": workload}
        rows = self.rows(statements.workload_failures(), given)
        return [((row["slot_id"], *row["gang"]), failure_of(row["failure"])) for row in rows]

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        rows = self.rows(statements.published_facts(), {"run_id": run_id})
        return [(int(row["leased_at_ms"]), row["facts"]) for row in rows]

    def add_attempt(self, attempt: Attempt) -> None:
        self.driver.write_later(statements.insert_into(tables.attempts), attempt_values(attempt))
        self.known.pop((_OF_SLICE, attempt.key.run_id, attempt.key.slice_index), None)
        self._attempts_known([attempt])

    def save_attempt(self, attempt: Attempt) -> None:
        key = attempt.key
        self.known.pop((_OF_SLICE, key.run_id, key.slice_index), None)
        self.save(tables.attempts, (key.run_id, key.slice_index, key.attempt), attempt, attempt_values)

    def extend_attempts(self, progress: Sequence[tuple[AttemptKey, int]], lease_ends_at_ms: int) -> None:
        self.known.clear()
        heartbeats.extend_attempts(self.connection, progress, lease_ends_at_ms)

    def forget_logs(self, before_ms: int, most: int, told: str) -> int:
        self.known.clear()
        return deleting.forget_logs(self.connection, before_ms, most, told)

    def _attempts(self, rows: Sequence[Row]) -> list[Attempt]:
        """The attempts of these rows, which need not be read again."""
        found = [attempt_of(row) for row in rows]
        self._attempts_known(found)
        return found

    def _attempts_known(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            key = attempt.key
            self.keep(tables.attempts, (key.run_id, key.slice_index, key.attempt), attempt)
