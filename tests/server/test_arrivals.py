"""Large campaigns come in piece by piece: unseen before the last piece, one by one, once for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.identity.roles import Role
from assay_core.records.campaign import CampaignState, RunState, Submission
from assay_core.records.runs import RunsRequest
from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_server.access.audit import AuditedStore, begin_note, forget_note
from assay_server.access.caller import Caller, called_by
from assay_server.app import Server
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.campaigns.submit import Pace, clear_arrivals, submit
from assay_server.store.model import Campaign, Run, Sight, Slice
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction
from assay_server.store.sqlite import SqliteStore
from tests.support.server.coordinators import coordinator_over
from tests.support.server.metadata_stores import METADATA_STORES
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import HandClock, eventually
from tests.support.server.stored_values import campaign, run

# 30 runs of one slice, and one run of 25 slices.
SMALL_RUNS, WINDOWS = 30, 25
TEXT = "campaign: large\nsynthetic: true\ngpus: [V100]\ndetailed: none\nworkloads:\n" + "".join(
    f"  - {{name: w{i}, command: [w{i}.toml]}}\n" for i in range(SMALL_RUNS)
)
SLICED = (
    "campaign: sliced\nsynthetic: true\ngpus: [V100]\n"
    f"detailed: {{first: {WINDOWS * 10}, slice_launches: 10, sets: features}}\n"
    "workloads:\n  - {name: w, command: [w.toml]}\n"
)
SAM = Caller("aa" * 16, "sam", Role.SUBMITTER, "vision")
ROWS = 8


class CrashError(Exception):
    """The server dies here."""


@pytest.fixture(params=METADATA_STORES)
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store = METADATA_STORES[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def no_call() -> Iterator[None]:
    forget_note()
    yield
    forget_note()


class CountingStore:
    """A store that keeps how many rows of runs and slices each transaction wrote."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.rows: list[int] = []
        self.snapshot, self.close = store.snapshot, store.close

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with self._store.transaction() as transaction:
            counted = _Counting(transaction)
            yield counted  # type: ignore[misc]
            self.rows.append(counted.rows)


class _Counting:
    def __init__(self, transaction: SqlTransaction) -> None:
        self._transaction, self.rows = transaction, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def add_campaign(self, made: Campaign, runs: list[Run], slices: list[Slice], arriving: str = "") -> None:
        self.rows += len(runs) + len(slices)
        self._transaction.add_campaign(made, runs, slices, arriving)

    def add_runs(self, runs: list[Run], slices: list[Slice]) -> None:
        self.rows += len(runs) + len(slices)
        self._transaction.add_runs(runs, slices)

    def replace_slices(self, run_id: str, index: int, slices: list[Slice]) -> None:
        self.rows += len(slices)
        self._transaction.replace_slices(run_id, index, slices)


def coordinator_of(metadata: MetadataStore, state: Path) -> Coordinator:
    return coordinator_over(metadata, LocalRecordStore(state), SchedulePolicy(), HandClock())


def sent(text: str = TEXT, key: str = "") -> Submission:
    return Submission(text, "c.yaml", "/data", key=key)


def seen(metadata: MetadataStore) -> dict[str, int]:
    """By campaign that people and slots know of: its runs."""
    with metadata.snapshot() as store:
        listed = [each.campaign_id for each in store.campaigns()]
        assert [each.campaign_id for each in store.entrants()] == listed
        assert sum(store.load().campaigns.values()) == len(listed)
        return {each: len(store.runs(each)) for each in listed}


def resting_at(number: int, then: Callable[[], None]) -> Callable[[float], None]:
    """A rest that does something after a number of pieces."""
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == number:
            then()

    return rest


def crash() -> None:
    raise CrashError


@pytest.mark.parametrize("text", [TEXT, SLICED], ids=["many runs", "a run of many slices"])
def test_what_comes_in_pieces_is_what_comes_at_once(
    text: str, metadata: MetadataStore, tmp_path: Path
) -> None:
    counting = CountingStore(metadata)
    coordinator = coordinator_of(counting, tmp_path)  # type: ignore[arg-type]
    at_once = submit(coordinator, sent(text))
    assert len(counting.rows) == 1
    by_piece = submit(coordinator, sent(text), Pace(ROWS, lambda _: None))
    assert max(counting.rows[1:]) <= ROWS and len(counting.rows) > 4
    assert at_once.runs == by_piece.runs
    with metadata.snapshot() as store:
        first, second = (store.runs(each.campaign_id) for each in (at_once, by_piece))
        assert [replace(r, run_id="", campaign_id="") for r in first] == [
            replace(r, run_id="", campaign_id="") for r in second
        ]
        for one, other in zip(first, second, strict=True):
            assert [replace(s, run_id="") for s in store.slices(one.run_id)] == [
                replace(s, run_id="") for s in store.slices(other.run_id)
            ]
        one_need, other_need = ([lane.need for lane in each.lanes] for each in store.entrants())
        assert one_need == other_need


