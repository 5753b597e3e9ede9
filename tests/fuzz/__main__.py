"""``python -m tests.fuzz``: mutated inputs for every reader; status 1 where one fails."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path

from tests.fuzz.runner import Tally, Worker, fuzz
from tests.fuzz.targets import TARGETS

_MOST_FAILED = 10


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="a reader (all)")
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs for each (20,000)")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices (1)")
    parser.add_argument("--only", type=int, help="the number of one input alone")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that fail")
    return parser.parse_args()


def _feed(worker: Worker, target: str, given: argparse.Namespace) -> int:
    """Feed one target, and say how it ended; how many inputs failed."""
    numbers = range(given.inputs) if given.only is None else [given.only]
    tally, failed = Tally(), 0
    for found in fuzz(worker, target, given.seed, numbers, tally, keep=given.keep):
        failed += 1
        print(f"\n{found.command()}\n{found.why}", flush=True)
        if failed == _MOST_FAILED:
            print(f"{target}: {failed} inputs failed, the rest is left out", flush=True)
            break
    ended = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.outcomes.items()))
    print(
        f"{target}: {ended}; at most {tally.most_seconds:.1f} s and {tally.most_bytes >> 20:,} MiB; "
        f"{failed} failed",
        flush=True,
    )
    return failed


def main() -> int:
    """Feed every target, and say how it ended."""
    given = _arguments()
    targets = given.target or [name for name in TARGETS if name != "broken"]
    with closing(Worker()) as worker:
        failures = sum(_feed(worker, target, given) for target in targets)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
