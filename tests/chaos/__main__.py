"""``make chaos-lab``: the same campaigns in an undisturbed lab and in one with faults; nothing may differ.

python -m tests.chaos [--short] [--seed N] [--faults N] [--launches N] [--kinds ...] [--minutes N] [--json]
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

from tests.chaos.broken_server import BREAKS, broken_server
from tests.chaos.comparing import Difference, compare_records, compare_results
from tests.chaos.course import Course, require_nothing_left, run_course
from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import Outcome
from tests.chaos.laboratory import BIN, Laboratory, laboratory
from tests.chaos.printing import Asked, Printer, document
from tests.chaos.schedule import plan
from tests.chaos.work import Size, write_campaigns
from tests.support.machine.namespaces import start_again_inside
from tests.support.machine.packet_wires import NoWiresError, packet_wires

LONG = Size(10_000_000, runs=320, campaigns=8, live_runs=36, agents=4, slots=2, undisturbed_seconds=200)
SHORT = Size(240_000, runs=24, campaigns=3, live_runs=4, agents=3, slots=2, undisturbed_seconds=14)
LONG_FAULTS, SHORT_FAULTS = 200, 18
LEAST_KINDS = 12
_SERVER = (str(BIN / "assay-server"),)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing differs, and enough faults took hold."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    size = dataclasses.replace(SHORT if given.short else LONG)
    if given.launches:
        size = dataclasses.replace(size, launches=given.launches)
    if given.undisturbed is not None:
        size = dataclasses.replace(size, undisturbed_seconds=given.undisturbed)
    faults = given.faults if given.faults is not None else SHORT_FAULTS if given.short else LONG_FAULTS
    printer = Printer(quiet=given.json)
    words = sys.argv[1:] if arguments is None else arguments
    why_not = start_again_inside(["-m", "tests.chaos", *words]) or _no_wires()
    printer.say(f"seed {seed}; again with: python -m tests.chaos --seed {seed}")
    if why_not:
        printer.say(f"no fault below TCP: {why_not}")
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    try:
        with ExitStack() as kept:
            return _run(
                root, size, seed, faults, given=given, printer=printer, packets=not why_not, kept=kept
            )
    finally:
        if not given.keep:
            shutil.rmtree(root, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="about 20 faults, about a minute")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--faults", type=int, help="how many must take hold")
    parser.add_argument("--launches", type=int, help="how many launches the campaigns hold")
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), help="only these kinds of faults")
    parser.add_argument("--minutes", type=float, default=20.0, help="give up after so long")
    parser.add_argument(
        "--undisturbed", type=float, help="seconds that playing takes undisturbed; 0: no pace"
    )
    parser.add_argument("--break", dest="broken", choices=BREAKS, help="a server with this fault of its own")
    parser.add_argument("--keep", action="store_true", help="leave the folders of both labs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _run(
    root: Path,
    size: Size,
    seed: int,
    faults: int,
    *,
    given: argparse.Namespace,
    printer: Printer,
    packets: bool,
    kept: ExitStack,
) -> int:
    began = time.monotonic()
    files = write_campaigns(root, size, seed)
    printer.say(
        f"{size.all_launches:,} launches in {size.runs + size.live_runs} runs, {size.agents} agents with "
        f"{size.slots} slots each, in {root}"
    )

    def kinds_here(lab: Laboratory) -> list[str]:
        asked = given.kinds or list(KINDS)
        possible = [kind for kind in asked if KINDS[kind].needs <= lab.offers]
        if left_out := sorted({*asked} - {*possible}):
            printer.say(f"not possible on this machine: {', '.join(left_out)}")
        return possible

    def course(name: str, number_of_faults: int, server: tuple[str, ...]) -> Course:
        with laboratory(root / name, size, seed, server, with_packets=packets, kept=kept) as lab:
            with_spares = number_of_faults + number_of_faults // 2
            planned = []
            if number_of_faults:
                planned = plan(Random(seed), with_spares, kinds_here(lab), sorted(lab.boxes))
            left = given.minutes * 60 - (time.monotonic() - began)
            try:
                return run_course(
                    lab, files, planned, seed, enough=number_of_faults, limit_seconds=left,
                    on_progress=printer.progress_of(name), on_outcome=printer.outcome,
                )  # fmt: skip
            except BaseException:
                printer.say(lab.logs())
                raise

    whole = course("whole", 0, _SERVER)
    require_nothing_left(whole)
    disturbed = course("disturbed", faults, broken_server(given.broken) if given.broken else _SERVER)
    found = Difference()
    compare_records(whole.records, disturbed.records, found)
    compare_results(whole.reports, disturbed.reports, found)
    enough = _enough(disturbed.outcomes, faults, len(given.kinds or KINDS))
    good = found.identical and enough and not disturbed.leftover
    good = good and not any(each.broken for each in disturbed.outcomes)
    total = time.monotonic() - began
    asked = Asked(seed, size, faults)
    printer.result(document(asked, whole, disturbed, found, total_seconds=total, good=good))
    return 0 if good else 1


def _no_wires() -> str:
    """Why no wire below TCP can be made here; "" if one can."""
    try:
        with packet_wires(1, 0, own_network=False):
            return ""
    except NoWiresError as error:
        return str(error)


def _enough(outcomes: Sequence[Outcome], faults: int, kinds: int) -> bool:
    """As many faults as were asked for took hold, of as many kinds as the promise says."""
    took_hold = [each for each in outcomes if each.effect]
    return len(took_hold) >= faults and len({e.kind for e in took_hold}) >= min(LEAST_KINDS, kinds, faults)


if __name__ == "__main__":
    sys.exit(main())
