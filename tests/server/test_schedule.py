"""Leases, retries, publishing: case by case, and whatever the order things happen in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import ParameterError
from assay_server.campaigns.errors import UnknownThingError
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.campaigns.scheduling.transitions import campaign_state, run_state
from assay_server.store.model import SliceState
from tests.support.server.cancelling import cancel
from tests.support.server.desk import HANG, POLICY, Desk

BROKEN = Failure("application_failed", "the workload", "exit status 1", "mend it", False)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    desk.register()
    yield desk
    desk.store.close()


@pytest.fixture
def campaign_with_two() -> Iterator[Desk]:
    desk = Desk(campaigns=2)
    desk.register()
    yield desk
    desk.store.close()


def test_a_publication_with_the_token_of_another_lease_is_refused() -> None:
    """Its file must not become the slice's, whatever state the attempt of that number is in."""
    desk = Desk()
    desk.register()
    key = desk.must_lease()
    assert desk.segment(key) is SegmentOutcome.ADDED
    assert desk.begin(key) is FinishOutcome.PUBLISH
    for token in (key.token - 1, key.token + 1):
        stale = replace(key, token=token)
        assert not desk.end(stale)
        assert desk.begin(stale) is FinishOutcome.NOT_WANTED
        with desk.store.snapshot() as read:
            piece = read.slice(key.run_id, key.slice_index)
        assert piece is not None
        assert (piece.state, piece.file, piece.content_hash) == (SliceState.LEASED, "", "")
        assert desk.attempt(key).state is AttemptState.PUBLISHING
    assert desk.end(key)
    assert not desk.end(replace(key, token=key.token + 1)), "nor is it told that it is the published one"
    with desk.store.snapshot() as read:
        piece = read.slice(key.run_id, key.slice_index)
    assert piece is not None and piece.content_hash == f"hash by {key.token}"


def test_a_publication_that_was_superseded_while_its_file_was_written_is_refused() -> None:
    desk = Desk()
    desk.register(slots=("0",))
    desk.register("b", slots=("0",))
    late = desk.must_lease("a")
    desk.segment(late)
    desk.clock.ms += 2000
    desk.do(lambda s: s.expire())
    desk.clock.ms += 200
    newer = desk.must_lease("b")
    assert (newer.run_id, newer.attempt) == (late.run_id, late.attempt + 1)
    assert not desk.end(late)
    assert desk.attempt(late).state is AttemptState.SUPERSEDED
    desk.publish(newer)
    assert not desk.end(late)


def test_work_is_given_in_the_order_of_campaign_and_run(campaign_with_two: Desk) -> None:
    desk = campaign_with_two
    given = []
    for _ in range(6):
        key = desk.must_lease()
        given.append(key.run_id)
        desk.publish(key)
    assert given == [f"made-{c}.000{r}" for c in (1, 2) for r in range(3)]
    assert desk.lease() is None


def test_an_answer_that_was_lost_is_given_again_until_the_attempt_shows_life(desk: Desk) -> None:
    key = desk.must_lease()
    assert desk.must_lease() == key
    desk.clock.ms += 1
    assert desk.do(lambda s: s.extend(key))
    assert desk.lease() is None
    assert desk.must_lease(slot="1").run_id == "made-1.0001"


def test_a_slot_that_was_not_registered_gets_a_clear_error(desk: Desk) -> None:
    with pytest.raises(ParameterError, match="agent 'a' did not register it"):
        desk.lease(slot="7")


def test_another_process_of_the_agent_must_register_first(desk: Desk) -> None:
    assert desk.do(lambda s: s.is_registered("a", "s"))
    assert not desk.do(lambda s: s.is_registered("a", "another"))
    assert not desk.do(lambda s: s.is_registered("b", "s"))


