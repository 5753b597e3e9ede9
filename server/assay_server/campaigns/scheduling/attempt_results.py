"""Results of attempts: their segments, their failures, and the slices published from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure, failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS
from assay_server.campaign_file.compiled import SlicePlan
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.campaigns.slicing.published import LaunchKinds
from assay_server.campaigns.slicing.reslice import rest_after
from assay_server.store.model import Attempt, PublishedFile, Run, Segment, SliceState


class SegmentOutcome(Enum):
    """How a durable segment was recorded."""

    ADDED = "added"
    OUT_OF_ORDER = "out of order"
    NOT_WANTED = "not wanted"


class FinishOutcome(Enum):
    """What to do with an attempt whose agent reports it finished."""

    PUBLISH = "publish"
    ALREADY_PUBLISHED = "already published"
    NOT_WANTED = "not wanted"


class AttemptResults(Transitions):
    """Records what agents send for the attempts that they hold, and what is published from it."""

    def is_held(self, claim: Claim) -> bool:
        """Whether the claimant of an attempt holds its lease, or held it last: only it may write to it."""
        key = claim.key
        attempt = self.store.attempt(key.run_id, key.slice_index, key.attempt)
        return attempt is not None and attempt.is_held_by(claim)

    def add_segments(self, segments: Sequence[Segment], key: AttemptKey) -> SegmentOutcome:
        """Record durable segments in order, the next of a live attempt: all of them or none."""
        attempt = self.live_attempt(key)
        if attempt is None:
            self.effects.dead.append(key)
            return SegmentOutcome.NOT_WANTED
        if attempt.state is not AttemptState.LEASED:
            return SegmentOutcome.NOT_WANTED
        if attempt.segments != segments[0].index:
            return SegmentOutcome.OUT_OF_ORDER
        self.store.add_segments(segments)
        self.effects.stored.extend(segments)
        self.store.save_attempt(
            replace(
                attempt,
                segments=attempt.segments + len(segments),
                launches=attempt.launches + sum(segment.launches for segment in segments),
                lease_ends_at_ms=self.now_ms + self.policy.lease_ms,
                confirmed=True,
            )
        )
        self.note_change(key.run_id)
        return SegmentOutcome.ADDED

    def fail(self, key: AttemptKey, why: Failure, log: AttemptLog | None = None) -> None:
        """End an attempt that failed; does nothing if it is no longer wanted."""
        attempt = self.live_attempt(key)
        if attempt is not None:
            if why.failure_class == FailureClass.REFUSED_BY_POLICY:  # each box has a policy of its own
                why = replace(why, cause=f"the policy of agent {attempt.agent_name} refuses it: {why.cause}")
            self.fail_attempt(replace(attempt, log=log or attempt.log), why, AttemptState.FAILED)

    def begin_publish(
        self, key: AttemptKey, segments: int, launches: int, flags: tuple[ValidityFlag, ...], log: AttemptLog
    ) -> FinishOutcome:
        """An agent reports an attempt complete, with its numbers of segments and launches.

        Any slice except a run's first may be empty, because the workload ended before it.
        """
        before = self.store.attempt(key.run_id, key.slice_index, key.attempt)
        if before is not None and before.key == key and before.state is AttemptState.PUBLISHED:
            return FinishOutcome.ALREADY_PUBLISHED
        attempt = self.live_attempt(key)
        if attempt is None:
            return FinishOutcome.NOT_WANTED
        if attempt.state is AttemptState.PUBLISHING:
            return FinishOutcome.PUBLISH
        attempt = replace(attempt, flags=flags, log=log)
        run = self.run_of(key.run_id)
        is_bare = run.level == "bare" and not attempt.launches  # it must have none
        wrong = None if is_bare else _wrong_counts(attempt, segments, launches)
        why = wrong or self._worth_another_try(attempt, run)
        if why is not None:
            self.fail_attempt(attempt, why, AttemptState.FAILED)
            return FinishOutcome.NOT_WANTED
        self.store.save_attempt(replace(attempt, state=AttemptState.PUBLISHING))
        return FinishOutcome.PUBLISH

    def _worth_another_try(self, attempt: Attempt, run: Run) -> Failure | None:
        """Why a live attempt's flags justify another try; None if they do not, or no try is left."""
        if run.command is None:  # a recording is always the same
            return None
        for flag in attempt.flags:
            kind = FLAGS.get(flag.name)
            if kind is None or kind.retry_as is None:
                continue
            cause = f"{kind.cause}: {flag.detail}" if flag.detail else kind.cause
            why = failure(kind.retry_as, str(attempt.key), cause, kind.remedy)
            others = [a for a in self.tries(attempt.key) if a.key != attempt.key]
            if self.policy.retry.delay_after([*others, replace(attempt, failure=why)], why) is not None:
                return why
        return None

    def end_publish(
        self,
        key: AttemptKey,
        file: PublishedFile,
        kinds: LaunchKinds | None = None,
        plan: SlicePlan | None = None,
    ) -> bool:
        """The slice's file is in its place. False: it is no longer wanted.

        ``kinds`` of launches in published slices decide where a run ends that continues until nothing new
        comes; ``plan`` is that of the detailed runs that wait for this light run, if any does.
        """
        attempt = self.store.attempt(key.run_id, key.slice_index, key.attempt)
        if attempt is None or attempt.key != key:
            return False
        if attempt.state is not AttemptState.PUBLISHING:
            return attempt.state is AttemptState.PUBLISHED
        self.end_attempt(attempt, AttemptState.PUBLISHED, None)
        done = replace(self.slice_of(key), state=SliceState.DONE, **vars(file))
        self.store.save_slice(done)
        run = self.run_of(key.run_id)
        rest = None if kinds is None else rest_after(self.store, run, kinds)
        if rest is not None:
            self.store.replace_slices(run.run_id, rest.index, rest.slices)
            self.effects.work = True
        flags = (*run.flags, *attempt.flags, *([rest.flag] if rest and rest.flag else []))
        self.store.save_run(replace(run, flags=tuple(dict.fromkeys(flags))))
        # First cut the rest of the run, then set its state: it is done only if no slice follows.
        self.set_slice(done)
        if run.level == "light":
            self.start_detailed(run, plan)
        return True


def server_restored(subject: str, lacking: str) -> Failure:
    """The failure of an attempt of which the server lacks what it acknowledged."""
    cause = f"the server was restored from an older backup: {lacking}"
    return failure(FailureClass.SERVER_RESTORED, subject, cause)


def server_refused(subject: str, cause: str, remedy: str = "", *, retryable: bool = False) -> Failure:
    """The failure of an attempt whose data the server refuses."""
    return failure(FailureClass.SERVER_REFUSED, subject, cause, remedy, retryable=retryable)


def _wrong_counts(attempt: Attempt, segments: int, launches: int) -> Failure | None:
    behind_the_end = attempt.key.slice_index > 0 and segments == launches == 0
    if (not segments or not launches) and not behind_the_end:
        return failure(FailureClass.NOTHING_PROFILED, str(attempt.key))
    if (attempt.segments, attempt.launches) == (segments, launches):
        return None
    cause = (
        f"the agent reports {launches:,} launches in {segments:,} segments, "
        f"the server has {attempt.launches:,} in {attempt.segments:,}"
    )
    if attempt.segments < segments:  # the agent finishes once all of them were acknowledged
        return server_restored(str(attempt.key), cause)
    return server_refused(str(attempt.key), cause, retryable=True)