def test_nobody_sees_a_campaign_before_its_last_piece_and_others_write_between(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    coordinator = coordinator_of(metadata, tmp_path)
    found: list[dict[str, int]] = []

    def look(_seconds: float) -> None:
        found.append(seen(metadata))
        with metadata.transaction() as store:
            store.next_token()

    made = submit(coordinator, sent(), Pace(ROWS, look))
    assert len(found) > 5 and all(each == {} for each in found)
    assert seen(metadata) == {made.campaign_id: SMALL_RUNS} == {"large-1": SMALL_RUNS}
    with metadata.snapshot() as store:
        assert store.arrivals() == []


def test_a_campaign_that_arrives_is_in_no_answer_of_the_store(metadata: MetadataStore) -> None:
    coming = campaign(submission="a key", owner="sam", project="vision")
    with metadata.transaction() as store:
        store.add_campaign(coming, (), (), "mark")
        store.add_runs([run(0)], [Slice(run(0).run_id, 0)])
    with metadata.snapshot() as store:
        assert store.campaign("made-1") is None and store.belongs_to("made-1") is None
        assert store.campaigns() == [] and store.entrants() == []
        assert store.campaigns(sight=Sight(False, "sam", "vision")) == []
        assert not store.is_running("made-1")
        load = store.load()
        assert sum(load.campaigns.values()) == 0 and sum(load.runs.values()) == 0
        assert store.submitted_as("sam", "a key") is None
        assert store.campaign_numbers("made") == [1]
        assert store.arrivals() == ["made-1"]
        assert store.is_arriving("made-1", "mark") and not store.is_arriving("made-1", "another")
    with metadata.transaction() as store:
        store.end_arrival("made-1")
    with metadata.snapshot() as store:
        assert store.campaign("made-1") == coming
        assert [each.campaign_id for each in store.campaigns()] == ["made-1"]
        assert [each.campaign_id for each in store.entrants()] == ["made-1"]
        assert store.is_running("made-1") and store.arrivals() == []
        assert store.load().runs == {RunState.WAITING: 1}
        assert store.submitted_as("sam", "a key") == "made-1"
        assert store.submitted_as("vera", "a key") is None
        assert not store.is_arriving("made-1", "mark")
    with metadata.transaction() as store:
        assert store.give_up_arrival("made-1", 1)  # it is there, so nothing goes
    assert seen(metadata) == {"made-1": 1}


def test_an_arrival_that_is_given_up_goes_in_pieces_and_leaves_its_number(metadata: MetadataStore) -> None:
    with metadata.transaction() as store:
        store.add_campaign(campaign(), (), (), "mark")
        store.add_runs([run(0), run(1), run(2)], [Slice(run(i).run_id, i) for i in range(3)])
    steps = []
    for _ in range(3):
        with metadata.transaction() as store:
            steps.append((store.give_up_arrival("made-1", 2), len(store.runs("made-1"))))
            assert not store.is_arriving("made-1", "mark")
    assert steps == [(False, 1), (False, 0), (True, 0)]
    with metadata.snapshot() as store:
        assert store.arrivals() == [] and store.campaign_numbers("made") == []
        assert store.slices(run(0).run_id) == []


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_crash_in_the_middle_leaves_nothing_that_counts(
    pieces: int, metadata: MetadataStore, tmp_path: Path
) -> None:
    coordinator = coordinator_of(metadata, tmp_path)
    with pytest.raises(CrashError):
        submit(coordinator, sent(key="once"), Pace(ROWS, resting_at(pieces, crash)))
    assert seen(metadata) == {}
    with metadata.snapshot() as store:
        assert store.arrivals() == ["large-1"]
        assert store.requested_counts(RunsRequest("large-1")) != {}
    after = coordinator_of(metadata, tmp_path)
    clear_arrivals(after)
    with metadata.snapshot() as store:
        assert store.arrivals() == [] and store.runs("large-1") == []
    assert submit(after, sent(key="once"), Pace(ROWS, lambda _: None)).campaign_id == "large-1"
    assert seen(metadata) == {"large-1": SMALL_RUNS}


def test_the_next_server_clears_what_a_crash_left(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    first = make_server()
    first.stop()
    metadata = SqliteStore(short_path / "state" / "metadata.sqlite")
    with pytest.raises(CrashError):
        submit(coordinator_of(metadata, short_path), sent(), Pace(ROWS, resting_at(2, crash)))
    metadata.close()
    second = make_server()
    with PlayingAgent(second.addresses[0]) as agent:
        assert agent.listed().campaigns == ()

        def left() -> list[str]:
            beside = SqliteStore(short_path / "state" / "metadata.sqlite")
            try:
                with beside.snapshot() as store:
                    return store.arrivals()
            finally:
                beside.close()

        eventually(lambda: left() == [], "the leftover to go")


def test_another_server_finishes_what_the_one_that_died_was_sent(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    dying, other = (coordinator_of(metadata, tmp_path) for _ in range(2))
    with pytest.raises(CrashError):
        submit(dying, sent(key="once"), Pace(ROWS, resting_at(3, crash)))
    made = submit(other, sent(key="once"), Pace(ROWS, lambda _: None))
    assert seen(metadata) == {made.campaign_id: SMALL_RUNS}


def test_a_server_that_lost_its_turn_unnoticed_adds_nothing_to_what_another_one_gave_up(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    slow, other = (coordinator_of(metadata, tmp_path) for _ in range(2))
    answers: list[str] = []

    def take_over() -> None:
        answers.append(submit(other, sent(), Pace(ROWS, lambda _: None)).campaign_id)

    with pytest.raises(StorageError, match="another one gave up"):
        submit(slow, sent(), Pace(ROWS, resting_at(3, take_over)))
    assert seen(metadata) == {"large-1": SMALL_RUNS} and answers == ["large-1"]


def test_a_cleaner_waits_for_nobody_and_leaves_what_still_comes(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    bringing = coordinator_of(metadata, tmp_path)
    submit(bringing, sent(), Pace(ROWS, resting_at(3, lambda: clear_arrivals(bringing))))
    assert seen(metadata) == {"large-1": SMALL_RUNS}


@pytest.mark.parametrize("rows", [ROWS, 10_000], ids=["in pieces", "at once"])
def test_a_submission_sent_twice_with_one_key_is_one_campaign_of_its_caller(
    rows: int, metadata: MetadataStore, tmp_path: Path
) -> None:
    coordinator, pace = coordinator_of(metadata, tmp_path), Pace(rows, lambda _: None)
    with called_by(SAM):
        first = submit(coordinator, sent(key="once"), pace)
        assert submit(coordinator, sent(key="once"), pace) == first
        assert submit(coordinator, sent(key="twice"), pace).campaign_id == "large-2"
        with pytest.raises(CampaignError, match="which was another file"):
            submit(coordinator, sent(TEXT + "# changed\n", key="once"), pace)
        with pytest.raises(ParameterError, match="101 characters"):
            submit(coordinator, sent(key="k" * 101), pace)
        for long in ("base_directory", "file_name"):
            with pytest.raises(ParameterError, match="1,025 characters; at most 1,024"):
                submit(coordinator, replace(sent(), **{long: "/" + "x" * 1_024}), pace)
    with called_by(replace(SAM, identity_id="bb" * 16)):
        assert submit(coordinator, sent(key="once"), pace).campaign_id == "large-3"
    for _ in range(2):
        submit(coordinator, sent(), pace)  # without a key each is one of its own
    assert len(seen(metadata)) == 5


def test_a_repeat_that_is_small_enough_to_come_at_once_is_the_only_campaign_of_its_key(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    """Plans change with the times that slices took: the first was large, and its repeat is not."""
    audited = AuditedStore(metadata)
    first, other = (coordinator_of(audited, tmp_path) for _ in range(2))
    repeats: list[str] = []

    def repeat() -> None:
        with called_by(SAM):
            repeats.append(submit(other, sent(key="once"), Pace(10_000)).campaign_id)

    begin_note("Submit", "unix:")
    with called_by(SAM):
        answer = submit(first, sent(key="once"), Pace(ROWS, resting_at(3, repeat)))
    assert [answer.campaign_id] == repeats and answer.runs == SMALL_RUNS
    assert seen(metadata) == {answer.campaign_id: SMALL_RUNS}
    with metadata.snapshot() as store:
        assert store.arrivals() == []
        assert {each.subject for each in store.audit_entries()} <= {f"campaign {answer.campaign_id}"}
        assert sum(len(store.runs(f"large-{number}")) for number in (1, 2)) == SMALL_RUNS


def test_one_that_comes_first_under_the_name_takes_its_number(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    raced: list[str] = []

    class Racing(CountingStore):
        """Before its first transaction another campaign takes the number."""

        @contextmanager
        def transaction(self) -> Iterator[SqlTransaction]:
            if not raced:
                raced.append("large-1")
                with metadata.transaction() as store:
                    store.add_campaign(campaign("large-1", name="large"), (), ())
            with super().transaction() as transaction:
                yield transaction

    coordinator = coordinator_of(Racing(metadata), tmp_path)  # type: ignore[arg-type]
    assert submit(coordinator, sent(), Pace(ROWS, lambda _: None)).campaign_id == "large-2"
    with metadata.snapshot() as store:
        assert [each.campaign_id for each in store.campaigns()] == ["large-1", "large-2"]
        assert store.campaign("large-2").state is CampaignState.RUNNING  # type: ignore[union-attr]


def test_the_audit_log_tells_of_a_campaign_only_with_its_last_piece(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    coordinator = coordinator_of(AuditedStore(metadata), tmp_path)

    def told() -> list[str]:
        with metadata.snapshot() as store:
            return [f"{each.call} {each.subject}" for each in store.audit_entries()]

    begin_note("Submit", "unix:")
    with pytest.raises(CrashError):
        submit(coordinator, sent(), Pace(ROWS, resting_at(4, crash)))
    assert told() == []
    begin_note("Submit", "unix:")
    found: list[list[str]] = []
    submit(coordinator, sent(), Pace(ROWS, lambda _: found.append(told())))
    assert all(each == [] for each in found)
    assert told() == ["Submit campaign large-1"]
