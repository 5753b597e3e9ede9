"""Score selections on pairs of real GPUs and print the result, or write it to a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.silicon.counters import counters_section
from tests.silicon.page import HEAD, by_launch_section, claims_section, largest_section, scores_section
from tests.silicon.recordings import pairs
from tests.silicon.scores import DRAWS, Bench


def main() -> int:
    """Run all pairs; the exit code is 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.silicon", description=__doc__)
    parser.add_argument("--output", type=Path, help="also write this page")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of each method that draws")
    given = parser.parse_args()
    benches, found = [Bench(pair) for pair in pairs()], []
    for bench in benches:
        for case in bench.pair.cases:
            sys.stderr.write(f"{bench.pair.workload}, {bench.pair.here}: {case.title}\n")
            found.append(bench.scored(case, given.draws))
    sections = [
        scores_section(found, benches),
        largest_section(found),
        counters_section(given.draws),
        by_launch_section(),
        claims_section(),
    ]
    text = HEAD + "\n" + "\n".join(section.markdown() for section in sections)
    sys.stdout.write(text)
    if given.output is not None:
        given.output.write_text(text)
    return int(any(section.missed for section in sections))


if __name__ == "__main__":
    sys.exit(main())
