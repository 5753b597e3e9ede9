"""The lead among the servers of a PostgreSQL database: who has it, who takes it over, and who may write."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from assay_sampling.errors import StorageError
from assay_server.database.opening import opened_alone
from assay_server.places import DatabasePlace, database_place
from assay_server.store.postgresql import lead as leads
from assay_server.store.postgresql.lead import LEAD_SECONDS, Lead, LeadLostError, awaited_lead, taken_lead
from assay_server.store.postgresql.store import PostgresqlStore
from tests.chaos.wire import FAIR, Weather, Wire
from tests.services.postgresql import OwnPostgresql
from tests.support.server.server_support import eventually
from tests.support.server.stored_values import campaign, run


@pytest.fixture
def place(fresh_database: str) -> DatabasePlace:
    return database_place(fresh_database)


def expire(url: str) -> None:
    """As if the holder had not renewed its lead for long."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("UPDATE assay_leader SET expires_at = now() - interval '1 s'")


def silenced(lead: Lead) -> Lead:
    """Stands still: it renews nothing, and leaves nothing."""
    lead._ending.set()
    lead._thread.join()
    return lead


def campaigns_of(url: str) -> list[str]:
    with psycopg.connect(url) as admin:
        return [row[0] for row in admin.execute("SELECT campaign_id FROM campaigns ORDER BY campaign_id")]


def add(store: PostgresqlStore, number: int) -> None:
    name = f"made-{number}"
    with store.transaction() as write:
        write.add_campaign(campaign(name, number), [run(0, name)], [])


def test_one_server_has_the_lead_and_another_is_told_whose_it_is(place: DatabasePlace) -> None:
    first = taken_lead(place)
    with pytest.raises(StorageError, match=r"another assay-server uses this database \(.*, process \d+\)"):
        taken_lead(place)
    first.release()
    second = taken_lead(place)  # at once, for it was left
    second.release()


def test_the_lead_of_a_killed_server_is_free_once_it_has_expired(place: DatabasePlace) -> None:
    silenced(taken_lead(place))
    began = time.monotonic()
    second = taken_lead(place)
    assert LEAD_SECONDS - 1 < time.monotonic() - began < LEAD_SECONDS + 2
    second.release()


def test_a_standby_takes_over_from_a_killed_server_within_ten_seconds(place: DatabasePlace) -> None:
    silenced(taken_lead(place))
    began = time.monotonic()
    second = awaited_lead(place, lambda: False)
    assert second is not None
    assert time.monotonic() - began < 10
    second.release()


def test_a_standby_takes_a_lead_that_was_left_at_its_next_look(place: DatabasePlace) -> None:
    first = taken_lead(place)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(awaited_lead, place, lambda: False)
        time.sleep(LEAD_SECONDS + 1)
        assert not waiting.done(), "it is renewed"
        began = time.monotonic()
        first.release()
        second = waiting.result(20)
    assert time.monotonic() - began < 2
    assert second is not None
    second.release()


def test_a_standby_that_is_asked_to_end_has_no_lead(place: DatabasePlace) -> None:
    first = taken_lead(place)
    assert awaited_lead(place, lambda: True) is None
    first.release()


def test_whoever_lost_the_lead_hears_of_it_and_writes_nothing(
    place: DatabasePlace, fresh_database: str
) -> None:
    with closing(opened_alone(place)) as old:
        add(old, 1)
        assert old.lead is not None
        lost: list[StorageError] = []
        silenced(old.lead).on_lost = lost.append
        expire(fresh_database)
        with closing(opened_alone(place)) as new:
            add(new, 2)
            for _ in range(2):
                with pytest.raises(LeadLostError, match="another assay-server leads this database now"):
                    add(old, 3)
            with old.snapshot() as read:
                assert len(read.campaigns()) == 2, "it may still look"
            with old.transaction() as write:
                write.sessions(["a"])  # nothing was written
            add(new, 4)
    assert len(lost) == 1 and isinstance(lost[0], LeadLostError)
    assert campaigns_of(fresh_database) == ["made-1", "made-2", "made-4"]