def test_a_run_that_is_published_takes_the_numbers_of_its_file_and_the_flags(desk: Desk) -> None:
    key = desk.must_lease()
    assert desk.run_states() == ["running", "waiting", "waiting"]
    flags = (ValidityFlag("throttled", "81 C", True),)
    assert desk.segment(key) is SegmentOutcome.ADDED
    assert desk.begin(key, flags=flags) is FinishOutcome.PUBLISH
    assert desk.attempt(key).state is AttemptState.PUBLISHING
    assert desk.end(key)
    assert desk.attempt(key).state is AttemptState.PUBLISHED
    with desk.store.snapshot() as read:
        [piece] = read.slices(key.run_id)
        run = read.run(key.run_id)
    assert (piece.state, piece.launches, piece.content_hash) == (SliceState.DONE, 10, f"hash by {key.token}")
    assert run is not None and run.flags[1:] == flags
    assert run.flags[0].name == "condition_assumed", "what the plan says of the run stays"
    assert desk.effects.dead == [key]
    assert desk.begin(key) is FinishOutcome.ALREADY_PUBLISHED
    assert desk.end(key)


def test_a_lease_that_runs_out_goes_to_somebody_else_with_a_larger_token(desk: Desk) -> None:
    desk.register("b", "s")
    first = desk.must_lease()
    desk.clock.ms += POLICY.lease_ms
    desk.do(lambda s: s.expire())
    assert desk.attempt(first).state is AttemptState.LEASED  # not before its time
    desk.clock.ms += 1
    desk.do(lambda s: s.expire())
    expired = desk.attempt(first)
    assert (expired.state, expired.failure and expired.failure.failure_class) == (
        AttemptState.EXPIRED,
        "lease_expired",
    )
    assert desk.effects.dead == []  # it may come back
    second = desk.must_lease("b")
    assert (second.run_id, second.attempt) == (first.run_id, 2) and second.token > first.token
    assert desk.attempt(first).state is AttemptState.SUPERSEDED
    assert desk.effects.dead == [first]
    assert not desk.do(lambda s: s.extend(first))
    assert desk.segment(first) is SegmentOutcome.NOT_WANTED
    assert desk.begin(first) is FinishOutcome.NOT_WANTED
    desk.publish(second)


@pytest.mark.parametrize("sign", ["heartbeat", "segment", "finish"])
def test_an_expired_attempt_comes_back_while_nobody_else_has_its_slice(desk: Desk, sign: str) -> None:
    key = desk.must_lease()
    desk.segment(key)
    desk.clock.ms += POLICY.lease_ms + 1
    desk.do(lambda s: s.expire())
    assert desk.run_states()[0] == "waiting"
    if sign == "heartbeat":
        assert desk.do(lambda s: s.extend(key))
    elif sign == "segment":
        assert desk.segment(key, 1) is SegmentOutcome.ADDED
    else:
        assert desk.begin(key) is FinishOutcome.PUBLISH
    assert desk.attempt(key).state in (AttemptState.LEASED, AttemptState.PUBLISHING)
    assert desk.run_states()[0] == "running"


def test_an_expired_attempt_stays_away_when_its_slot_runs_something_else(desk: Desk) -> None:
    key = desk.must_lease()
    desk.clock.ms += POLICY.lease_ms + 1
    desk.do(lambda s: s.expire())
    desk.register("b", "s")
    other = desk.must_lease("b")
    assert other.run_id == key.run_id
    desk.do(lambda s: s.fail(other, BROKEN))
    assert not desk.do(lambda s: s.extend(key))


@pytest.mark.parametrize("token", [-1, 0, 1, 99])
def test_only_the_token_of_the_lease_opens_the_door(desk: Desk, token: int) -> None:
    desk.must_lease(slot="1")
    key = desk.must_lease()
    assert key.token == 2
    forged = replace(key, token=token)
    assert not desk.do(lambda s: s.extend(forged))
    assert desk.segment(forged) is SegmentOutcome.NOT_WANTED
    assert desk.begin(forged) is FinishOutcome.NOT_WANTED
    desk.do(lambda s: s.fail(forged, HANG))
    assert desk.attempt(key).state is AttemptState.LEASED
    desk.publish(key)
    assert desk.begin(forged) is FinishOutcome.NOT_WANTED


