"""Chooses the slice for a free slot: the first of whoever is next, unless another slot suits it better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from assay_core.records.campaign import AttemptState
from assay_core.records.machine import Slot
from assay_sampling.running.failures import Fault, failure_class_named
from assay_server.campaigns.queue.shares import NO_SHARES, Shares
from assay_server.campaigns.queue.standing import Candidate, Standing
from assay_server.campaigns.scheduling.places import elsewhere, lacking
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.campaigns.scheduling.retry import is_loss
from assay_server.store.model import Agent, Attempt, Need, Run, Slice
from assay_server.store.protocols import MetadataReader

# A slice that failed in a slot is left to others for this long: they may have to end a long run first.
_LEFT_TO_OTHERS_MS = 600_000
_MOST_PASSED = 16


@dataclass(frozen=True)
class Seat:
    """A slot of an agent, as a place for runs; equal seats fit equal needs."""

    slot: Slot
    driver_version: str
    labels: tuple[str, ...]
    agent: Agent = field(compare=False)

    def fits(self, need: Need) -> bool:
        """Whether the slot has what a need asks for."""
        return lacking(need, self.slot, self.agent) is None

    @property
    def place(self) -> tuple[str, str]:
        return self.agent.agent_id, self.slot.slot_id


def seat_of(agent: Agent, slot: Slot) -> Seat:
    """The seat of a slot."""
    return Seat(slot, agent.inventory.driver_version, agent.labels, agent)


@dataclass(frozen=True)
class Chooser:
    """One decision: the store at one moment, who stands in line, and what everybody has used."""

    store: MetadataReader
    resting: RestingSlots
    standing: Standing
    now_ms: int
    shares: Shares = NO_SHARES

    def choose(self, seat: Seat) -> tuple[Run, Slice] | None:
        """The slice for a slot; None if there is none, or the slot rests.

        A slice that failed in the slot is left to another slot for a while. A slot that has done no run since
        a failure of its box first gets slices that have not failed there.
        """
        if self.resting.at(*seat.place, self.now_ms) is not None:
            return None
        if self.resting.last(*seat.place) is not None:
            # Such a slice shows whether the slot is at fault. Otherwise a run that breaks every box would be
            # tried for ever, ahead of all other runs.
            found = self._first(seat, untried=True)
            if found is not None:
                return found
        return self._first(seat, untried=False)

    def _first(self, seat: Seat, *, untried: bool) -> tuple[Run, Slice] | None:
        passed: list[tuple[str, int]] = []
        for candidate in self.standing.candidates(seat, seat.fits, self.shares, self.now_ms):
            for found in self._of(candidate, passed, seat.place if untried else None):
                if not self._is_for_another(found, seat.place):
                    return found
                passed.append((found[0].run_id, found[1].index))
                if len(passed) > _MOST_PASSED:
                    return None
        return None

    def _of(
        self, candidate: Candidate, passed: list[tuple[str, int]], untried_in: tuple[str, str] | None
    ) -> Iterator[tuple[Run, Slice]]:
        """The candidate's slices that are due, in its order, except those ``passed`` meanwhile."""
        if not self.store.is_running(candidate.campaign_id):
            self._forget(candidate)
            return
        while True:
            found = self.store.first_waiting(candidate.lanes, self.now_ms, passed, untried_in)
            if found is None:
                break
            yield found
        for lane_id in candidate.lanes:
            due_ms = self.store.earliest_due_ms(lane_id)
            if due_ms is None:
                self.standing.drop(lane_id)
            elif due_ms > self.now_ms:
                self.standing.rest(lane_id, due_ms)

    def _forget(self, candidate: Candidate) -> None:
        for lane_id in candidate.lanes:
            self.standing.drop(lane_id)

    def _is_for_another(self, found: tuple[Run, Slice], place: tuple[str, str]) -> bool:
        """Whether a slice last failed in this place, and a place where it has not failed is there."""
        run, piece = found
        failed = [a for a in self.store.attempts(run.run_id, piece.index) if a.state is AttemptState.FAILED]
        if not failed or (failed[-1].agent_id, failed[-1].slot_id) != place:
            return False
        age_ms = self.now_ms - failed[-1].ended_at_ms
        if age_ms > _LEFT_TO_OTHERS_MS or not _is_worth_another_slot(failed[-1]):
            return False
        tried = {(a.agent_id, a.slot_id) for a in failed}
        others = elsewhere(run, failed[-1], self.store.agents(), self.now_ms)
        return any(other not in tried and self.resting.at(*other, self.now_ms) is None for other in others)


def _is_worth_another_slot(attempt: Attempt) -> bool:
    """Whether an attempt's failure may be due to its slot."""
    why = attempt.failure
    if why is None or is_loss(why):
        return False
    failure_class = failure_class_named(why.failure_class)
    return failure_class.retryable or failure_class.fault is Fault.BOX
