"""One campaign through one lab, undisturbed or not: what it leaves, and what it took."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import Fault, Outcome
from tests.chaos.laboratory import LabError, Laboratory
from tests.chaos.schedule import Lanes, Planned

_LOOK_SECONDS = 0.5
_MOST_RETRIES = 10
_MOST_NAMED = 5
_LAST_BEFORE_THE_END = 0.95


@dataclass
class Course:
    """What a lab leaves when its campaigns have ended."""

    campaigns: tuple[str, ...]
    seconds: float
    records: Path
    reports: dict[str, dict[str, bytes]]
    attempts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    retries_by_hand: list[str] = field(default_factory=list)  # what had failed, of each
    outcomes: list[Outcome] = field(default_factory=list)
    leftover: str = ""  # why it did not end well; "" if it did


class Submitting:
    """Submits campaign after campaign as faults are done, so that the last faults find work, too.

    The first two are submitted at once; undisturbed, all of them are.
    """

    def __init__(self, lab: Laboratory, files: Sequence[Path], faults: int) -> None:
        self._lab = lab
        self._files = list(files)
        self._faults = faults
        self.campaigns: list[str] = []

    def look(self, faults_done: int) -> None:
        """Submit what is due."""
        while self.more and faults_done >= self._due():
            # Not between a backup and its restoration, which would forget the campaign.
            with self._lab.server_lock:
                self.campaigns.append(self._lab.submit(self._files[len(self.campaigns)]))

    @property
    def more(self) -> bool:
        """Whether some are still to be submitted."""
        return len(self.campaigns) < len(self._files)

    def _due(self) -> float:
        position, last = len(self.campaigns) - 1, len(self._files) - 1
        return 0 if position < 1 else self._faults * position / last * _LAST_BEFORE_THE_END


class Watch:
    """How far the campaigns are."""

    def __init__(self, lab: Laboratory, submitting: Submitting, told: Callable[[int, int], None]) -> None:
        self._lab = lab
        self._submitting = submitting
        self._told = told
        self.over = threading.Event()
        self.retries_by_hand: list[str] = []

    def look(self) -> bool:
        """Whether all are done; a campaign that has failed is taken up again, as a person would."""
        found = {each: self._lab.summary(each) for each in self._submitting.campaigns}
        self._told(*(sum(each[key] for each in found.values()) for key in ("runs_done", "runs_total")))
        for campaign_id, each in found.items():
            if each["state"] == "failed":
                self._take_up_again(campaign_id)
        return not self._submitting.more and all(each["state"] == "done" for each in found.values())

    def _take_up_again(self, campaign_id: str) -> None:
        why = f"{campaign_id}: {'; '.join(self._failures(campaign_id))}"
        if len(self.retries_by_hand) >= _MOST_RETRIES:
            raise LabError(f"it fails again and again: {why}")
        self._lab.ask(lambda owner: owner.retry(campaign_id))
        self.retries_by_hand.append(why)

    def _failures(self, campaign_id: str) -> list[str]:
        """Why a campaign failed, and the first few of its runs."""
        found = self._lab.ask(lambda owner: owner.status(campaign_id))
        failed = [found["failure"], *(run["failure"] for run in found["runs"])]
        told = (f"{each['subject']}: {each['cause']} [{each['failure_class']}]" for each in failed if each)
        return list(told)[:_MOST_NAMED]


def run_course(
    lab: Laboratory,
    files: Sequence[Path],
    planned: Sequence[Planned],
    seed: int,
    *,
    enough: int,
    limit_seconds: float,
    on_progress: Callable[[int, int], None],
    on_outcome: Callable[[Outcome], None],
    known: Mapping[str, type[Fault]] = KINDS,
) -> Course:
    """Submit the campaigns, inject faults until ``enough`` took hold, wait for the end. Raises LabError."""
    began = time.monotonic()
    submitting = Submitting(lab, files, enough)
    submitting.look(0)
    watch = Watch(lab, submitting, on_progress)
    lanes = Lanes(lab, planned, seed, enough=enough, over=watch.over.is_set, told=on_outcome, known=known)
    lanes.run()
    leftover = ""
    while True:
        lanes.require_well()
        submitting.look(lanes.took_hold if lanes.alive else enough)
        # A fault in the last moment may set the server back, so it must be over, too.
        if watch.look():
            watch.over.set()
            if not lanes.alive:
                break
        if time.monotonic() - began > limit_seconds:
            leftover = f"the campaigns had not ended after {limit_seconds:.0f} s"
            watch.over.set()
            break
        time.sleep(_LOOK_SECONDS)
    seconds = time.monotonic() - began
    lanes.join()
    campaigns = tuple(submitting.campaigns)
    reports = {} if leftover else {each: lab.reports(each) for each in campaigns}
    records = lab.records(campaigns)
    course = Course(campaigns, seconds, records, reports, leftover=leftover)
    course.outcomes = lanes.outcomes
    course.retries_by_hand = watch.retries_by_hand
    course.restarts = Counter({name: service.starts - 1 for name, service in lab.services.items()})
    course.restarts["agents"] = sum(box.program.starts - 1 for box in lab.boxes.values())
    _read_attempts(lab, course)
    return course


def _read_attempts(lab: Laboratory, course: Course) -> None:
    for campaign_id in course.campaigns:
        for state, failure_class in lab.attempts(campaign_id):
            course.attempts[state] += 1
            if failure_class:
                course.failures[failure_class] += 1


def require_nothing_left(course: Course) -> None:
    """Raise LabError unless the course ended."""
    if course.leftover:
        raise LabError(course.leftover)