def test_segments_come_one_after_the_other(desk: Desk) -> None:
    key = desk.must_lease()
    assert desk.segment(key, 1) is SegmentOutcome.OUT_OF_ORDER
    assert desk.segment(key, 0) is SegmentOutcome.ADDED
    assert desk.segment(key, 0) is SegmentOutcome.OUT_OF_ORDER
    assert (desk.attempt(key).segments, desk.attempt(key).launches) == (1, 10)


def test_a_retryable_failure_is_tried_three_times_with_growing_rests(desk: Desk) -> None:
    desk.register(slots=("0",))
    rests = []
    for number in (1, 2, 3):
        key = desk.must_lease()
        assert key.attempt == number
        desk.do(lambda s, key=key: s.fail(key, HANG, AttemptLog(("ncu",), {}, "stuck")))
        assert desk.effects.dead == [key]
        with desk.store.snapshot() as read:
            rests.append(max(0, read.slices(key.run_id)[0].not_before_ms - desk.clock.ms))
        desk.clock.ms += rests[-1]
    assert rests == [100, 200, 0]
    with desk.store.snapshot() as read:
        run = read.run("made-1.0000")
    assert run is not None and (run.state, run.failure) == (RunState.FAILED, HANG)
    assert desk.attempt(key).log.text == "stuck"
    assert desk.must_lease().run_id == "made-1.0001"


def test_a_slice_rests_before_it_is_tried_again(desk: Desk) -> None:
    desk.fail(desk.must_lease(), HANG)
    assert desk.must_lease().run_id == "made-1.0001"
    assert desk.must_lease(slot="1").run_id == "made-1.0002"
    desk.register("b", "s")
    assert desk.lease("b") is None
    desk.clock.ms += 100
    assert desk.must_lease("b").run_id == "made-1.0000"


def test_what_cannot_be_retried_fails_the_run_at_once(desk: Desk) -> None:
    desk.fail(desk.must_lease(), BROKEN)
    assert desk.run_states() == ["failed", "waiting", "waiting"]
    assert desk.campaign().state is CampaignState.RUNNING


def test_losses_do_not_count_as_failures_but_are_bounded(desk: Desk) -> None:
    for number in range(1, 6):
        assert desk.must_lease().attempt == number
        desk.clock.ms += POLICY.lease_ms + 1
        desk.do(lambda s: s.expire())
    with desk.store.snapshot() as read:
        run = read.run("made-1.0000")
        attempts = read.attempts("made-1.0000")
    assert run is not None and run.state is RunState.FAILED
    assert run.failure is not None and run.failure.failure_class == "lease_expired"
    assert [a.state for a in attempts] == [AttemptState.SUPERSEDED] * 4 + [AttemptState.FAILED]


def test_a_restarted_agent_keeps_what_is_sealed_and_loses_the_rest(desk: Desk) -> None:
    sealed, lost = desk.must_lease(slot="0"), desk.must_lease(slot="1")
    published = replace(sealed, run_id="made-1.0007")
    resume, drop = desk.register(session="t", sealed=[sealed, published])
    assert (resume, drop) == ([sealed], [published])
    assert desk.attempt(sealed).session_id == "t"
    failed = desk.attempt(lost)
    assert (failed.state, failed.failure and failed.failure.failure_class) == (
        AttemptState.FAILED,
        "agent_restarted",
    )
    assert desk.lease(slot="0") is None  # until what is sealed is sent
    assert desk.must_lease(slot="1").run_id == lost.run_id
    desk.publish(sealed)


def test_the_same_process_registering_again_loses_nothing(desk: Desk) -> None:
    key = desk.must_lease()
    assert desk.register(sealed=[]) == ([], [])
    assert desk.attempt(key).state is AttemptState.LEASED


