"""The load of one server process: leases, heartbeats and ends of attempts, and how long each took.

    python -m tests.bench.scale.transactions PLACE AGENTS SECONDS

PLACE: a folder with a SQLite file, or the URL of a PostgreSQL database; the campaign and all agents are there
already. So many AGENTS ask, each in a thread of its own, for so many SECONDS.
Each agent works a little first, so that what is made once (statements, connections) is made. Then the
process prints "ready", waits for a line, and prints one JSON document: seconds by the kind of transaction,
and its CPU seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.lease import AttemptProgress, Heartbeat
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.database.opening import opened_alone
from assay_server.places import DATABASE_SCHEME, database_place
from assay_server.store.model import PublishedFile, Segment
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over

LEASE, HEARTBEAT, SEGMENT, FINISH, PUBLISH = KINDS = "lease", "heartbeat", "segment", "finish", "publish"
_LAUNCHES, _BYTES = 50, 3_000
ROUNDS_BEFORE = 3


def opened(place: str) -> MetadataStore:
    """The store of a place, for one process at a time."""
    if place.startswith(DATABASE_SCHEME):
        return opened_alone(database_place(place))
    return SqliteStore(Path(place) / "metadata.sqlite")


class Load:
    """Agents of one process that work until ``goes_on`` says no, which is asked before each lease."""

    def __init__(
        self, coordinator: Coordinator, heartbeats: Heartbeats, agents: range, goes_on: Callable[[], bool]
    ) -> None:
        self._coordinator, self._heartbeats = coordinator, heartbeats
        self._agents, self._goes_on = agents, goes_on
        self.seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def work(self, threads: int) -> None:
        """Share the agents out among threads; returns when all of them have ended."""
        workers = [
            threading.Thread(target=self._play, args=(self._agents[number::threads],))
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _play(self, agents: range) -> None:
        while True:
            for number in agents:
                if not self._goes_on():
                    return
                self._one(number)

    def _one(self, number: int) -> None:
        agent_id = f"agent-{number}"
        with self.timed(LEASE), self._coordinator.schedule() as schedule:
            assert schedule.is_registered(agent_id, "session")
            lease = schedule.lease(agent_id, f"GPU-{number}")
        assert lease is not None
        key = lease.attempt.key
        with self.timed(HEARTBEAT):
            self._beat(agent_id, lease)
        segment = Segment(key.run_id, key.slice_index, key.attempt, 0, 0, _LAUNCHES, 100, _BYTES, b"n", b"h")
        with self.timed(SEGMENT), self._coordinator.schedule() as schedule:
            schedule.add_segments([segment], key)
        with self.timed(FINISH), self._coordinator.schedule() as schedule:
            schedule.begin_publish(key, 1, _LAUNCHES, (), AttemptLog())
        with self.timed(PUBLISH):
            self._publish(key)

    def _beat(self, agent_id: str, lease: Lease) -> None:
        attempt = lease.attempt
        told = AttemptProgress(attempt.key, 0, attempt.write_secret)
        answer = self._heartbeats.take(Heartbeat(agent_id, "session", (told,))).result()
        assert not answer.drop and not answer.register_again

    def _publish(self, key: AttemptKey) -> None:
        file = PublishedFile(f"{key.run_id}/{key.slice_index}", 5, _LAUNCHES, "hash")
        with self._coordinator.schedule() as schedule:
            assert schedule.end_publish(key, file)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Note how long a call takes."""
        began = time.perf_counter()
        yield
        self.seconds[kind].append(time.perf_counter() - began)


def main() -> None:
    """One process."""
    place, agents, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    store = opened(place)
    folder = Path(place) if not place.startswith(DATABASE_SCHEME) else Path.cwd()
    coordinator = coordinator_over(store, LocalRecordStore(folder), SchedulePolicy(), SteadyClock())
    with ExitStack() as stack:
        stack.callback(store.close)
        heartbeats = Heartbeats(coordinator)
        stack.callback(heartbeats.close)
        agents_here = range(agents)
        before = iter(range(ROUNDS_BEFORE * agents))
        Load(coordinator, heartbeats, agents_here, lambda: next(before, None) is not None).work(agents)
        print("ready", flush=True)
        sys.stdin.readline()
        began, cpu = time.perf_counter(), time.process_time()
        load = Load(coordinator, heartbeats, agents_here, lambda: time.perf_counter() - began < seconds)
        load.work(agents)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"seconds": load.seconds, "took": took, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
