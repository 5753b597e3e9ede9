"""State transitions: how the end of an attempt changes its slice, run and campaign. In one transaction.

A run's state follows from those of its slices, and a campaign's from those of its runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure, failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaign_file.compiled import SlicePlan
from assay_server.campaigns.scheduling.fitting_slots import elsewhere
from assay_server.campaigns.scheduling.queue import Queue
from assay_server.campaigns.scheduling.resting import RestingSlots, RestPolicy, Window, is_of_box
from assay_server.campaigns.scheduling.retry import (
    MOST_GPUS_LOST,
    MOST_SLOTS_FAILED,
    RetryPolicy,
    failure_of_lost_gpus,
    failure_of_refusals,
    failure_of_slots,
    gpus_lost,
    is_refusal,
    lost_gpu,
    refusals,
    slots_failed,
    workload_runs,
)
from assay_server.campaigns.slicing.reslice import flags_of_plan, slices_of, waiting_for_light
from assay_server.store.model import (
    ENDED_RUNS,
    OPEN_RUNS,
    Attempt,
    Campaign,
    Hold,
    Run,
    Segment,
    Slice,
    SliceState,
)
from assay_server.store.sql import SqlTransaction


def run_state(slices: Collection[SliceState]) -> RunState:
    """Failed or cancelled as soon as one slice is; done once all are; running once one has begun."""
    if SliceState.FAILED in slices:
        return RunState.FAILED
    if SliceState.CANCELLED in slices:
        return RunState.CANCELLED
    if all(state is SliceState.DONE for state in slices):
        return RunState.DONE
    begun = any(state is not SliceState.WAITING for state in slices)
    return RunState.RUNNING if begun else RunState.WAITING


def campaign_state(runs: Collection[RunState]) -> CampaignState:
    """Running until every run has ended; then analysing if any run has data, else failed.

    Cancelled if a person cancelled every run.
    """
    if any(state not in ENDED_RUNS for state in runs):
        return CampaignState.RUNNING
    if RunState.DONE in runs:
        return CampaignState.ANALYSING
    return CampaignState.FAILED if RunState.FAILED in runs else CampaignState.CANCELLED


def failure_of_runs(runs: Sequence[Run]) -> Failure | None:
    """Why a campaign with these runs failed: the number of failed runs and the first; None if none failed."""
    failed = [run for run in runs if run.state is RunState.FAILED]
    if not failed:
        return None
    first, run_id = failed[0].failure, failed[0].run_id
    cause = f"{len(failed)} of {len(runs)} runs failed"
    if first is None:
        return Failure("internal", run_id, cause)
    cause = f"{cause}; the first: {first.subject}: {first.cause}"
    return replace(first, subject=run_id, cause=cause, retryable=False)


# Runs that may still get launches: failed and cancelled ones are not measured again.
HOPEFUL_RUNS = (RunState.WAITING, RunState.RUNNING, RunState.DONE)
UNENDED_ATTEMPTS = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


@dataclass(frozen=True)
class SchedulePolicy:
    """How long a lease lasts without a sign of life, when to retry a slice, and how long slots rest.

    ``windows``: times in which agents get no runs. ``person_gpu_hours``: what each person may use in 30 days;
    0: no limit.
    """

    lease_ms: int = 60_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    rest: RestPolicy = field(default_factory=RestPolicy)
    windows: tuple[Window, ...] = ()
    person_gpu_hours: float = 0.0


@dataclass
class Effects:
    """Effects to announce once the transaction is durable."""

    campaigns: set[str] = field(default_factory=set)  # their status changed
    analyse: set[str] = field(default_factory=set)  # every run has ended
    dead: list[AttemptKey] = field(default_factory=list)  # their staged segments are no longer needed
    rested: list[tuple[Attempt, Failure]] = field(default_factory=list)  # failed through their boxes' fault
    refused: list[str] = field(default_factory=list)  # agents whose policies refused a run
    leased: list[tuple[AttemptKey, Run]] = field(default_factory=list)  # got GPUs
    stored: list[Segment] = field(default_factory=list)  # they are durable
    # Attempts that gave their slots back, as they were, with their state from now on.
    ended: list[tuple[Attempt, AttemptState, Failure | None]] = field(default_factory=list)
    doubt: bool = False  # what the queue has in memory is read again
    # A slice may be waiting. A free slot does not set this: its own agent asks for work, and waking all
    # others whenever an attempt ends costs one request per idle slot.
    work: bool = False


@dataclass(eq=False)
class Transitions:
    """State changes in one transaction at one moment; apply ``effects`` after the commit."""

    store: SqlTransaction
    policy: SchedulePolicy
    now_ms: int
    resting: RestingSlots
    queue: Queue
    effects: Effects = field(default_factory=Effects)
    _campaigns_of: dict[str, str | None] = field(default_factory=dict)

    def run_of(self, run_id: str) -> Run:
        """The run of a slice or attempt that this transaction has read: foreign keys keep it in the store."""
        run = self.store.run(run_id)
        if run is None:
            raise StorageError(run_id, "the store lost this run")
        return run

    def slice_of(self, key: AttemptKey) -> Slice:
        """The slice of an attempt that this transaction has read: foreign keys keep it in the store."""
        piece = self.store.slice(key.run_id, key.slice_index)
        if piece is None:
            raise StorageError(key.run_id, "the store lost a slice of this run")
        return piece

    def live_attempt(self, key: AttemptKey) -> Attempt | None:
        """The attempt of a key if it is still wanted (leased or publishing); an expired one is revived."""
        attempt = self.store.attempt(key.run_id, key.slice_index, key.attempt)
        if attempt is None or attempt.key != key:
            return None
        if attempt.state is AttemptState.EXPIRED and self._may_come_back(attempt):
            attempt = replace(
                attempt,
                state=AttemptState.LEASED,
                failure=None,
                ended_at_ms=0,
                lease_ends_at_ms=self.now_ms + self.policy.lease_ms,
            )
            self.store.save_attempt(attempt)
            self.note_lease(key, self.run_of(key.run_id))
            self.set_slice(replace(self.slice_of(key), state=SliceState.LEASED))
        return attempt if attempt.state in (AttemptState.LEASED, AttemptState.PUBLISHING) else None

    def _may_come_back(self, attempt: Attempt) -> bool:
        """Whether it expired, its slice waits, and its slots are free. A newer lease supersedes it."""
        leased = self.store.attempts_in((AttemptState.LEASED,), agent_id=attempt.agent_id)
        free = not any(set(attempt.slots) & set(other.slots) for other in leased)
        return free and self.slice_of(attempt.key).state is SliceState.WAITING

    def fail_attempt(self, attempt: Attempt, why: Failure, state: AttemptState) -> None:
        """End a failed attempt; its slice waits for another try, or fails with its run."""
        key = attempt.key
        self.end_attempt(attempt, state, why)
        piece = self.slice_of(key)
        if piece.state is not SliceState.LEASED:
            return
        run = self.run_of(key.run_id)
        if lost_gpu(why) and self._give_up_workload(run, why):
            return
        if is_of_box(why) and not lost_gpu(why):
            delay_ms, why = self._after_fault_of_box(attempt, run, why)
        elif is_refusal(why):
            delay_ms, why = self._after_refusal(attempt, run, why)
        else:
            delay_ms = self.policy.retry.delay_after(self.tries(key), why)
        if delay_ms is None and state is AttemptState.EXPIRED:
            self.end_attempt(attempt, AttemptState.FAILED, why)
        self._try_again_or_fail(piece, delay_ms, why)
        if delay_ms is None:
            self._set_workload_aside(run, why)

    def _try_again_or_fail(self, piece: Slice, delay_ms: int | None, why: Failure) -> None:
        """Let a slice wait for its next try; None: it has no more, and fails with its run."""
        if delay_ms is None:
            self.set_slice(replace(piece, state=SliceState.FAILED), why)
        else:
            self.effects.work = True
            self.set_slice(replace(piece, state=SliceState.WAITING, not_before_ms=self.now_ms + delay_ms))

    def _set_workload_aside(self, run: Run, why: Failure) -> None:
        """Fail the open runs of a workload that failed in many slots and of which nothing ever succeeded."""
        slots = slots_failed(self.store, run)
        runs = workload_runs(self.store, run) if len(slots) >= MOST_SLOTS_FAILED else []
        if not any(other.state is RunState.DONE for other in runs):
            for other in runs:
                self._fail_run(other, failure_of_slots(why, other, slots))

    def tries(self, key: AttemptKey) -> list[Attempt]:
        """The attempts of a slice that count as its tries: those since a person last had it tried again."""
        first = self.slice_of(key).tries_from
        return [a for a in self.store.attempts(key.run_id, key.slice_index) if a.key.attempt >= first]

    def _after_fault_of_box(self, attempt: Attempt, run: Run, why: Failure) -> tuple[int | None, Failure]:
        """Let the slot rest; returns RetryPolicy.delay_after's delay, and the failure if the run ends."""
        attempts = self.tries(attempt.key)
        if self.resting.run_is_to_blame(attempts):
            tried = len({(a.agent_id, a.slot_id) for a in attempts if is_of_box(a.failure)})
            slots = "1 slot" if tried == 1 else f"{tried} slots"
            cause = f"it failed like this on {slots} that did other runs since; the last time: {why.cause}"
            return None, replace(why, cause=cause, retryable=False)
        others = elsewhere(run, attempt, self.store.agents(), self.now_ms)
        # Whether they have done no run since they failed for a reason that only a person can fix.
        stuck = (
            (rest := self.resting.last(*other)) is not None and not rest.why.retryable for other in others
        )
        if not why.retryable and all(stuck):
            return None, why
        self.effects.rested.append((attempt, why))
        return 0, why

    def _after_refusal(self, attempt: Attempt, run: Run, why: Failure) -> tuple[int | None, Failure]:
        """Let other agents have the slice; returns the delay, and the failure if every one refused it."""
        self.effects.refused.append(attempt.agent_id)
        refused = refusals(self.tries(attempt.key))
        others = elsewhere(run, attempt, self.store.agents(), self.now_ms)
        if any(agent_id not in refused for agent_id, _ in others):
            return 0, why
        return None, failure_of_refusals(why, refused)

    def lose_record(self, piece: Slice, why: Failure) -> None:
        """The published file of a slice is missing or changed: the slice waits again, or fails.

        Its run follows, and its campaign runs again; a campaign that has ended for good stays as it is.
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
        delay_ms = self.policy.retry.delay_after(self.store.attempts(piece.run_id, piece.index), why)
        # Reopen run and campaign first: setting the slice's state decides how they continue.
        self.store.save_run(replace(run, state=RunState.RUNNING, flags=self._flags_without(run, published)))
        self.store.save_campaign(replace(campaign, state=CampaignState.RUNNING, failure=None))
        self.effects.campaigns.add(campaign.campaign_id)
        emptied = replace(piece, file="", file_bytes=0, content_hash="", launches=0)
        self._try_again_or_fail(emptied, delay_ms, why)

    def _flags_without(self, run: Run, lost: Attempt | None) -> tuple[ValidityFlag, ...]:
        """The flags of a run without those that only the lost attempt set."""
        published = [a for a in self.store.attempts(run.run_id) if a.state is AttemptState.PUBLISHED]
        published_flags = {flag for attempt in published for flag in attempt.flags}
        gone = set(lost.flags if lost is not None else ()) - published_flags
        return tuple(flag for flag in run.flags if flag not in gone)

    def _give_up_workload(self, run: Run, why: Failure) -> bool:
        """Fail every open run of a workload that lost too many GPUs; False if it did not."""
        lost = gpus_lost(self.store, run)
        if len(lost) < MOST_GPUS_LOST:
            return False
        for other in workload_runs(self.store, run):
            self._fail_run(other, failure_of_lost_gpus(why, other, lost))
        return True

    def _fail_run(self, run: Run, why: Failure) -> None:
        """Fail a run, if it is open, through its first slice that has not ended; this cancels the others."""
        if run.state not in OPEN_RUNS:
            return
        open_slices = (SliceState.WAITING, SliceState.LEASED)
        piece = next((p for p in self.store.slices(run.run_id) if p.state in open_slices), None)
        if piece is not None:
            self.set_slice(replace(piece, state=SliceState.FAILED), why)
        elif not self.store.slices(run.run_id):  # it waits for its light run
            self.store.save_run(replace(run, state=RunState.FAILED, failure=why))
            self.note_change(run.run_id)
            self.advance(run.campaign_id)

    def end_attempt(self, attempt: Attempt, state: AttemptState, why: Failure | None) -> None:
        """Save an attempt that has ended; the caller decides about its slice."""
        run = self.run_of(attempt.key.run_id)  # first, so that what follows need not ask for its campaign
        self.store.save_attempt(replace(attempt, state=state, failure=why, ended_at_ms=self.now_ms))
        self.effects.ended.append((attempt, state, why))
        if state is not AttemptState.EXPIRED:
            self.effects.dead.append(attempt.key)
        self.note_change(attempt.key.run_id)
        if run.placement.concerns_other_slots:
            self.effects.work = True  # its rivals were kept idle; the other slots of a gang are free

    def set_slice(self, piece: Slice, why: Failure | None = None) -> None:
        """Save a slice and update its run and campaign."""
        run = self.run_of(piece.run_id)
        if run.state in ENDED_RUNS:
            self.store.save_slice(piece)
            return
        # A run that has not ended has no slice that failed or was cancelled.
        leased = piece.state is SliceState.LEASED
        beside = frozenset() if leased else self.store.states_beside(piece.run_id, piece.index)
        self.store.save_slice(piece)
        state = RunState.RUNNING if leased else run_state({piece.state} | beside)
        if state is not run.state:
            self.store.save_run(replace(run, state=state, failure=why))
            self.note_change(run.run_id)
        if state in ENDED_RUNS:
            if run.paused:
                self.store.pause_runs([run.run_id], False)
            if state is not RunState.DONE:  # of a run that is done no slice is open, and no attempt
                self.cancel_slices(run.run_id)
                self.start_detailed(run, None)
            self.advance(run.campaign_id)

    def start_detailed(self, light: Run, plan: SlicePlan | None) -> None:
        """Give the detailed runs that waited for a light run their slices: those of ``plan``, or, if there is
        none, those from the beginning of the workload. Does nothing if none waited for this run."""
        for run in waiting_for_light(self.store, light):
            campaign = self.store.campaign(run.campaign_id)
            slicing = None if campaign is None else campaign.compiled.slicing
            flags = flags_of_plan(plan, 0.0 if slicing is None else slicing.time_budget_s)
            self.store.replace_slices(run.run_id, 0, slices_of(self.store, run, plan))
            self.store.save_run(replace(run, plan=plan, flags=(*run.flags, *flags)))
            self.note_change(run.run_id)
            self.effects.work = True

    def cancel_slices(self, run_id: str) -> None:
        """Cancel the slices of a run that have not ended, and their attempts."""
        for piece in self.store.slices(run_id):
            if piece.state in (SliceState.WAITING, SliceState.LEASED):
                self.store.save_slice(replace(piece, state=SliceState.CANCELLED))
        self.cancel_attempts([run_id])

    def cancel_attempts(self, run_ids: Sequence[str]) -> int:
        """End every attempt of these runs that has not ended; returns how many it was."""
        attempts = self.store.attempts_in(UNENDED_ATTEMPTS, run_ids=run_ids)
        for attempt in attempts:
            why = failure(FailureClass.CANCELLED, f"run {attempt.key.run_id}")
            self.end_attempt(attempt, AttemptState.CANCELLED, why)
        return len(attempts)

    def advance(self, campaign_id: str) -> None:
        """Analyse or end a campaign whose runs have all ended, once no request about it is pending."""
        self.effects.campaigns.add(campaign_id)
        # First what costs little: most runs are not the last of their campaign.
        left = self.store.open_ends(campaign_id)
        ends = not (left.open_runs or left.requests)
        if not ends and not left.held_slices:
            return
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.RUNNING:
            return
        if not ends:
            self._release_after(campaign)
            return
        state = campaign_state(self.store.run_counts(campaign_id))
        if state is CampaignState.ANALYSING:
            self.store.save_campaign(replace(campaign, state=state))
            self.effects.analyse.add(campaign_id)
            return
        why = failure_of_runs(self.store.runs(campaign_id))
        ended = replace(campaign, state=state, failure=why, paused=False, ended_at_ms=self.now_ms)
        self.store.save_campaign(ended)

    def _release_after(self, campaign: Campaign) -> None:
        """Let workloads wait for a slot whose predecessors have all ended, with any outcome."""
        after = campaign.compiled.scheduling.after
        if not after:
            return
        waiting = self.store.held_workloads(campaign.campaign_id)
        if not waiting:
            return
        still_open = self.store.open_workloads(campaign.campaign_id)
        free = {name for name in waiting if not still_open & set(after.get(name, ()))}
        for run in self.store.runs(campaign.campaign_id) if free else ():
            if run.workload in free and Hold.AFTER in run.holds:
                self.store.set_holds([run.run_id], set(run.holds) - {Hold.AFTER})
                self.effects.work = True

    def note_lease(self, key: AttemptKey, run: Run) -> None:
        """Note that an attempt of a run got its slots; only time on GPUs is counted."""
        if run.device_key:
            self.effects.leased.append((key, run))

    def note_change(self, run_id: str) -> None:
        """Note that this transaction changes the status of a run's campaign."""
        if run_id not in self._campaigns_of:
            self._campaigns_of[run_id] = self.store.campaign_of(run_id)
        if (campaign_id := self._campaigns_of[run_id]) is not None:
            self.effects.campaigns.add(campaign_id)