def test_sealed_data_of_an_agent_that_was_away_too_long_are_still_taken(desk: Desk) -> None:
    key = desk.must_lease()
    desk.segment(key)
    desk.clock.ms += 10 * POLICY.lease_ms
    desk.do(lambda s: s.expire())
    assert desk.register(session="t", sealed=[key]) == ([key], [])
    assert desk.begin(key) is FinishOutcome.PUBLISH


def test_a_sealed_attempt_of_another_agent_is_not_handed_over(desk: Desk) -> None:
    key = desk.must_lease()
    assert desk.register("b", "s", sealed=[key]) == ([], [key])
    assert desk.attempt(key).agent_id == "a"


def test_a_server_that_was_away_does_not_expire_leases(desk: Desk) -> None:
    key = desk.must_lease()
    desk.clock.ms += 50 * POLICY.lease_ms
    desk.do(lambda s: s.extend_all())
    desk.do(lambda s: s.expire())
    assert desk.attempt(key).state is AttemptState.LEASED


@pytest.mark.parametrize(
    ("segments", "launches", "failure_class"),
    [(2, 10, "server_restored"), (1, 11, "server_refused"), (0, 0, "nothing_profiled")],
)
def test_counts_that_do_not_agree_are_never_published(
    desk: Desk, segments: int, launches: int, failure_class: str
) -> None:
    key = desk.must_lease()
    desk.segment(key)
    assert desk.begin(key, segments, launches) is FinishOutcome.NOT_WANTED
    failed = desk.attempt(key)
    assert (failed.state, failed.failure and failed.failure.failure_class) == (
        AttemptState.FAILED,
        failure_class,
    )


def test_what_the_policy_of_the_only_agent_refuses_ends_at_once_and_names_it(desk: Desk) -> None:
    """Refused by every agent: each run has one attempt, and nothing is left to lease."""
    refused = Failure("refused_by_policy", "the command", "no line of /p.toml allows it", "allow it", False)
    for number in range(3):
        run_id = f"made-1.{number:04}"
        key = desk.must_lease()
        assert key.run_id == run_id
        desk.fail(key, refused)
        with desk.store.snapshot() as read:
            run = read.run(run_id)
            assert len(read.attempts(run_id)) == 1
        assert run is not None and run.state is RunState.FAILED and run.failure is not None
        assert run.failure.failure_class == "refused_by_policy"
        assert run.failure.cause == "the policy of agent a refuses it: no line of /p.toml allows it"
    assert desk.lease() is None
    assert desk.campaign().state is CampaignState.FAILED


def test_a_publishing_attempt_cannot_expire_and_frees_its_slot(desk: Desk) -> None:
    key = desk.must_lease()
    desk.segment(key)
    desk.begin(key)
    desk.clock.ms += 10 * POLICY.lease_ms
    desk.do(lambda s: s.expire())
    assert desk.attempt(key).state is AttemptState.PUBLISHING
    assert desk.begin(key) is FinishOutcome.PUBLISH  # asked again: publish again
    assert desk.segment(key, 1) is SegmentOutcome.NOT_WANTED
    assert desk.must_lease().run_id == "made-1.0001"
    assert desk.end(key)


def test_cancelling_ends_everything_that_has_not_ended(desk: Desk) -> None:
    done, publishing, leased = desk.must_lease(), desk.must_lease(slot="1"), None
    desk.publish(done)
    desk.segment(publishing)
    desk.begin(publishing)
    leased = desk.must_lease()
    desk.do(lambda s: cancel(s, "made-1"))
    assert desk.campaign().state is CampaignState.CANCELLED
    assert desk.run_states() == ["done", "cancelled", "cancelled"]
    assert set(desk.effects.dead) == {publishing, leased}
    assert not desk.do(lambda s: s.extend(leased))
    assert not desk.end(publishing)
    assert desk.lease() is None
    desk.do(lambda s: cancel(s, "made-1"))
    with pytest.raises(UnknownThingError):
        desk.do(lambda s: cancel(s, "made-7"))


def finish_all(desk: Desk, *, fail: int | None = None) -> None:
    for ordinal in range(3):
        key = desk.must_lease()
        if ordinal == fail:
            desk.do(lambda s, key=key: s.fail(key, BROKEN))
        else:
            desk.publish(key)


