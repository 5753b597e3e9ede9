"""What people ask of runs: every request in every state has one answer, whatever happens at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import AssayError, ParameterError, RefusedError
from assay_server.campaigns.errors import UnknownThingError
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.store.model import PendingRequest, SliceState
from tests.support.server.desk import HANG, POLICY, Desk

BROKEN = Failure("application_failed", "the workload", "exit status 1", "mend it", False)
FIRST, SECOND, THIRD = (f"made-1.000{ordinal}" for ordinal in range(3))
WHOLE = RunsRequest("made-1")
PAUSE, RESUME, CANCEL, RETRY = RunsAction


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    desk.register()
    yield desk
    desk.store.close()


def ask(desk: Desk, action: RunsAction, asked: RunsRequest = WHOLE, piece: int = 1) -> PendingRequest:
    """Carry out a request in pieces."""
    request: PendingRequest = desk.do(lambda s: s.ask(action, asked))
    while is_pending(desk, request):
        request = desk.do(lambda s, request=request: s.carry_on(request, piece))
    return request


def is_pending(desk: Desk, request: PendingRequest) -> bool:
    with desk.store.snapshot() as read:
        return request.request_id in [each.request_id for each in read.pending_requests()]


def one(run_id: str, *, at_once: bool = False) -> RunsRequest:
    return RunsRequest("made-1", run_id=run_id, at_once=at_once)


def bring(desk: Desk, state: str) -> AttemptKey | None:
    """Bring the first run into a state; returns its attempt if it has one."""
    if state == "waiting":
        return None
    key = desk.must_lease()
    assert key.run_id == FIRST
    if state == "publishing":
        desk.segment(key)
        assert desk.begin(key) is FinishOutcome.PUBLISH
    elif state == "done":
        desk.publish(key)
    elif state == "failed":
        desk.fail(key, BROKEN)
    elif state == "cancelled":
        ask(desk, CANCEL, one(FIRST))
    elif state == "expired":
        desk.clock.ms += POLICY.lease_ms + 1
        desk.do(lambda s: s.expire())
    return key


GOES_ON, REFUSED = "goes on", "refused"
# (state of the run, request) -> state of the run, of its slice, of its attempt, and how many runs change.
TABLE: dict[tuple[str, str], tuple[str, str, str, int] | str] = {
    ("waiting", "pause"): ("waiting", "waiting", "", 1),
    ("waiting", "pause at once"): ("waiting", "waiting", "", 1),
    ("waiting", "resume"): ("waiting", "waiting", "", 0),
    ("waiting", "cancel"): ("cancelled", "cancelled", "", 1),
    ("waiting", "retry"): REFUSED,
    ("running", "pause"): ("running", "leased", "leased", 1),
    ("running", "pause at once"): ("waiting", "waiting", "cancelled", 1),
    ("running", "resume"): ("running", "leased", "leased", 0),
    ("running", "cancel"): ("cancelled", "cancelled", "cancelled", 1),
    ("running", "retry"): REFUSED,
    ("publishing", "pause"): ("running", "leased", "publishing", 1),
    ("publishing", "pause at once"): ("running", "leased", "publishing", 1),
    ("publishing", "resume"): ("running", "leased", "publishing", 0),
    ("publishing", "cancel"): ("cancelled", "cancelled", "cancelled", 1),
    ("publishing", "retry"): REFUSED,
    ("expired", "pause"): ("waiting", "waiting", "expired", 1),
    ("expired", "pause at once"): ("waiting", "waiting", "cancelled", 1),
    ("expired", "resume"): ("waiting", "waiting", "expired", 0),
    ("expired", "cancel"): ("cancelled", "cancelled", "cancelled", 1),
    ("expired", "retry"): REFUSED,
    ("done", "pause"): REFUSED,
    ("done", "pause at once"): REFUSED,
    ("done", "resume"): REFUSED,
    ("done", "cancel"): ("done", "done", "published", 0),
    ("done", "retry"): REFUSED,
    ("failed", "pause"): REFUSED,
    ("failed", "pause at once"): REFUSED,
    ("failed", "resume"): REFUSED,
    ("failed", "cancel"): ("failed", "failed", "failed", 0),
    ("failed", "retry"): ("waiting", "waiting", "failed", 1),
    ("cancelled", "pause"): REFUSED,
    ("cancelled", "pause at once"): REFUSED,
    ("cancelled", "resume"): REFUSED,
    ("cancelled", "cancel"): ("cancelled", "cancelled", "cancelled", 0),
    ("cancelled", "retry"): ("waiting", "waiting", "cancelled", 1),
}


@pytest.mark.parametrize(("state", "request_"), TABLE)
def test_every_request_about_a_run_has_its_answer_in_every_state(
    desk: Desk, state: str, request_: str
) -> None:
    key = bring(desk, state)
    expected = TABLE[state, request_]
    action, asked = RunsAction(request_.split(maxsplit=1)[0]), one(FIRST, at_once="once" in request_)
    if isinstance(expected, str):
        with pytest.raises(RefusedError):
            ask(desk, action, asked)
        with desk.store.snapshot() as read:
            assert read.pending_requests() == []
        return
    told = ask(desk, action, asked)
    with desk.store.snapshot() as read:
        run, piece = read.run(FIRST), read.slice(FIRST, 0)
        assert read.pending_requests() == []
    assert run is not None and piece is not None
    attempt = "" if key is None else str(desk.attempt(key).state)
    assert (run.state, piece.state, attempt, told.runs_changed) == expected
    assert run.paused is (action is PAUSE)
    assert desk.run_states()[1:] == ["waiting", "waiting"], "others are left alone"
    assert desk.campaign().state is CampaignState.RUNNING


def test_a_paused_run_is_not_leased_until_it_is_resumed(desk: Desk) -> None:
    ask(desk, PAUSE, one(FIRST))
    assert desk.must_lease(slot="1").run_id == SECOND
    ask(desk, RESUME, one(FIRST))
    assert desk.effects.work, "slots that wait hear of it"
    assert desk.must_lease().run_id == FIRST


def test_a_paused_campaign_gives_nothing_out_and_lets_others_pass(desk: Desk) -> None:
    told = ask(desk, PAUSE)
    assert (told.runs_changed, desk.campaign().paused) == (3, True)
    assert desk.lease() is None
    assert ask(desk, PAUSE).runs_changed == 0, "it is paused already"
    assert ask(desk, RESUME).runs_changed == 3
    assert desk.must_lease().run_id == FIRST


def test_a_pause_lets_a_running_slice_end_and_its_result_count(desk: Desk) -> None:
    key = desk.must_lease()
    ask(desk, PAUSE)
    assert desk.do(lambda s: s.extend(key)), "the agent may go on"
    desk.publish(key)
    assert desk.run_states() == ["done", "waiting", "waiting"]
    assert desk.lease() is None


def test_a_pause_at_once_hands_back_what_runs_and_costs_no_try(desk: Desk) -> None:
    for _ in range(2 * POLICY.retry.most_failures):
        key = desk.must_lease()
        told = ask(desk, PAUSE, replace(WHOLE, at_once=True))
        assert told.attempts_ended == 1
        assert not desk.do(lambda s, key=key: s.extend(key)), "the agent must drop it"
        assert desk.segment(key) is SegmentOutcome.NOT_WANTED
        ask(desk, RESUME)
    key = desk.must_lease()
    desk.fail(key, HANG)
    assert desk.run_states()[0] == "waiting", "its first failure"


def test_resuming_a_campaign_also_resumes_runs_that_were_paused_alone(desk: Desk) -> None:
    ask(desk, PAUSE, one(SECOND))
    ask(desk, PAUSE)
    with pytest.raises(RefusedError, match="the whole campaign made-1 is paused"):
        ask(desk, RESUME, one(SECOND))
    told = ask(desk, RESUME)
    assert told.runs_changed == 3
    with desk.store.snapshot() as read:
        assert read.paused_runs(["made-1"]) == {}


def test_a_workload_is_all_its_runs(desk: Desk) -> None:
    told = ask(desk, CANCEL, RunsRequest("made-1", workload="training"))
    assert (told.runs_changed, desk.run_states()) == (3, ["cancelled"] * 3)
    assert desk.campaign().state is CampaignState.CANCELLED


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        (RunsRequest("made-7"), UnknownThingError, "no such campaign"),
        (RunsRequest("made-1", run_id="made-1.0009"), UnknownThingError, "campaign made-1 has no such run"),
        (RunsRequest("made-1", workload="x"), UnknownThingError, "campaign made-1 has no such workload"),
        (RunsRequest("made-1", workload="training", run_id=FIRST), ParameterError, "not both"),
    ],
)
@pytest.mark.parametrize("action", RunsAction)
def test_what_the_server_does_not_know_is_refused(
    desk: Desk, action: RunsAction, asked: RunsRequest, error: type[AssayError], told: str
) -> None:
    with pytest.raises(error, match=told):
        ask(desk, action, asked)


def end_all(desk: Desk, *outcomes: str) -> None:
    for outcome in outcomes:
        key = desk.must_lease()
        if outcome == "done":
            desk.publish(key)
        else:
            desk.fail(key, BROKEN)


@pytest.mark.parametrize(
    ("ended", "answers"),
    [
        # pause, resume, cancel, retry: the campaign's state afterwards, or that it is refused
        ("analysing", ("analysing", "analysing", "cancelled", "running")),
        ("done", (REFUSED, REFUSED, "done", REFUSED)),
        ("failed", (REFUSED, REFUSED, "failed", "running")),
        ("cancelled", (REFUSED, REFUSED, "cancelled", "running")),
        ("without a report", (REFUSED, REFUSED, "failed", "analysing")),
    ],
)
@pytest.mark.parametrize("action", RunsAction)
def test_every_request_about_a_campaign_that_has_no_open_run(
    desk: Desk, ended: str, answers: tuple[str, ...], action: RunsAction
) -> None:
    if ended == "cancelled":
        ask(desk, CANCEL)
    elif ended in ("done", "without a report"):
        end_all(desk, "done", "done", "done")
        why = Failure("internal", "analysis", "it died") if ended != "done" else None
        desk.do(lambda s: s.end_analysis("made-1", why))
    else:
        end_all(desk, "done", "failed", "done")
        if ended == "failed":
            desk.do(lambda s: s.end_analysis("made-1", None))
    answer = answers[list(RunsAction).index(action)]
    if answer == REFUSED:
        with pytest.raises(RefusedError):
            ask(desk, action)
        return
    ask(desk, action)
    campaign = desk.campaign()
    assert campaign.state == answer
    if action is RETRY:
        assert (campaign.failure, campaign.has_report, campaign.ended_at_ms) == (None, False, 0)
        assert campaign.retried == 1


def test_a_retry_gives_all_tries_again_and_keeps_earlier_attempts(desk: Desk) -> None:
    desk.register(slots=("0",))
    for number in range(1, 7):
        key = desk.must_lease()
        assert (key.run_id, key.attempt) == (FIRST, number)
        desk.fail(key, HANG)
        desk.clock.ms += 60_000
        if number == 3:
            assert desk.run_states()[0] == "failed"
            ask(desk, RETRY, one(FIRST))
    assert desk.run_states()[0] == "failed", "three tries, and three again"
    with desk.store.snapshot() as read:
        assert [a.key.attempt for a in read.attempts(FIRST)] == [1, 2, 3, 4, 5, 6]
        piece = read.slice(FIRST, 0)
    assert piece is not None and piece.tries_from == 4


def test_a_campaign_that_had_ended_goes_on_after_a_retry_and_is_analysed_again(desk: Desk) -> None:
    end_all(desk, "done", "failed", "done")
    desk.do(lambda s: s.end_analysis("made-1", None))
    assert desk.campaign().state is CampaignState.FAILED
    told = ask(desk, RETRY)
    assert (told.runs_changed, desk.run_states()) == (1, ["done", "waiting", "done"])
    desk.publish(desk.must_lease())
    assert desk.effects.analyse == {"made-1"}
    desk.do(lambda s: s.end_analysis("made-1", None, retried=1))
    assert (desk.campaign().state, desk.campaign().failure) == (CampaignState.DONE, None)


def test_an_analysis_that_began_before_a_retry_does_not_end_the_campaign(desk: Desk) -> None:
    end_all(desk, "done", "failed", "done")  # its analysis begins
    ask(desk, RETRY)
    desk.do(lambda s: s.end_analysis("made-1", None, retried=0))
    assert desk.campaign().state is CampaignState.RUNNING
    desk.publish(desk.must_lease())
    desk.do(lambda s: s.end_analysis("made-1", None, retried=0))
    assert (desk.campaign().state, desk.effects.analyse) == (CampaignState.ANALYSING, {"made-1"})
    desk.do(lambda s: s.end_analysis("made-1", None, retried=1))
    assert desk.campaign().state is CampaignState.DONE


def test_a_campaign_does_not_end_while_a_retry_of_its_runs_is_only_half_done(desk: Desk) -> None:
    end_all(desk, "failed", "failed")
    request = desk.do(lambda s: s.ask(RETRY, WHOLE))
    desk.publish(desk.must_lease())  # the third run, the only open one now
    assert desk.campaign().state is CampaignState.RUNNING
    assert desk.effects.analyse == set()
    while is_pending(desk, request):
        desk.do(lambda s: s.carry_on(request, 1))
    assert desk.run_states() == ["waiting", "waiting", "done"]


def test_a_request_goes_on_where_a_crash_left_it(desk: Desk) -> None:
    request = desk.do(lambda s: s.ask(CANCEL, WHOLE))
    desk.do(lambda s: s.carry_on(request, 1))
    with desk.store.snapshot() as read:  # what the next server finds
        [left] = read.pending_requests()
    assert (left.next_ordinal, left.runs_changed, desk.run_states()) == (
        1, 1, ["cancelled", "waiting", "waiting"],
    )  # fmt: skip
    assert desk.lease() is None, "no run of a cancelled campaign is leased meanwhile"
    desk.do(lambda s: s.carry_on(left, 2))
    desk.do(lambda s: s.carry_on(left, 2))
    assert desk.run_states() == ["cancelled"] * 3
    assert desk.do(lambda s: s.carry_on(left, 2)) is None


class RequestsAtAnyTime(RuleBasedStateMachine):
    """Requests in pieces between everything that agents do, against a model of what each run may be."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.keys: list[AttemptKey] = []
        self.pending: PendingRequest | None = None
        self.published: dict[str, AttemptKey] = {}
        self.paused: set[str] = set()
        self.whole_paused = False

    @initialize()
    def begin(self) -> None:
        self.desk.register()
        self.desk.register("b", "s", slots=("0",))

    def teardown(self) -> None:
        self.desk.store.close()

    def model(self) -> dict[str, RunState]:
        with self.desk.store.snapshot() as read:
            return {run.run_id: run.state for run in read.runs("made-1")}

    @rule(place=st.sampled_from([("a", "0"), ("a", "1"), ("b", "0")]))
    def lease(self, place: tuple[str, str]) -> None:
        before, paused, campaign = self.model(), set(self.paused), self.desk.campaign()
        lease = self.desk.lease(*place)
        if lease is None:
            return
        key = lease.attempt.key
        if key in self.keys:
            return  # its answer is given again
        self.keys.append(key)
        assert before[key.run_id] in (RunState.WAITING, RunState.RUNNING)
        assert key.run_id not in paused and not campaign.paused
        assert campaign.state is CampaignState.RUNNING

    @precondition(lambda self: self.keys)
    @rule(
        data=st.data(), end=st.sampled_from(["publish", "begin", "end", "fail", "hang", "extend", "expire"])
    )
    def agents_act(self, data: st.DataObject, end: str) -> None:
        key = data.draw(st.sampled_from(self.keys))
        if end in ("publish", "begin"):
            if self.desk.attempt(key).segments == 0:
                self.desk.segment(key)
            begun = self.desk.begin(key)
            if end == "publish" and begun is FinishOutcome.PUBLISH and self.desk.end(key):
                self.published[key.run_id] = key
        elif end == "end":
            if self.desk.end(key):
                self.published[key.run_id] = key
        elif end == "extend":
            self.desk.do(lambda s: s.extend(key))
        elif end == "expire":
            self.desk.clock.ms += POLICY.lease_ms + 1
            self.desk.do(lambda s: s.expire())
        else:
            self.desk.fail(key, BROKEN if end == "fail" else HANG)
            self.desk.clock.ms += 60_000

    @precondition(lambda self: self.pending is None)
    @rule(
        action=st.sampled_from(RunsAction),
        run_id=st.sampled_from(["", FIRST, SECOND, THIRD]),
        at_once=st.booleans(),
    )
    def ask(self, action: RunsAction, run_id: str, at_once: bool) -> None:
        before, state = self.model(), self.desk.campaign().state
        asked = RunsRequest("made-1", run_id=run_id, at_once=at_once)
        chosen = {run_id: before[run_id]} if run_id else before
        is_open = any(s in (RunState.WAITING, RunState.RUNNING) for s in chosen.values())
        over = state in (CampaignState.DONE, CampaignState.FAILED, CampaignState.CANCELLED)
        lost = any(s in (RunState.FAILED, RunState.CANCELLED) for s in chosen.values())
        refused = {
            RunsAction.PAUSE: over or bool(run_id and not is_open),
            RunsAction.RESUME: over or bool(run_id and (not is_open or self.desk.campaign().paused)),
            RunsAction.CANCEL: False,
            RunsAction.RETRY: not lost,
        }[action]
        try:
            self.pending = self.desk.do(lambda s: s.ask(action, asked))
        except RefusedError:
            assert refused, f"{action} of {chosen} in {state}"
        else:
            assert not refused, f"{action} of {chosen} in {state}"

    @precondition(lambda self: self.pending is not None)
    @rule(piece=st.integers(1, 4))
    def carry_on(self, piece: int) -> None:
        assert self.pending is not None
        pending = self.pending
        before = self.model()
        self.desk.do(lambda s: s.carry_on(pending, piece))
        for run_id, state in self.model().items():
            if before[run_id] is RunState.DONE:
                assert state is RunState.DONE, "no request undoes what is published"
        with self.desk.store.snapshot() as read:
            self.paused = {run.run_id for run in read.runs("made-1") if run.paused}
        if not is_pending(self.desk, pending):
            self._carried_out(pending)
            self.pending = None

    def _carried_out(self, request: PendingRequest) -> None:
        asked, after = request.asked, self.model()
        chosen = [after[asked.run_id]] if asked.run_id else list(after.values())
        if request.action is RunsAction.CANCEL:
            assert all(s in (RunState.DONE, RunState.FAILED, RunState.CANCELLED) for s in chosen)
        if request.action is RunsAction.RESUME:
            assert not self.paused & ({asked.run_id} if asked.run_id else set(after))

    @rule()
    def analysed(self) -> None:
        retried = self.desk.campaign().retried
        self.desk.do(lambda s: s.end_analysis("made-1", None, retried))

    @invariant()
    def what_was_published_stays(self) -> None:
        with self.desk.store.snapshot() as read:
            for run_id, key in self.published.items():
                piece = read.slice(run_id, 0)
                assert piece is not None and piece.state is SliceState.DONE
                assert piece.content_hash == f"hash by {key.token}"

    @invariant()
    def runs_slices_and_attempts_agree(self) -> None:
        with self.desk.store.snapshot() as read:
            campaign = read.campaign("made-1")
            assert campaign is not None
            for run in read.runs("made-1"):
                [piece] = read.slices(run.run_id)
                live = [
                    a for a in read.attempts(run.run_id)
                    if a.state in (AttemptState.LEASED, AttemptState.PUBLISHING)
                ]  # fmt: skip
                assert bool(live) is (piece.state is SliceState.LEASED)
                assert (run.state is RunState.RUNNING) is bool(live)
                if run.state not in (RunState.WAITING, RunState.RUNNING):
                    assert not run.paused
                if campaign.state in (CampaignState.DONE, CampaignState.FAILED):
                    assert run.state not in (RunState.WAITING, RunState.RUNNING)
            if self.pending is None and campaign.state is CampaignState.RUNNING:
                assert read.open_ends("made-1").open_runs, "it would never end"
            if campaign.state not in (CampaignState.RUNNING, CampaignState.ANALYSING):
                assert not campaign.paused


TestRequestsAtAnyTime = RequestsAtAnyTime.TestCase
TestRequestsAtAnyTime.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
