"""Leases: who runs which slice, until when, and what becomes of it. All inside one metadata transaction.

The rules: a slot has at most one leased attempt, a slice at most one that is leased or being published,
and at most one that is published, ever. Each lease takes a fencing token larger than all before; whoever
comes with another token than that of the slice's newest attempt is told to drop it. Each lease also comes
with a secret, and only the process that it was given to, or a later one of the same agent that registers
the secret, may write to the attempt. An attempt whose
lease ran out may come back as long as nobody else has been given its slice: days of profiling are not
thrown away for a network that was down for a minute.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from assay_sampling.errors import DuplicateIdentityError, ParameterError, StorageError
from assay_sampling.failures import FailureClass, failure
from assay_sampling.validity import FLAGS
from assay_server.campaigns.choice import choose
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.kinds import LaunchKinds
from assay_server.campaigns.lost_gpus import gpus_lost, too_many
from assay_server.campaigns.repeats import Key, further_runs
from assay_server.campaigns.reslice import rest_after
from assay_server.campaigns.retry import failure_record
from assay_server.campaigns.state import failure_of_runs
from assay_server.campaigns.transitions import UNENDED_ATTEMPTS, Transitions
from assay_server.store.model import (
    ENDED_CAMPAIGNS,
    ENDED_RUNS,
    Agent,
    Attempt,
    AttemptKey,
    AttemptLog,
    AttemptState,
    Campaign,
    CampaignState,
    Claim,
    FailureRecord,
    Flag,
    Run,
    RunState,
    Segment,
    Slice,
    SliceState,
    Slot,
)
from assay_server.store.protocols import PublishedFile

_SEEN_EVERY_MS = 10_000
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Lease:
    """What a slot is to run."""

    attempt: Attempt
    run: Run
    slice: Slice


class SegmentOutcome(Enum):
    """What becomes of a durable segment."""

    ADDED = "added"
    OUT_OF_ORDER = "out of order"
    NOT_WANTED = "not wanted"


class FinishOutcome(Enum):
    """What becomes of an attempt that says it is finished."""

    PUBLISH = "publish"
    ALREADY_PUBLISHED = "already published"
    NOT_WANTED = "not wanted"


class Schedule(Transitions):
    """The scheduler's verbs over one transaction at one moment; ``effects`` are for after the commit."""

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Take in a planned campaign: its slices wait from now on."""
        self.store.add_campaign(campaign, runs, slices)
        self.effects.campaigns.add(campaign.campaign_id)
        self.effects.work = True

    def register(
        self, agent: Agent, held: Mapping[AttemptKey, bytes]
    ) -> tuple[list[AttemptKey], list[AttemptKey]]:
        """Take in an agent's process; returns which of the attempts it holds to resume, and which to drop.

        ``held``: attempts of an earlier process that it found on its disk, with the secrets of their leases.
        Others of an earlier process are lost: their slices wait again at once.
        """
        self._require_one_of_its_kind(agent)
        self.store.put_agent(replace(agent, seen_at_ms=self._now_ms))
        for attempt in self.store.attempts_in((AttemptState.LEASED,), agent_id=agent.agent_id):
            kept = attempt.belongs_to(agent.agent_id, held.get(attempt.key, b""))
            if attempt.session_id != agent.session_id and not kept:
                self._lose(attempt, FailureClass.AGENT_RESTARTED, AttemptState.FAILED)
        resume, drop = [], []
        for key, secret in held.items():
            known = self.store.attempt(key.run_id, key.slice, key.attempt)
            mine = known is not None and known.belongs_to(agent.agent_id, secret)
            wanted = self.live_attempt(key) if mine else None
            if wanted is None:
                drop.append(key)
                continue
            resume.append(key)
            self.store.save_attempt(replace(wanted, session_id=agent.session_id))
            self.extend(key)
        self.effects.work = True
        return resume, drop

    def _require_one_of_its_kind(self, agent: Agent) -> None:
        """Raises DuplicateIdentityError where an agent of this identity lives in another place."""
        known = self.store.agent(agent.agent_id)
        if known is None or known.session_id == agent.session_id:
            return
        places = (known.inventory.get("place", ""), agent.inventory.get("place", ""))
        silent_ms = self._now_ms - known.seen_at_ms
        if all(places) and places[0] != places[1] and silent_ms < _SEEN_EVERY_MS + self._policy.lease_ms // 2:
            raise DuplicateIdentityError(
                f"agent {agent.name}",
                f"its identity {agent.agent_id} is also that of agent {known.name} on host "
                f"{known.inventory.get('host') or 'unknown'}, seen {silent_ms // 1000} s ago: one state "
                "folder is a copy of the other",
                "on the copy: assay-agent new-identity --state DIR, then start that agent again",
            )

    def is_held(self, claim: Claim) -> bool:
        """Whether who claims an attempt holds its lease, or held it last: nobody else may write to it."""
        key = claim.key
        attempt = self.store.attempt(key.run_id, key.slice, key.attempt)
        return attempt is not None and attempt.is_held_by(claim)

    def is_registered(self, agent_id: str, session_id: str) -> bool:
        """Whether this is the present process of a known agent; notes that it was seen."""
        agent = self.store.agent(agent_id)
        if agent is None or agent.session_id != session_id:
            return False
        if self._now_ms - agent.seen_at_ms > _SEEN_EVERY_MS:
            self.store.put_agent(replace(agent, seen_at_ms=self._now_ms))
        return True

    def lease(self, agent_id: str, slot_id: str) -> Lease | None:
        """Work for a slot of a registered agent, or None; a slot that is out of service gets none.

        A slot whose attempt its agent has not confirmed is given the same again: the earlier answer was
        lost. Raises ParameterError for a slot that the agent did not register.
        """
        agent = self.store.agent(agent_id)
        slot = next((s for s in agent.slots if s.slot_id == slot_id), None) if agent else None
        if agent is None or slot is None:
            raise ParameterError(
                f"slot {slot_id!r}", f"agent {agent_id!r} did not register it", "register the agent again"
            )
        if slot.quarantine_reason:
            return None
        held = self.store.attempts_in((AttemptState.LEASED,), agent_id=agent_id, slot_id=slot_id)
        if held:
            return None if held[0].confirmed else self._lease_of(held[0])
        found = choose(self.store, self._resting, agent, slot, self._now_ms)
        return None if found is None else self._give(*found, agent, slot)

    def _lease_of(self, attempt: Attempt) -> Lease:
        run = self.store.run(attempt.key.run_id)
        piece = self.store.slice(attempt.key.run_id, attempt.key.slice)
        if run is None or piece is None:  # foreign keys hold these
            raise StorageError(attempt.key.run_id, "the store lost the run of this attempt")
        return Lease(attempt, run, piece)

    def _give(self, run: Run, piece: Slice, agent: Agent, slot: Slot) -> Lease:
        earlier = self.store.attempts(run.run_id, piece.index)
        for expired in (a for a in earlier if a.state is AttemptState.EXPIRED):
            self._end(expired, AttemptState.SUPERSEDED, expired.failure)
        number = earlier[-1].key.attempt + 1 if earlier else 1
        attempt = Attempt(
            key=AttemptKey(run.run_id, piece.index, number, self.store.next_token()),
            state=AttemptState.LEASED,
            agent_id=agent.agent_id,
            agent_name=agent.name,
            session_id=agent.session_id,
            slot_id=slot.slot_id,
            leased_at_ms=self._now_ms,
            deadline_ms=self._now_ms + self._policy.lease_ms,
            write_secret=secrets.token_bytes(_SECRET_BYTES),
        )
        self.store.add_attempt(attempt)
        self._set_slice(replace(piece, state=SliceState.LEASED))
        return Lease(attempt, run, piece)

    def extend(self, key: AttemptKey, launches_spooled: int = 0) -> bool:
        """A sign of life: the lease starts anew. False: the attempt must be dropped."""
        attempt = self.live_attempt(key)
        if attempt is None:
            return False
        if attempt.state is AttemptState.LEASED:
            if launches_spooled > attempt.launches_spooled:
                self._changed(key.run_id)
            self.store.save_attempt(
                replace(
                    attempt,
                    deadline_ms=self._now_ms + self._policy.lease_ms,
                    confirmed=True,
                    launches_spooled=max(launches_spooled, attempt.launches_spooled),
                )
            )
        return True

    def extend_all(self) -> None:
        """Every lease starts anew: the server was away, which is not the agents' fault."""
        for attempt in self.store.attempts_in((AttemptState.LEASED,)):
            self.store.save_attempt(replace(attempt, deadline_ms=self._now_ms + self._policy.lease_ms))

    def mend_clocks(self) -> None:
        """At a start: times that an earlier process wrote lie at most as far ahead as they may from now.

        Its clock may have been ahead by a day: nobody rests that long, and nobody was seen tomorrow.
        """
        for piece in self.store.resting_slices(self._now_ms):
            attempts = self.store.attempts(piece.run_id, piece.index)
            why = attempts[-1].failure if attempts else None
            delay_ms = self._policy.retry.delay_after(attempts, why) if why is not None else 0
            until_ms = min(piece.not_before_ms, self._now_ms + (delay_ms or 0))
            self.store.save_slice(replace(piece, not_before_ms=until_ms))
        for agent in self.store.agents():
            if agent.seen_at_ms > self._now_ms:
                self.store.put_agent(replace(agent, seen_at_ms=self._now_ms))

    def expire(self) -> None:
        """Give the slices of leases that ran out to somebody else."""
        for attempt in self.store.attempts_in((AttemptState.LEASED,), deadline_before_ms=self._now_ms):
            self._lose(attempt, FailureClass.LEASE_EXPIRED, AttemptState.EXPIRED)

    def _lose(self, attempt: Attempt, failure_class: FailureClass, state: AttemptState) -> None:
        cause = failure_record(failure(failure_class, f"agent {attempt.agent_name}"))
        self._fail(attempt, cause, state)

    def add_segment(self, segment: Segment, key: AttemptKey) -> SegmentOutcome:
        """Note a durable segment, the next of a live attempt."""
        attempt = self.live_attempt(key)
        if attempt is None:
            self.effects.dead.append(key)
            return SegmentOutcome.NOT_WANTED
        if attempt.state is not AttemptState.LEASED:
            return SegmentOutcome.NOT_WANTED
        if attempt.segments != segment.index:
            return SegmentOutcome.OUT_OF_ORDER
        self.store.add_segment(segment)
        self.store.save_attempt(
            replace(
                attempt,
                segments=attempt.segments + 1,
                launches=attempt.launches + segment.launches,
                deadline_ms=self._now_ms + self._policy.lease_ms,
                confirmed=True,
            )
        )
        self._changed(key.run_id)
        return SegmentOutcome.ADDED

    def fail(self, key: AttemptKey, why: FailureRecord, log: AttemptLog | None = None) -> None:
        """End an attempt that failed; nothing happens where it is not wanted any more."""
        attempt = self.live_attempt(key)
        if attempt is not None:
            self._fail(replace(attempt, log=log or attempt.log), why, AttemptState.FAILED)

    def begin_publish(
        self, key: AttemptKey, segments: int, launches: int, flags: tuple[Flag, ...], log: AttemptLog
    ) -> FinishOutcome:
        """An attempt says that it is complete, with so many segments and launches.

        Any slice but a run's first may have none: the workload ended before it.
        """
        before = self.store.attempt(key.run_id, key.slice, key.attempt)
        if before is not None and before.key == key and before.state is AttemptState.PUBLISHED:
            return FinishOutcome.ALREADY_PUBLISHED
        attempt = self.live_attempt(key)
        if attempt is None:
            return FinishOutcome.NOT_WANTED
        if attempt.state is AttemptState.PUBLISHING:
            return FinishOutcome.PUBLISH
        attempt = replace(attempt, flags=flags, log=log)
        wrong = None if self._is_bare(attempt) else _wrong_counts(attempt, segments, launches)
        if wrong is not None:
            self._fail(attempt, wrong, AttemptState.FAILED)
            return FinishOutcome.NOT_WANTED
        again = self._worth_another_try(attempt)
        if again is not None:
            self._fail(attempt, again, AttemptState.FAILED)
            return FinishOutcome.NOT_WANTED
        self.store.save_attempt(replace(attempt, state=AttemptState.PUBLISHING))
        return FinishOutcome.PUBLISH

    def _is_bare(self, attempt: Attempt) -> bool:
        """Whether no launches are what its run is to give."""
        run = self.store.run(attempt.key.run_id)
        return run is not None and run.level == "bare" and not attempt.launches

    def _worth_another_try(self, attempt: Attempt) -> FailureRecord | None:
        """Why a live attempt's flags make it worth another try; None: they do not, or no try is left."""
        run = self.store.run(attempt.key.run_id)
        if run is None or run.command is None:  # a recording is always the same
            return None
        for flag in attempt.flags:
            kind = FLAGS.get(flag.name)
            if kind is None or kind.retry_as is None:
                continue
            cause = f"{kind.cause}: {flag.detail}" if flag.detail else kind.cause
            why = failure_record(failure(kind.retry_as, str(attempt.key), cause, kind.remedy))
            others = [a for a in self.store.attempts(*_slice_of(attempt)) if a.key != attempt.key]
            if self._policy.retry.delay_after([*others, replace(attempt, failure=why)], why) is not None:
                return why
        return None

    def end_publish(self, key: AttemptKey, file: PublishedFile, kinds: LaunchKinds | None = None) -> bool:
        """The slice's file is in its place. False: it is not wanted any more.

        ``kinds`` of launches in published slices decide how far a run goes that ends when nothing new comes.
        """
        attempt = self.store.attempt(key.run_id, key.slice, key.attempt)
        piece = self.store.slice(key.run_id, key.slice)
        if attempt is None or piece is None or attempt.key != key:
            return False
        if attempt.state is not AttemptState.PUBLISHING:
            return attempt.state is AttemptState.PUBLISHED
        self._end(attempt, AttemptState.PUBLISHED, None)
        self.effects.done.append(attempt)
        done = replace(
            piece,
            state=SliceState.DONE,
            file=file.file,
            file_bytes=file.file_bytes,
            content_hash=file.content_hash,
            launches=file.launches,
        )
        self.store.save_slice(done)
        run = self.store.run(key.run_id)
        if run is not None:
            rest = None if kinds is None else rest_after(self.store, run, kinds)
            if rest is not None:
                self.store.replace_slices(run.run_id, rest.index, rest.slices)
                self.effects.work = True
            flags = (*run.flags, *attempt.flags, *([rest.flag] if rest and rest.flag else []))
            self.store.save_run(replace(run, flags=tuple(dict.fromkeys(flags))))
        # The rest of the run stands before its state follows: it is done only if nothing is to come.
        self._set_slice(done)
        return True

    def cancel(self, campaign_id: str) -> Campaign:
        """Stop a campaign for good; one that has ended stays as it is. Raises UnknownThingError."""
        campaign = known_campaign(self.store.campaign(campaign_id), campaign_id)
        if campaign.state in ENDED_CAMPAIGNS:
            return campaign
        cancelled = replace(campaign, state=CampaignState.CANCELLED, ended_at_ms=self._now_ms)
        self.store.save_campaign(cancelled)
        for run in self.store.runs(campaign_id):
            if run.state not in ENDED_RUNS:
                self._cancel_slices(run.run_id)
                self.store.save_run(replace(run, state=RunState.CANCELLED))
        self.effects.campaigns.add(campaign_id)
        return cancelled

    def repeat(self, campaign_id: str, wanted: Mapping[Key, int]) -> bool:
        """Plan further repeats of an analysed campaign, which then runs again; False: there are none."""
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return False
        runs = further_runs(self.store.runs(campaign_id), wanted)
        runs = [run for run in runs if not too_many(gpus_lost(self.store, run))]
        if not runs:
            return False
        self.store.add_runs(runs, [Slice(run.run_id, 0) for run in runs])
        self.store.save_campaign(replace(campaign, state=CampaignState.RUNNING))
        self.effects.campaigns.add(campaign_id)
        self.effects.work = True
        return True

    def end_analysis(self, campaign_id: str, why: FailureRecord | None) -> None:
        """The report is written (``why`` None) or could not be made."""
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return
        found = why or failure_of_runs(self.store.runs(campaign_id))
        self.store.save_campaign(
            replace(
                campaign,
                state=CampaignState.DONE if found is None else CampaignState.FAILED,
                failure=found,
                has_report=why is None,
                ended_at_ms=self._now_ms,
            )
        )
        self.effects.campaigns.add(campaign_id)


def live_keys(attempts: Iterable[Attempt]) -> list[AttemptKey]:
    """Keys of attempts whose staged segments may still be asked for."""
    return [attempt.key for attempt in attempts if attempt.state in UNENDED_ATTEMPTS]


def _slice_of(attempt: Attempt) -> tuple[str, int]:
    return attempt.key.run_id, attempt.key.slice


def _wrong_counts(attempt: Attempt, segments: int, launches: int) -> FailureRecord | None:
    behind_the_end = attempt.key.slice > 0 and segments == launches == 0
    if (not segments or not launches) and not behind_the_end:
        return failure_record(failure(FailureClass.NOTHING_PROFILED, str(attempt.key)))
    if (attempt.segments, attempt.launches) == (segments, launches):
        return None
    cause = (
        f"the agent says {launches:,} launches in {segments:,} segments, "
        f"the server has {attempt.launches:,} in {attempt.segments:,}"
    )
    return failure_record(failure(FailureClass.SERVER_REFUSED, str(attempt.key), cause, retryable=True))