def test_after_the_last_run_the_campaign_is_analysed_and_then_done(desk: Desk) -> None:
    finish_all(desk)
    assert desk.effects.analyse == {"made-1"}
    assert desk.campaign().state is CampaignState.ANALYSING
    desk.do(lambda s: s.end_analysis("made-1", None))
    ended = desk.campaign()
    assert (ended.state, ended.failure, ended.has_report) == (CampaignState.DONE, None, True)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_failed_run_fails_the_campaign_but_what_is_there_is_analysed(desk: Desk, failing: int) -> None:
    finish_all(desk, fail=failing)
    assert desk.campaign().state is CampaignState.ANALYSING
    desk.do(lambda s: s.end_analysis("made-1", None))
    ended = desk.campaign()
    assert (ended.state, ended.has_report) == (CampaignState.FAILED, True)
    assert ended.failure == Failure(
        "application_failed",
        f"made-1.000{failing}",
        "1 of 3 runs failed; the first: the workload: exit status 1",
        "mend it",
    )


def test_without_any_data_there_is_nothing_to_analyse(desk: Desk) -> None:
    for _ in range(3):
        desk.fail(desk.must_lease(), BROKEN)
    ended = desk.campaign()
    assert (ended.state, ended.has_report) == (CampaignState.FAILED, False)
    assert ended.failure is not None and ended.failure.cause.startswith("3 of 3 runs failed")
    assert desk.effects.analyse == set()


def test_a_cancelled_campaign_stays_cancelled_when_its_analysis_ends(desk: Desk) -> None:
    finish_all(desk)
    desk.do(lambda s: cancel(s, "made-1"))
    desk.do(lambda s: s.end_analysis("made-1", None))
    assert (desk.campaign().state, desk.campaign().has_report) == (CampaignState.CANCELLED, False)


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ("WW", RunState.WAITING),
        ("WL", RunState.RUNNING),
        ("WD", RunState.RUNNING),
        ("DD", RunState.DONE),
        ("DF", RunState.FAILED),
        ("LF", RunState.FAILED),
        ("DC", RunState.CANCELLED),
    ],
)
def test_the_state_of_a_run_follows_from_its_slices(slices: str, expected: RunState) -> None:
    letters = {
        "W": SliceState.WAITING,
        "L": SliceState.LEASED,
        "D": SliceState.DONE,
        "F": SliceState.FAILED,
        "C": SliceState.CANCELLED,
    }
    assert run_state([letters[c] for c in slices]) is expected


def test_the_state_of_a_campaign_follows_from_its_runs() -> None:
    done, failed, running = RunState.DONE, RunState.FAILED, RunState.RUNNING
    assert campaign_state([done, running]) is CampaignState.RUNNING
    assert campaign_state([done, failed]) is CampaignState.ANALYSING
    assert campaign_state([failed, failed]) is CampaignState.FAILED


AGENTS = st.sampled_from(["a", "b"])
SLOTS = st.sampled_from(["0", "1"])


