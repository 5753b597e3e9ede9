"""``make chaos-site``: one undisturbed server, and a site with faults; records and results may not differ.

python -m tests.chaos.site [--short] [--seed N] [--faults N] [--kinds ...] [--minutes N] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.chaos.comparing import Difference, compare_records, compare_results
from tests.chaos.course import Course, require_nothing_left, run_course
from tests.chaos.laboratory import BIN, Laboratory, laboratory
from tests.chaos.printing import Asked, Printer, document
from tests.chaos.schedule import Planned, plan
from tests.chaos.site.faults import KINDS_OF_A_SITE
from tests.chaos.site.laboratory import SERVICES, site_laboratory
from tests.chaos.site.needed import missing
from tests.chaos.work import Size, write_campaigns

LONG = Size(2_000_000, runs=96, campaigns=6, live_runs=8, agents=3, slots=2, undisturbed_seconds=120)
SHORT = Size(240_000, runs=24, campaigns=3, live_runs=2, agents=2, slots=2, undisturbed_seconds=14)
LONG_FAULTS, SHORT_FAULTS = 80, 12


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing differs, and enough faults took hold; or what a site needs is not here."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    printer = Printer(quiet=given.json)
    if lacks := missing():
        printer.say(f"no site can be made here; missing: {', '.join(lacks)}")
        return 0
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    size = dataclasses.replace(SHORT if given.short else LONG)
    faults = given.faults if given.faults is not None else SHORT_FAULTS if given.short else LONG_FAULTS
    printer.say(
        f"{size.all_launches:,} launches in {size.runs + size.live_runs} runs, {size.agents} agents with "
        f"{size.slots} slots each"
    )
    printer.say(f"seed {seed}; again with: python -m tests.chaos.site --seed {seed}")
    root = Path(tempfile.mkdtemp(prefix="site-", dir="/tmp"))
    try:
        with ExitStack() as kept:
            return _Proof(root, size, Asked(seed, size, faults), given, printer).run(kept)
    finally:
        if not given.keep:
            shutil.rmtree(root, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.site", description=__doc__)
    parser.add_argument("--short", action="store_true", help="about a dozen faults, about two minutes")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--faults", type=int, help="how many must take hold")
    parser.add_argument(
        "--kinds", nargs="*", choices=sorted(KINDS_OF_A_SITE), help="only these kinds of faults"
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="give up after so long")
    parser.add_argument("--keep", action="store_true", help="leave the folders of both")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


class _Proof:
    """Both courses, and what differs between them."""

    def __init__(
        self, root: Path, size: Size, asked: Asked, given: argparse.Namespace, printer: Printer
    ) -> None:
        self._root, self._size, self._asked = root, size, asked
        self._kinds = given.kinds or [*KINDS_OF_A_SITE]
        self._limit_seconds = 60 * given.minutes
        self._printer = printer
        self._began = time.monotonic()

    def run(self, kept: ExitStack) -> int:
        """0: nothing differs, and enough faults took hold."""
        files = write_campaigns(self._root, self._size, self._asked.seed)
        whole = self._undisturbed(files, kept)
        require_nothing_left(whole)
        disturbed = self._disturbed(files, kept)
        found = Difference()
        compare_records(whole.records, disturbed.records, found)
        compare_results(whole.reports, disturbed.reports, found)
        held = [each.kind for each in disturbed.outcomes if each.effect]
        enough = len(held) >= self._asked.faults
        enough = enough and len({*held}) >= min(len(self._kinds), self._asked.faults) // 2
        good = found.identical and enough and not disturbed.leftover
        good = good and not any(each.broken for each in disturbed.outcomes)
        seconds = time.monotonic() - self._began
        self._printer.result(document(self._asked, whole, disturbed, found, total_seconds=seconds, good=good))
        return 0 if good else 1

    def _undisturbed(self, files: Sequence[Path], kept: ExitStack) -> Course:
        size, server = self._size, (str(BIN / "assay-server"),)
        with laboratory(
            self._root / "whole", size, self._asked.seed, server, with_packets=False, kept=kept
        ) as lab:
            return self._course("one server on SQLite", lab, files, ())

    def _disturbed(self, files: Sequence[Path], kept: ExitStack) -> Course:
        faults, seed = self._asked.faults, self._asked.seed
        with site_laboratory(self._root / "site", self._size, seed, kept=kept) as lab:
            kinds = [kind for kind in self._kinds if KINDS_OF_A_SITE[kind].needs <= lab.offers]
            boxes, known = sorted(lab.boxes), KINDS_OF_A_SITE
            planned = plan(Random(seed), faults + faults // 2, kinds, boxes, services=SERVICES, known=known)
            try:
                return self._course("the site", lab, files, planned)
            except BaseException:
                self._printer.say(lab.logs())
                raise

    def _course(
        self, name: str, lab: Laboratory, files: Sequence[Path], planned: Sequence[Planned]
    ) -> Course:
        return run_course(
            lab, files, planned, self._asked.seed, enough=self._asked.faults if planned else 0,
            limit_seconds=self._limit_seconds - (time.monotonic() - self._began),
            on_progress=self._printer.progress_of(name), on_outcome=self._printer.outcome,
            known=KINDS_OF_A_SITE,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
