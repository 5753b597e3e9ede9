"""A server's ingest with its stores on disk, and a lease to send segments under."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim
from assay_core.records.campaign import AttemptState, RunState, Submission
from assay_core.records.lease import FinishedAttempt
from assay_core.records.machine import Inventory, Slot
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.ingest.segments import Answer, Ingest, Upload
from assay_server.campaigns.scheduling.retry import RetryPolicy
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import submit
from assay_server.store.model import Agent
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.made_segments import (
    MadeSegment,
)
from tests.support.server.server_support import HandClock

TEXT = """\
campaign: made
synthetic: {synthetic}
workloads:
  - name: w
    recordings:
      - {{device: V100, light: x}}
      - {{device: A100, light: y}}
"""


class Box:
    """A coordinator over a state directory, with one agent that has leased the first run."""

    def __init__(
        self,
        state: Path,
        *,
        synthetic: bool = False,
        shared: bool = False,
        text: str = TEXT,
        slots: tuple[Slot, ...] = (Slot("0", ("recorded",)), Slot("1", ("recorded",))),
    ) -> None:
        """``shared``: records that others reach."""
        self.state, self.shared = state, shared
        state.mkdir(parents=True, exist_ok=True)
        self.clock = HandClock()
        self.open()
        submit(self.coordinator, Submission(text.format(synthetic=str(synthetic).lower()), "c.yaml", "/data"))
        with self.coordinator.schedule() as schedule:
            schedule.register(Agent("a", "s", "a", Inventory(), slots, 0), {})
        self.key = self.lease()

    def open(self) -> None:
        self.metadata = SqliteStore(self.state / "metadata.sqlite")
        self._begin()

    def _begin(self) -> None:
        policy = SchedulePolicy(1000, RetryPolicy(delay_ms=0))
        records = LocalRecordStore(self.state, shared=self.shared)
        self.coordinator = coordinator_over(self.metadata, records, policy, self.clock)
        self.ingest = Ingest(self.coordinator)
        self.publisher = Publisher(self.coordinator)

    def beside(self, metadata: SqliteStore | None = None) -> Box:
        """The server that takes over on the same database and folder; close its ingest before this box.

        ``metadata``: its own connection to the database, instead of one for both.
        """
        other = copy.copy(self)
        other.metadata = metadata or self.metadata
        other._begin()
        return other

    def close(self) -> None:
        self.ingest.close()
        self.metadata.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def lease(self, slot: str = "0") -> AttemptKey:
        with self.coordinator.schedule() as schedule:
            lease = schedule.lease("a", slot)
        assert lease is not None
        return lease.attempt.key

    def claim(self, key: AttemptKey | None = None) -> Claim:
        """What the agent says that was given the lease of this attempt."""
        key = key or self.key
        with self.coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
        return Claim(key, "a", "s", b"" if attempt is None else attempt.write_secret)

    def send(self, segment: MadeSegment | Upload, key: AttemptKey | None = None) -> Answer:
        upload = segment if isinstance(segment, Upload) else segment.upload(self.claim(key))
        return self.ingest.take(upload).result(timeout=20)

    def refused(self, segment: MadeSegment | Upload, key: AttemptKey | None = None) -> str:
        answer = self.send(segment, key)
        assert answer.refusal is not None
        return f"{answer.refusal.failure_class}: {answer.refusal.cause}"

    def state_of(self, key: AttemptKey | None = None) -> AttemptState:
        key = key or self.key
        with self.coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
        assert attempt is not None
        return attempt.state

    def finish(self, segments: int, launches: int) -> bool:
        return self.publisher.finish(FinishedAttempt(self.claim(), segments, launches, (), AttemptLog()))

    def refused_at_the_finish(self, *segments: MadeSegment, before: Callable[[], None] | None = None) -> str:
        """Send segments that are taken, and an attempt that is not published; ``before`` it is finished."""
        assert all(self.send(segment) == Answer() for segment in segments)
        if before is not None:
            before()
        assert not self.finish(len(segments), sum(segment.launches for segment in segments))
        with self.coordinator.snapshot() as store:
            attempt = store.attempt(self.key.run_id, self.key.slice_index, self.key.attempt)
        assert attempt is not None and attempt.failure is not None
        return f"{attempt.failure.failure_class}: {attempt.failure.cause}"

    def run_state(self) -> RunState:
        """The state of the leased run."""
        with self.coordinator.snapshot() as store:
            run = store.run(self.key.run_id)
        assert run is not None
        return run.state
