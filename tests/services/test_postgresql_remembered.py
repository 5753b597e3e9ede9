"""What one transaction on PostgreSQL has read serves the next ones, until somebody else writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from assay_core.records.campaign import AttemptState
from assay_sampling.errors import ParameterError, StorageError
from assay_server.store.connections import shared_commit
from assay_server.store.connections.ended import NothingKeptError
from assay_server.store.model import Attempt, Slice
from assay_server.store.postgresql.messages import Answer, Dumped, Messages, Refused
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import PostgresqlStore
from tests.bench.leases import made_agent
from tests.services.postgresql import OwnPostgresql
from tests.support.server.server_support import eventually
from tests.support.server.stored_values import attempt, campaign, run

ATTEMPT = ("made-1.0000", 0, 1)


def filled(store: PostgresqlStore) -> PostgresqlStore:
    """A store with an attempt, which it has read twice, so that it remembers it."""
    with store.transaction() as write:
        write.put_agent(made_agent(0))
        write.add_campaign(campaign(), [run()], [Slice("made-1.0000", 0)])
        write.add_attempt(attempt())
    for _ in range(3):
        known(store)
    return store


@pytest.fixture
def store(fresh_database: str) -> Iterator[PostgresqlStore]:
    with closing(PostgresqlStore(place_of(fresh_database))) as made:
        yield filled(made)


def known(store: PostgresqlStore) -> Attempt:
    """The attempt as a transaction that writes sees it."""
    with store.transaction() as write:
        found = write.attempt(*ATTEMPT)
        assert found is not None and write.agent("agent-0") is not None
        return found


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that are sent from now on."""
    sent: list[str] = []
    exchanged = Messages.exchanged

    def noted(messages: Messages, commands: Sequence[Dumped]) -> tuple[list[Answer], Refused | None]:
        asked = [text for text, _ in commands if text.startswith("SELECT")]
        sent.extend(text for text in asked if "advisory" not in text and "assay_turns" not in text)
        return exchanged(messages, commands)

    monkeypatch.setattr(Messages, "exchanged", noted)
    return sent


def test_what_is_known_is_not_asked_for_again(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = asked(monkeypatch)
    before = known(store)
    with store.transaction() as write:
        write.save_attempt(replace(before, launches=7))
    assert known(store).launches == 7
    assert sent == []
    with store.snapshot() as read:
        assert read.attempt(*ATTEMPT) == known(store)


def test_an_attempt_that_has_ended_is_let_go_with_its_log(store: PostgresqlStore) -> None:
    before = known(store)
    with store.transaction() as write:
        assert write.attempts(*ATTEMPT[:2]) == [before]
        write.save_attempt(replace(before, state=AttemptState.FAILED))
    assert "FAILED" not in repr(store._remembered.rows)
    assert known(store).state is AttemptState.FAILED
    with store.transaction() as write:
        assert len(write.attempts(*ATTEMPT[:2])) == len(write.attempts("made-1.0000")) == 1
    assert "FAILED" not in repr(store._remembered.rows)  # however it was read


def test_what_another_program_writes_is_seen_at_once(store: PostgresqlStore, fresh_database: str) -> None:
    with closing(PostgresqlStore(place_of(fresh_database))) as other:
        for launches in range(1, 6):
            with other.transaction() as write:
                found = write.attempt(*ATTEMPT)
                assert found is not None
                write.save_attempt(replace(found, launches=launches))
            assert known(store).launches == launches
            assert known(store).launches == launches
        with other.transaction() as write:
            write.forget_agents(0)
            write.delete_runs(["made-1.0000"])
    with store.transaction() as write:
        assert write.attempt(*ATTEMPT) is None and write.agent("agent-0") is None


@pytest.mark.parametrize("meanwhile", [0, 3])
def test_a_program_that_came_and_went_is_noticed(
    store: PostgresqlStore, fresh_database: str, meanwhile: int
) -> None:
    """``meanwhile``: turns of the store after it could have heard that the program came."""
    with closing(PostgresqlStore(place_of(fresh_database))) as other:
        for _ in range(meanwhile):
            known(store)
        with other.transaction() as write:
            found = write.attempt(*ATTEMPT)
            assert found is not None
            write.save_attempt(replace(found, state=AttemptState.FAILED))
    assert known(store).state is AttemptState.FAILED


def test_what_was_undone_is_not_remembered(store: PostgresqlStore) -> None:
    before = known(store)
    with pytest.raises(ParameterError), store.transaction() as write:
        write.save_attempt(replace(before, launches=9))
        raise ParameterError("test", "it changed its mind", "nothing")
    assert known(store) == before
    with pytest.raises(StorageError), store.transaction() as write:
        write.save_attempt(replace(before, launches=9))
        write.driver.later("SELECT 1 / 0", ())
    assert known(store) == before


def test_a_restarted_database_is_read_anew(
    store: PostgresqlStore, fresh_database: str, own_postgresql: OwnPostgresql
) -> None:
    """Somebody may have put a backup in its place meanwhile."""
    before = known(store)
    own_postgresql.stop()
    own_postgresql.start()
    own_postgresql.administrate("UPDATE attempts SET launches = 77", database="fresh")
    assert known(store) == replace(before, launches=77)


def test_who_knew_what_a_failed_member_wrote_does_it_again(
    store: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three share a commit; the last writes of the first fail when those of the third arrive."""
    monkeypatch.setattr(shared_commit, "LONGEST_SECONDS", 60)
    before, first_is_in = known(store), threading.Event()

    def count(place: int) -> str:
        assert place == 0 or first_is_in.wait(10)
        try:
            with store.transaction() as write:
                if place == 0:
                    first_is_in.set()
                    eventually(lambda: store._shared._waiting == 2, "that both wait")
                found = write.attempt(*ATTEMPT)
                assert found is not None
                write.save_attempt(replace(found, launches=found.launches + 1))
                if place == 0:
                    write.driver.later("SELECT 1 / 0", ())
        except NothingKeptError:
            return "again"
        except StorageError:
            return "failed"
        return "done"

    with ThreadPoolExecutor(3) as threads:
        told = list(threads.map(count, range(3)))
    assert told == ["failed", "again", "again"]
    assert known(store) == before
