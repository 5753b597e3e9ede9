"""What follows from what: how the end of an attempt moves its slice, run and campaign. In one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from assay_sampling.failures import FailureClass, failure
from assay_server.campaigns.lost_gpus import given_up, gpus_lost, too_many, workload_runs
from assay_server.campaigns.places import elsewhere
from assay_server.campaigns.resting import RestingSlots, RestPolicy, is_of_box
from assay_server.campaigns.retry import RetryPolicy, failure_record, lost_gpu
from assay_server.campaigns.state import campaign_state, failure_of_runs, run_state
from assay_server.store.model import (
    ENDED_CAMPAIGNS,
    ENDED_RUNS,
    OPEN_RUNS,
    Attempt,
    AttemptKey,
    AttemptState,
    CampaignState,
    FailureRecord,
    Flag,
    Run,
    RunState,
    Slice,
    SliceState,
)
from assay_server.store.protocols import MetadataTransaction

# Runs that may still have launches: what failed or was cancelled is not measured again.
HOPEFUL_RUNS = (RunState.WAITING, RunState.RUNNING, RunState.DONE)
UNENDED_ATTEMPTS = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


@dataclass(frozen=True)
class SchedulePolicy:
    """How long a lease lasts without a sign of life, when a slice is tried again, and how long slots rest."""

    lease_ms: int = 60_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    rest: RestPolicy = field(default_factory=RestPolicy)


@dataclass
class Effects:
    """What others must hear once the transaction is durable."""

    campaigns: set[str] = field(default_factory=set)  # their status changed
    analyse: set[str] = field(default_factory=set)  # every run has ended
    dead: list[AttemptKey] = field(default_factory=list)  # nobody will ask for their staged segments
    rested: list[tuple[Attempt, FailureRecord]] = field(default_factory=list)  # failed by their boxes
    done: list[Attempt] = field(default_factory=list)  # their slots are in order
    # A slice may be waiting. Not that a slot has become free: its own agent asks for it, and to wake all
    # others whenever an attempt ends costs as many questions as there are idle slots.
    work: bool = False


class Transitions:
    """State changes over one transaction at one moment; ``effects`` are for after the commit."""

    def __init__(
        self,
        transaction: MetadataTransaction,
        policy: SchedulePolicy,
        now_ms: int,
        resting: RestingSlots | None = None,
    ) -> None:
        self.store = transaction
        self._policy = policy
        self._now_ms = now_ms
        self._resting = resting if resting is not None else RestingSlots()
        self.effects = Effects()

    def live_attempt(self, key: AttemptKey) -> Attempt | None:
        """The attempt of a key if it is still wanted (leased or publishing), revived where it had expired."""
        attempt = self.store.attempt(key.run_id, key.slice, key.attempt)
        if attempt is None or attempt.key != key:
            return None
        if attempt.state is AttemptState.EXPIRED and self._may_come_back(attempt):
            attempt = replace(
                attempt,
                state=AttemptState.LEASED,
                failure=None,
                ended_at_ms=0,
                deadline_ms=self._now_ms + self._policy.lease_ms,
            )
            self.store.save_attempt(attempt)
            piece = self.store.slice(key.run_id, key.slice)
            if piece is not None:
                self._set_slice(replace(piece, state=SliceState.LEASED))
        return attempt if attempt.state in (AttemptState.LEASED, AttemptState.PUBLISHING) else None

    def _may_come_back(self, attempt: Attempt) -> bool:
        """Expired, its slice waits, and its slot runs nothing else. A newer lease makes it superseded."""
        piece = self.store.slice(attempt.key.run_id, attempt.key.slice)
        busy = self.store.attempts_in(
            (AttemptState.LEASED,), agent_id=attempt.agent_id, slot_id=attempt.slot_id
        )
        return piece is not None and piece.state is SliceState.WAITING and not busy

    def _fail(self, attempt: Attempt, why: FailureRecord, state: AttemptState) -> None:
        key = attempt.key
        self._end(attempt, state, why)
        piece = self.store.slice(key.run_id, key.slice)
        if piece is None or piece.state is not SliceState.LEASED:
            return
        if lost_gpu(why) and self._give_up_workload(key.run_id, why):
            return
        if is_of_box(why) and not lost_gpu(why):
            delay_ms, why = self._after_fault_of_box(attempt, why)
        else:
            delay_ms = self._policy.retry.delay_after(self.store.attempts(key.run_id, key.slice), why)
        if delay_ms is not None:
            self.effects.work = True
            self._set_slice(replace(piece, state=SliceState.WAITING, not_before_ms=self._now_ms + delay_ms))
            return
        if state is AttemptState.EXPIRED:
            self._end(attempt, AttemptState.FAILED, why)
        self._set_slice(replace(piece, state=SliceState.FAILED), why)

    def _after_fault_of_box(self, attempt: Attempt, why: FailureRecord) -> tuple[int | None, FailureRecord]:
        """Let the slot rest; returns as RetryPolicy.delay_after does, and the failure of a run that ends."""
        attempts = self.store.attempts(attempt.key.run_id, attempt.key.slice)
        if self._resting.run_is_to_blame(attempts):
            tried = len({(a.agent_id, a.slot_id) for a in attempts if is_of_box(a.failure)})
            slots = "1 slot" if tried == 1 else f"{tried} slots"
            cause = f"it failed so on {slots} that did other runs since; the last time: {why.cause}"
            return None, replace(why, cause=cause, retryable=False)
        run = self.store.run(attempt.key.run_id)
        others = [] if run is None else elsewhere(run, attempt, self.store.agents(), self._now_ms)
        if not why.retryable and all(self._is_stuck(agent_id, slot_id) for agent_id, slot_id in others):
            return None, why
        self.effects.rested.append((attempt, why))
        return 0, why

    def _is_stuck(self, agent_id: str, slot_id: str) -> bool:
        """Whether a slot has done nothing since it failed for what only a person mends."""
        rest = self._resting.last(agent_id, slot_id)
        return rest is not None and rest.lasting

    def lose_record(self, piece: Slice, why: FailureRecord) -> None:
        """The published file of a slice is not what was published: the slice waits again, or has failed.

        So does its run, and its campaign runs again; one that has ended for good stays as it is.
        """
        run = self.store.run(piece.run_id)
        campaign = None if run is None else self.store.campaign(run.campaign_id)
        if run is None or run.state not in HOPEFUL_RUNS or campaign is None:
            return
        if self.store.slice(piece.run_id, piece.index) != piece or campaign.state in ENDED_CAMPAIGNS:
            return
        attempts = self.store.attempts(piece.run_id, piece.index)
        published = next((a for a in attempts if a.state is AttemptState.PUBLISHED), None)
        if published is not None:
            self.store.save_attempt(replace(published, state=AttemptState.FAILED, failure=why))
        delay_ms = self._policy.retry.delay_after(self.store.attempts(piece.run_id, piece.index), why)
        # Run and campaign are open again before the slice's state tells what becomes of them.
        self.store.save_run(replace(run, state=RunState.RUNNING, flags=self._flags_without(run, published)))
        self.store.save_campaign(replace(campaign, state=CampaignState.RUNNING))
        self.effects.campaigns.add(campaign.campaign_id)
        emptied = replace(piece, file="", file_bytes=0, content_hash="", launches=0)
        if delay_ms is None:
            self._set_slice(replace(emptied, state=SliceState.FAILED), why)
            return
        self.effects.work = True
        self._set_slice(replace(emptied, state=SliceState.WAITING, not_before_ms=self._now_ms + delay_ms))

    def _flags_without(self, run: Run, lost: Attempt | None) -> tuple[Flag, ...]:
        """The flags of a run, less those that only the attempt set whose launches are lost."""
        published = [a for a in self.store.attempts(run.run_id) if a.state is AttemptState.PUBLISHED]
        kept = {flag for attempt in published for flag in attempt.flags}
        gone = set(lost.flags if lost is not None else ()) - kept
        return tuple(flag for flag in run.flags if flag not in gone)

    def _give_up_workload(self, run_id: str, why: FailureRecord) -> bool:
        """Fail every open run of a workload that has lost too many GPUs; False where it has not."""
        run = self.store.run(run_id)
        lost = () if run is None else gpus_lost(self.store, run)
        if run is None or not too_many(lost):
            return False
        for other in workload_runs(self.store, run):
            if other.state in OPEN_RUNS:
                self._fail_run(other, given_up(why, other, lost))
        return True

    def _fail_run(self, run: Run, why: FailureRecord) -> None:
        """Fail an open run by its first slice that has not ended; the others are cancelled with it."""
        open_slices = (SliceState.WAITING, SliceState.LEASED)
        piece = next((p for p in self.store.slices(run.run_id) if p.state in open_slices), None)
        if piece is not None:
            self._set_slice(replace(piece, state=SliceState.FAILED), why)

    def _end(self, attempt: Attempt, state: AttemptState, why: FailureRecord | None) -> None:
        self.store.save_attempt(replace(attempt, state=state, failure=why, ended_at_ms=self._now_ms))
        if state is not AttemptState.EXPIRED:
            self.effects.dead.append(attempt.key)
        self._changed(attempt.key.run_id)

    def _set_slice(self, piece: Slice, why: FailureRecord | None = None) -> None:
        """Save a slice and let its run and campaign follow."""
        self.store.save_slice(piece)
        run = self.store.run(piece.run_id)
        if run is None or run.state in ENDED_RUNS:
            return
        state = run_state(self.store.slice_states(piece.run_id))
        if state is not run.state:
            self.store.save_run(replace(run, state=state, failure=why))
            self._changed(run.run_id)
        if state in ENDED_RUNS:
            self._cancel_slices(run.run_id)
            self._advance(run.campaign_id)

    def _cancel_slices(self, run_id: str) -> None:
        for piece in self.store.slices(run_id):
            if piece.state in (SliceState.WAITING, SliceState.LEASED):
                self.store.save_slice(replace(piece, state=SliceState.CANCELLED))
        for attempt in self.store.attempts(run_id):
            if attempt.state in UNENDED_ATTEMPTS:
                why = failure_record(failure(FailureClass.CANCELLED, f"run {run_id}"))
                self._end(attempt, AttemptState.CANCELLED, why)

    def _advance(self, campaign_id: str) -> None:
        campaign = self.store.campaign(campaign_id)
        self.effects.campaigns.add(campaign_id)
        if campaign is None or campaign.state is not CampaignState.RUNNING:
            return
        if self.store.open_runs(campaign_id):
            return
        runs = self.store.runs(campaign_id)
        state = campaign_state([run.state for run in runs])
        if state is CampaignState.ANALYSING:
            self.store.save_campaign(replace(campaign, state=state))
            self.effects.analyse.add(campaign_id)
        elif state is CampaignState.FAILED:
            self.store.save_campaign(
                replace(campaign, state=state, failure=failure_of_runs(runs), ended_at_ms=self._now_ms)
            )

    def _changed(self, run_id: str) -> None:
        run = self.store.run(run_id)
        if run is not None:
            self.effects.campaigns.add(run.campaign_id)
