"""What both programs of chaos do: read arguments, run an undisturbed and a disturbed lab, judge, print."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.comparing import Difference, compare_records, compare_reports
from tests.chaos.course import Course, require_nothing_left, run_course
from tests.chaos.faults.seam import Fault, Outcome, Whom
from tests.chaos.laboratory import Laboratory
from tests.chaos.printing import Asked, Printer, document
from tests.chaos.schedule import Planned, plan
from tests.chaos.work import Size, write_campaigns

LEAST_KINDS = 12
# Of the faults asked for: the last ones race with the end of the last campaign, and may find nothing to hit.
LEAST_SHARE = 5 / 6
# A lab in a new folder, ended with the first of the two stacks' block.
Make = Callable[[Path, ExitStack], AbstractContextManager[Laboratory]]


def common_parser(program: str, about: str | None, kinds: Collection[str]) -> argparse.ArgumentParser:
    """The options that every program of chaos has."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("--short", action="store_true", help="about 20 faults, about two minutes")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--faults", type=int, help="how many must take hold")
    parser.add_argument("--kinds", nargs="*", choices=sorted(kinds), help="only these kinds of faults")
    parser.add_argument("--minutes", type=float, default=20.0, help="give up after so long")
    parser.add_argument("--keep", action="store_true", help="leave the folders of both labs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def asked_for(given: argparse.Namespace, size: Size, faults: int) -> Asked:
    """What the arguments ask for; ``faults`` unless they say how many."""
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    return Asked(seed, size, faults if given.faults is None else given.faults)


def end_in_order_at_sigterm() -> None:
    """A SIGTERM ends the programs of the labs, too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


@contextlib.contextmanager
def folder_of_labs(prefix: str, *, keep: bool) -> Iterator[Path]:
    """A new folder with a short path, for Unix sockets; removed afterwards unless it is to be kept."""
    root = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


@dataclass
class Proof:
    """Both labs, and what differs between them.

    Attributes:
        known: all kinds of faults by name; ``kinds``: those that are wanted.
        services: of the disturbed lab, whom a fault may hit beside agents.
    """

    root: Path
    asked: Asked
    printer: Printer
    limit_seconds: float
    known: Mapping[str, type[Fault]]
    kinds: Sequence[str]
    services: Mapping[Whom, Sequence[str]]

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    def run(self, undisturbed: Make, disturbed: Make) -> int:
        """0: nothing differs, and enough faults took hold."""
        size, seed = self.asked.size, self.asked.seed
        files = write_campaigns(self.root, size, seed)
        self.printer.say(
            f"{size.all_launches:,} launches in {size.runs + size.live_runs} runs, {size.agents} agents with "
            f"{size.slots} slots each, in {self.root}"
        )
        # What the labs keep stays readable until both have been compared.
        with ExitStack() as kept:
            whole = self._course("undisturbed", undisturbed, files, kept, faults=0)
            require_nothing_left(whole)
            other = self._course("with faults", disturbed, files, kept, faults=self.asked.faults)
            return self._judged(whole, other)

    def _course(self, name: str, make: Make, files: Sequence[Path], kept: ExitStack, faults: int) -> Course:
        with make(self.root / ("disturbed" if faults else "whole"), kept) as lab:
            try:
                return run_course(
                    lab, files, self._planned(lab, faults) if faults else (), self.asked.seed, enough=faults,
                    limit_seconds=self.limit_seconds - (time.monotonic() - self._began), known=self.known,
                    on_progress=self.printer.progress_of(name), on_outcome=self.printer.outcome,
                )  # fmt: skip
            except BaseException:
                self.printer.say(lab.logs())
                raise

    def _planned(self, lab: Laboratory, faults: int) -> list[Planned]:
        """Half more than must take hold, of the kinds that this machine allows."""
        possible = [kind for kind in self.kinds if self.known[kind].needs <= lab.offers]
        if left_out := sorted({*self.kinds} - {*possible}):
            self.printer.say(f"not possible on this machine: {', '.join(left_out)}")
        return plan(
            Random(self.asked.seed), faults + faults // 2, possible, sorted(lab.boxes),
            services=self.services, known=self.known,
        )  # fmt: skip

    def _judged(self, whole: Course, other: Course) -> int:
        found = Difference()
        compare_records(whole.records, other.records, found)
        compare_reports(whole.reports, other.reports, found)
        good = (
            found.identical
            and not other.leftover
            and enough_took_hold(other.outcomes, self.asked.faults, len(self.kinds))
        )
        good = good and not any(each.broken for each in other.outcomes)
        seconds = time.monotonic() - self._began
        self.printer.result(document(self.asked, whole, other, found, total_seconds=seconds, good=good))
        return 0 if good else 1


def enough_took_hold(outcomes: Sequence[Outcome], faults: int, kinds: int) -> bool:
    """Whether five of six of the ``faults`` asked for took hold, of as many kinds as the promise says.

    Of kinds that somebody chose, half are enough: not every machine can have each of them.
    """
    took_hold = [each.kind for each in outcomes if each.effect]
    least_kinds = min(LEAST_KINDS, -(-kinds // 2), faults)
    return len(took_hold) >= faults * LEAST_SHARE and len({*took_hold}) >= least_kinds