class Interleavings(RuleBasedStateMachine):
    """Two agents with two slots each do whatever they like with every key they ever saw."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.keys: list[AttemptKey] = []
        self.session = 0
        self.files: dict[tuple[str, int], str] = {}
        self.cancelled = False

    @initialize()
    def both_register(self) -> None:
        self.desk.register("a", "s0")
        self.desk.register("b", "s0")

    @rule(agent=AGENTS, slot=SLOTS)
    def lease(self, agent: str, slot: str) -> None:
        before = {k.token for k in self.keys}
        lease = self.desk.lease(agent, slot)
        if lease is None:
            return
        key = lease.attempt.key
        if key.token not in before:
            assert key.token > max(before, default=0)
            self.keys.append(key)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.desk.do(lambda s: s.extend(data.draw(st.sampled_from(self.keys)), 5))

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), index=st.integers(0, 2))
    def segment(self, data: st.DataObject, index: int) -> None:
        self.desk.segment(data.draw(st.sampled_from(self.keys)), index)

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), truthful=st.booleans())
    def begin(self, data: st.DataObject, truthful: bool) -> None:
        key = data.draw(st.sampled_from(self.keys))
        attempt = self.desk.attempt(key)
        self.desk.begin(key, attempt.segments + (not truthful), attempt.launches)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.keys))
        before = self.desk.attempt(key).state
        published = self.desk.end(key)
        assert published == (before in (AttemptState.PUBLISHING, AttemptState.PUBLISHED))

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), failure=st.sampled_from([HANG, BROKEN]))
    def fail(self, data: st.DataObject, failure: Failure) -> None:
        self.desk.do(lambda s: s.fail(data.draw(st.sampled_from(self.keys)), failure))

    @rule(milliseconds=st.sampled_from([1, 100, 999, 1001]))
    def time_goes_by(self, milliseconds: int) -> None:
        self.desk.clock.ms += milliseconds
        self.desk.do(lambda s: s.expire())

    @rule(agent=AGENTS, data=st.data())
    def agent_restarts(self, agent: str, data: st.DataObject) -> None:
        sealed = data.draw(st.lists(st.sampled_from(self.keys), unique=True)) if self.keys else []
        self.session += 1
        resume, drop = self.desk.register(agent, f"s{self.session}", sealed=sealed)
        assert sorted([*resume, *drop], key=str) == sorted(sealed, key=str)
        for key in resume:
            assert self.desk.attempt(key).state in (AttemptState.LEASED, AttemptState.PUBLISHING)

    @rule()
    def server_restarts(self) -> None:
        self.desk.do(lambda s: s.extend_all())

    @invariant()
    def nothing_is_run_or_published_twice(self) -> None:
        with self.desk.store.snapshot() as read:
            attempts = read.attempts_in(list(AttemptState))
            published = read.published_slices()
        leased = [a for a in attempts if a.state is AttemptState.LEASED]
        active = [a for a in attempts if a.state in (AttemptState.LEASED, AttemptState.PUBLISHING)]
        assert len({(a.agent_id, a.slot_id) for a in leased}) == len(leased)
        assert len({(a.key.run_id, a.key.slice_index) for a in active}) == len(active)
        winners = [(a.key.run_id, a.key.slice_index) for a in attempts if a.state is AttemptState.PUBLISHED]
        assert sorted(winners) == sorted((s.run_id, s.index) for s in published)
        for piece in published:
            first = self.files.setdefault((piece.run_id, piece.index), piece.content_hash)
            assert piece.content_hash == first

    @invariant()
    def only_the_newest_attempt_of_a_slice_is_alive(self) -> None:
        with self.desk.store.snapshot() as read:
            for run in read.runs("made-1"):
                attempts = read.attempts(run.run_id)
                assert [a.key.token for a in attempts] == sorted(a.key.token for a in attempts)
                assert [a.key.attempt for a in attempts] == list(range(1, len(attempts) + 1))
                for attempt in attempts[:-1]:
                    assert attempt.state in (AttemptState.FAILED, AttemptState.SUPERSEDED)
                assert sum(a.state is AttemptState.FAILED for a in attempts) <= 3 + 5

    def teardown(self) -> None:
        """From wherever things stand, honest agents bring the campaign to its end."""
        for _ in range(200):
            if self.desk.campaign().state is not CampaignState.RUNNING:
                break
            self.desk.clock.ms += 60_000
            self.desk.do(lambda s: s.expire())
            with self.desk.store.snapshot() as read:
                publishing = read.attempts_in((AttemptState.PUBLISHING,))
            for attempt in publishing:
                self.desk.end(attempt.key)
            lease = self.desk.lease("a", "0")
            if lease is not None:
                self.desk.publish(lease.attempt.key)
        assert self.desk.campaign().state in (CampaignState.ANALYSING, CampaignState.FAILED)
        self.desk.store.close()


Interleavings.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestInterleavings = Interleavings.TestCase