def test_a_renewal_that_comes_too_late_ends_the_server_by_itself(
    place: DatabasePlace, fresh_database: str
) -> None:
    first, heard = taken_lead(place), threading.Event()
    first.on_lost = lambda error: heard.set()
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("UPDATE assay_leader SET epoch = epoch + 1")
    assert heard.wait(10)
    first.release()


def test_a_transaction_that_stands_still_is_ended_by_the_takeover_and_keeps_nothing(
    place: DatabasePlace, fresh_database: str
) -> None:
    """A server that was stopped, or cut off, in the middle of one holds the writer's lock."""
    with closing(opened_alone(place)) as old, pytest.raises(StorageError), old.transaction() as write:
        write.add_campaign(campaign("made-1"), [run(0, "made-1")], [])
        assert old.lead is not None
        silenced(old.lead)
        expire(fresh_database)
        with closing(opened_alone(place)) as new:
            add(new, 2)
    assert campaigns_of(fresh_database) == ["made-2"]


def test_a_takeover_waits_for_a_commit_that_has_locked_its_epoch(
    place: DatabasePlace, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the epoch and the commit nobody else leads."""
    monkeypatch.setattr(leads, "END_WRITERS", "SELECT 1")  # else the transaction would be ended
    with closing(opened_alone(place)) as old:
        assert old.lead is not None
        epoch = silenced(old.lead)._epoch
        with psycopg.connect(fresh_database) as committing, ThreadPoolExecutor(1) as threads:
            committing.execute("SELECT FROM assay_leader WHERE epoch = %s FOR KEY SHARE", (epoch,))
            expire(fresh_database)
            taking = threads.submit(taken_lead, place)
            time.sleep(0.5)
            assert not taking.done()
            committing.commit()
            new = taking.result(20)
        assert new._epoch == epoch + 1
        new.release()


def test_renewals_do_not_wait_for_a_writer(place: DatabasePlace, fresh_database: str) -> None:
    first = taken_lead(place)
    with psycopg.connect(fresh_database) as writing:
        writing.execute("SELECT FROM assay_leader WHERE epoch = %s FOR KEY SHARE", (first._epoch,))
        with psycopg.connect(fresh_database, autocommit=True) as looking:
            [(before,)] = looking.execute("SELECT expires_at FROM assay_leader").fetchall()
            eventually(
                lambda: looking.execute("SELECT expires_at FROM assay_leader").fetchall()[0][0] > before,
                "a renewal",
            )
    first.release()


def test_a_leader_keeps_its_lead_over_a_restart_of_the_database_though_others_stand_by(
    own_postgresql: OwnPostgresql, place: DatabasePlace
) -> None:
    ending = threading.Event()
    with closing(opened_alone(place)) as store, ThreadPoolExecutor(1) as threads:
        assert store.lead is not None
        lost: list[StorageError] = []
        store.lead.on_lost = lost.append
        waiting = threads.submit(awaited_lead, place, ending.is_set)
        time.sleep(1.5)
        assert waiting.running()
        own_postgresql.kill()
        time.sleep(LEAD_SECONDS + 1)
        own_postgresql.start()
        time.sleep(3)
        add(store, 1)
        ending.set()
        assert waiting.result(20) is None
        assert lost == []


def test_a_server_that_the_database_cannot_be_reached_from_is_followed_and_writes_nothing_afterwards(
    place: DatabasePlace, fresh_database: str
) -> None:
    assert place.url.port is not None
    wire = Wire(place.url.port, seed=1)
    try:
        behind = DatabasePlace(place.url.set(port=wire.port))
        with closing(opened_alone(behind)) as old:
            add(old, 1)
            assert old.lead is not None
            heard = threading.Event()
            old.lead.on_lost = lambda error: heard.set()
            wire.set(Weather(held=True))  # nothing passes, and nobody is told
            began = time.monotonic()
            new = awaited_lead(place, lambda: False)
            assert new is not None and time.monotonic() - began < 10
            with closing(PostgresqlStore(place, lead=new)) as store:
                add(store, 2)
                wire.set(FAIR)
                assert heard.wait(20)
                with pytest.raises(StorageError):
                    add(old, 3)
                add(store, 4)
    finally:
        wire.close()
    assert campaigns_of(fresh_database) == ["made-1", "made-2", "made-4"]
