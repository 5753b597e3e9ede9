"""What servers of one database tell each other of a transaction, and what they make of a text."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.records.attempt import AttemptKey
from assay_core.records.failure import failure
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaign_file.placement import Placement
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.queue import GpuLease
from assay_server.campaigns.scheduling.resting import DoneSlot
from assay_server.campaigns.scheduling.telling.news import is_own, news_of, read_news
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.peers.interface import MOST_BYTES, Hub, PeersInProcess
from assay_server.store.connections.retry import NothingKeptError, OutcomeUnknownError
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import SqlTransaction
from tests.support.server.queue_lab import QueueLab, agent_of, live_campaign

KEY = AttemptKey("c-1.0000", 0, 1, 1 << 60)
DISK_FULL = failure(FailureClass.DISK_FULL, "the spool", "no space is left")
HOUR_MS = 3_600_000


class Two:
    """Two servers on one database; ``heard`` is what the second one made of the first one's news."""

    def __init__(self) -> None:
        agent = agent_of("v100", 3, "a")
        slots = tuple(replace(slot, gangs=True) for slot in agent.slots)
        self.lab = QueueLab(replace(agent, slots=slots))
        self.first = self.lab.coordinator
        self.second = Coordinator(
            self.lab.store,
            LocalRecordStore(Path("unused"), make_folders=False),
            self.lab.policy,
            self.lab.clock,
        )
        hub = Hub()
        for each in (self.first, self.second):
            each.peers = PeersInProcess(hub)
            hub.hearing.append(each.hear)
        self.heard: list[Effects] = []
        self.second.listen(self.heard.append)

    def hours(self, server: Coordinator) -> float:
        """GPU hours used by everybody, as a server's memory has it; it is built by then."""
        with self.lab.store.snapshot() as store:
            return server.queue.person_hours(store, "", self.lab.clock.ms)

    @contextmanager
    def counting(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """Lists each time that the second server reads the database."""
        read: list[str] = []
        snapshot = self.second.snapshot

        def counted() -> object:
            read.append("snapshot")
            return snapshot()

        with monkeypatch.context() as patched:
            patched.setattr(self.second, "snapshot", counted)
            yield read


def round_trip(effects: Effects) -> Effects:
    [text] = news_of(effects, "me")
    told = read_news(text)
    assert told is not None and not told.rested
    return told.effects


def test_leases_and_ends_are_understood_without_a_look_into_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each cost a transaction of three statements on every other server."""
    two = Two()
    two.lab.submit(*live_campaign(1, ["v100", "v100"], placement=Placement(gang=2)))
    assert two.hours(two.first) == two.hours(two.second) == 0
    two.heard.clear()
    with two.counting(monkeypatch) as read:
        assert two.lab.got("a-0") == "c-1.0000"
        two.lab.clock.ms += HOUR_MS
        assert two.hours(two.first) == two.hours(two.second) == 2
        token = two.lab.key_at("a-0").token
        two.lab.finish("a-0")
        two.lab.clock.ms += HOUR_MS
        assert two.hours(two.first) == two.hours(two.second) == 2
    done = [each for effects in two.heard for each in effects.done]
    assert done == [DoneSlot("a", slot_id, token) for slot_id in ("a-0", "a-1")]
    # The gang gave slots back that rivals may want: that is looked at, and nothing else.
    assert len(read) == sum(effects.work for effects in two.heard) == 1


def test_a_slot_rests_at_every_server_until_it_has_done_a_run() -> None:
    two = Two()
    two.lab.submit(*live_campaign(1, ["v100"]))
    two.lab.got("a-0")
    two.lab.fail("a-0", DISK_FULL)
    rests = [each.slots.last("a", "a-0") for each in (two.first, two.second)]
    assert rests[0] == rests[1] is not None
    two.lab.clock.ms += HOUR_MS
    two.lab.got("a-0")
    two.lab.finish("a-0")
    assert [each.slots.last("a", "a-0") for each in (two.first, two.second)] == [None, None]


def test_a_lease_without_a_gpu_is_told_to_nobody() -> None:
    two = Two()
    campaign, runs = live_campaign(1, ["v100"])
    two.lab.submit(campaign, [replace(run, device_key="", command=None) for run in runs])
    two.heard.clear()
    assert two.lab.got("a-0") == "c-1.0000"
    assert not any(effects.leased for effects in two.heard)


def test_news_say_the_same_after_the_way_through_a_text() -> None:
    effects = Effects(
        campaigns={"c-1", "c-2"}, registered={"a"}, refused=["a", "b"], leased=[GpuLease(KEY, "c-1", 4)],
        freed=[KEY], dead=[KEY, replace(KEY, token=7)], done=[DoneSlot("a", "MIG \u2603", 1 << 60)],
        work=True, doubt=True,
    )  # fmt: skip
    assert round_trip(effects) == effects
    assert round_trip(Effects(missed=True)) == Effects(missed=True)
    assert news_of(Effects(), "me") == []


def test_long_news_come_in_several_texts_and_lose_nothing() -> None:
    keys = [AttemptKey(f"campaign-{n}.{n:04d}", n, 1, 1 << 60) for n in range(400)]
    effects = Effects(
        campaigns={f"campaign-{n}" for n in range(400)},
        leased=[GpuLease(key, f"campaign-{n}", n) for n, key in enumerate(keys)],
        freed=keys,
        done=[DoneSlot("b0e1" * 8, f"GPU-{n} \u2603", n) for n in range(400)],
        work=True,
    )
    texts = news_of(effects, "me")
    assert len(texts) > 1 and max(len(text.encode()) for text in texts) <= MOST_BYTES
    read = [told.effects for text in texts if (told := read_news(text)) is not None]
    assert len(read) == len(texts)
    assert [each.work for each in read] == [False] * (len(texts) - 1) + [True]
    together = Effects(work=True)
    for each in read:
        together.campaigns |= each.campaigns
        together.leased += each.leased
        together.freed += each.freed
        together.done += each.done
    assert together == effects
    assert all(is_own(text, "me") and not is_own(text, "you") for text in texts)


@given(st.lists(st.text(max_size=400), max_size=60), st.lists(st.integers(0, (1 << 63) - 1), max_size=200))
def test_no_text_is_longer_than_a_server_can_tell(names: list[str], tokens: list[int]) -> None:
    done = [DoneSlot(name, name, number) for number, name in enumerate(names)]
    leased = [GpuLease(AttemptKey("c" * 200, token, token, token), "c" * 196, token) for token in tokens]
    texts = news_of(Effects(leased=leased, done=done), "f" * 16)
    assert all(len(text.encode()) <= MOST_BYTES for text in texts)


def test_what_no_text_can_say_has_the_others_look_for_themselves() -> None:
    """A name of a slot may be as long as its agent likes; the database refused the whole transaction."""
    [text] = news_of(Effects(done=[DoneSlot("a", "x" * MOST_BYTES, 1)], freed=[KEY]), "me")
    told = read_news(text)
    assert told is not None
    assert told.effects == Effects(freed=[KEY], work=True, doubt=True, missed=True)


def test_a_server_knows_its_own_texts_by_their_beginning() -> None:
    effects = Effects(campaigns={'","from":"me"'}, work=True)
    [text] = news_of(effects, 'm"e')
    assert is_own(text, 'm"e')
    for other in ("m", 'm"', "me", 'm"e"', "", 'm\\"e', '","from":"me'):
        assert not is_own(text, other)


OLD_LEASE = '{"from":"old","leased":[["c-1.0000",0,1,1152921504606846976]],"work":false,"doubt":false}'
NOT_UNDERSTOOD = {
    "a lease as earlier releases told it": OLD_LEASE,
    "an end as earlier releases told it": OLD_LEASE.replace("leased", "done"),
    "what a later release might tell": '{"from":"new","work":true,"moved":["c-1"]}',
    "nothing": "",
    "broken off": OLD_LEASE[:-5],
    "no JSON": "leased c-1.0000",
    "too deep": "[" * 7_000,
    "a list": "[]",
    "no sender": '{"work":true}',
    "a mark that is a number": '{"from":"x","work":1}',
    "a text for a list": '{"from":"x","campaigns":"c-1"}',
    "a number for a name": '{"from":"x","refused":[7]}',
    "a fraction": '{"from":"x","freed":[["c-1.0000",0.5,1,1]]}',
    "a negative number": '{"from":"x","freed":[["c-1.0000",-1,1,1]]}',
    "more than a database keeps": '{"from":"x","rested":[["c-1.0000",0,1,9223372036854775808]]}',
    "a run that leads elsewhere": '{"from":"x","dead":[["../c-1",0,1,1]]}',
    "too much of a slot": '{"from":"x","done":[["a","0",1,1]]}',
}


@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
def test_a_text_that_is_not_understood_counts_as_news_that_did_not_come(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was raised to the thread that listens, and what it told was lost."""
    two = Two()
    for _ in range(3):
        two.second.hear(NOT_UNDERSTOOD[what])
    assert two.heard == [Effects(work=True, doubt=True, missed=True)] * 3
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "not understood" in warning.getMessage() and len(warning.getMessage()) < 500


def test_news_whose_records_cannot_be_read_count_as_news_that_did_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = Two()

    @contextmanager
    def away() -> Iterator[SqlTransaction]:
        raise StorageError("the database", "it is away")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(two.second, "snapshot", away)
        two.lab.register(agent_of("v100", 1, "b"))
    assert two.heard == [Effects(work=True, doubt=True, missed=True)]


@pytest.mark.parametrize("error", [OutcomeUnknownError, NothingKeptError, StorageError])
def test_after_a_commit_whose_outcome_nobody_knows_a_server_looks_for_itself(
    error: type[StorageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it was kept, the others hear of it, and the server itself took the news for known."""
    two = Two()
    two.lab.submit(*live_campaign(1, ["v100"]))
    here: list[Effects] = []
    two.first.listen(here.append)
    assert two.hours(two.first) == 0
    transaction = two.lab.store.transaction

    @contextmanager
    def answer_lost(*, alone: bool = False) -> Iterator[SqlTransaction]:
        with transaction(alone=alone) as write:
            yield write
        raise error("the database", "its answer to a commit was lost")

    with monkeypatch.context() as patched:
        patched.setattr(two.lab.store, "transaction", answer_lost)
        with pytest.raises(error):
            two.lab.got("a-0")
    missed = [Effects(work=True, doubt=True, missed=True)] if error is OutcomeUnknownError else []
    assert here == missed
    two.lab.clock.ms += HOUR_MS
    assert two.hours(two.first) == 1, "the lease counts, for it was kept"
