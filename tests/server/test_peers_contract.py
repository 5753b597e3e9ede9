"""What servers side by side promise each other: one suite over one process and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import pytest

from assay_server.peers.interface import MOST_BYTES, Hub, Peers, PeersInProcess
from assay_server.peers.postgresql import PostgresqlPeers
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.postgresql_server import StoreInSchema, place_in_schema, server_url
from tests.support.server.server_support import eventually


@dataclass
class Bench:
    """Two servers and the store that they write in."""

    store: MetadataStore
    first: Peers
    second: Peers

    def tell(self, peers: Peers, *news: str) -> None:
        with self.store.transaction() as write:
            peers.tell(write, news)
        peers.told(news)


def in_process(folder: Path) -> Bench:
    hub = Hub()
    return Bench(SqliteStore(folder / "metadata.sqlite"), PeersInProcess(hub), PeersInProcess(hub))


def in_postgresql(_folder: Path) -> Bench:
    store = StoreInSchema()
    place = place_in_schema(store.schema)
    return Bench(store, PostgresqlPeers(place, shared=True), PostgresqlPeers(place, shared=True))


PEERS: dict[str, Callable[[Path], Bench]] = {"one process": in_process}
if server_url():
    PEERS["postgresql"] = in_postgresql


@pytest.fixture(params=PEERS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = PEERS[request.param](tmp_path)
    yield made
    made.first.close()
    made.second.close()
    made.store.close()


def test_what_a_durable_transaction_told_all_hear_in_order(bench: Bench) -> None:
    heard: list[Queue[str | None]] = [Queue(), Queue()]
    hostile = "a'; DROP TABLE runs; -- \\ \u2603 " + "x" * (MOST_BYTES - 60)
    with ExitStack() as listening:
        for peers, queue in zip((bench.first, bench.second), heard, strict=True):
            listening.enter_context(peers.listening(queue.put))
        bench.tell(bench.first, "one", hostile)
        bench.tell(bench.second, "two")
        for queue in heard:
            assert [queue.get(timeout=20) for _ in range(3)] == ["one", hostile, "two"]


def test_nobody_hears_of_a_transaction_that_was_undone(bench: Bench) -> None:
    heard: Queue[str | None] = Queue()
    with bench.second.listening(heard.put):
        with pytest.raises(ZeroDivisionError), bench.store.transaction() as write:
            bench.first.tell(write, ["undone"])
            raise ZeroDivisionError
        bench.tell(bench.first, "done")
        assert heard.get(timeout=20) == "done"


def test_a_name_is_held_by_one_server_until_its_block_ends(bench: Bench) -> None:
    with bench.first.holding(["a", "b"]) as mine:
        assert mine == {"a", "b"}
        with bench.second.holding(["b", "c"]) as others:
            assert others == {"c"}
            with bench.first.holding(["c"]) as again:
                assert again == frozenset()
    with bench.second.holding(["a", "b"]) as later:
        assert later == {"a", "b"}


def test_a_server_that_left_holds_nothing(bench: Bench) -> None:
    held = bench.first.holding(["a"])
    assert held.__enter__() == {"a"}
    bench.first.close()  # as a kill ends its connection

    def is_free() -> bool:
        with bench.second.holding(["a"]) as mine:
            return bool(mine)

    if isinstance(bench.first, PostgresqlPeers):  # the database notices a moment later
        eventually(is_free, "the end of the lock")


def test_only_the_first_server_is_alone_and_the_next_one_waits_for_it(bench: Bench) -> None:
    said: Queue[bool] = Queue()

    def join() -> None:
        with bench.second.joining() as alone:
            said.put(alone)

    with bench.first.joining() as alone:
        assert alone
        thread = threading.Thread(target=join)
        thread.start()
        assert said.empty()  # it has to wait, however long this takes
    thread.join(timeout=60)
    assert said.get_nowait() is False
    bench.second.close()
    with PeersInProcess(Hub()).joining() as lonely:
        assert lonely


def test_the_time_is_that_of_the_database_where_there_is_one(bench: Bench) -> None:
    times = [each.now_ms() for each in (bench.first, bench.second, bench.first)]
    known = [each for each in times if each is not None]
    assert known in ([], sorted(times, key=lambda each: each or 0))
