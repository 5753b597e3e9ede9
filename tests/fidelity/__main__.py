"""Run the sections of the fidelity bench and print them, or write them to a page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fidelity import (
    comparison,
    coverage,
    equal_speedups,
    grid_costs,
    labels,
    labels_on_gpus,
    projection,
    simulated_gpus,
    slices,
    target_coverage,
    two_levels_on_gpus,
    verdicts,
    weights,
    weights_simulated,
    window_predictors,
)
from tests.fidelity.section import Effort, Section

SECTIONS: dict[str, Callable[[Effort], Section]] = {
    "comparison": comparison.section,
    "coverage": coverage.section,
    "labels": labels.section,
    "labels_on_gpus": labels_on_gpus.section,
    "equal_speedups": equal_speedups.section,
    "grid_costs": grid_costs.section,
    "projection": projection.section,
    "simulated_gpus": simulated_gpus.section,
    "slices": slices.section,
    "target_coverage": target_coverage.section,
    "two_levels_on_gpus": two_levels_on_gpus.section,
    "verdicts": verdicts.section,
    "weights": weights.section,
    "weights_simulated": weights_simulated.section,
    "weights_two_levels": weights.two_levels,
    "window_predictors": window_predictors.section,
}

_HEAD = """# Fidelity

Written by `make bench-fidelity FIDELITY_ARGS='--output docs/fidelity.md'`. Every section says where its data
is from; nothing here was measured on a GPU unless it says so.

"""


def main() -> int:
    """Run the sections that were asked for; the exit code is 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument(
        "--section", action="append", choices=sorted(SECTIONS), help="only this one; repeat it"
    )
    parser.add_argument("--short", action="store_true", help="fewer draws and inputs, as in the tests")
    parser.add_argument("--output", type=Path, help="also write this page")
    given = parser.parse_args()
    found = []
    for name in given.section or SECTIONS:
        started = time.monotonic()
        found.append(SECTIONS[name](Effort.SHORT if given.short else Effort.FULL))
        sys.stdout.write(f"{found[-1].markdown()}\n({name}: {time.monotonic() - started:.0f} s)\n\n")
        sys.stdout.flush()
    if given.output is not None:
        given.output.write_text(_HEAD + "\n".join(section.markdown() for section in found))
    return int(any(section.missed for section in found))


if __name__ == "__main__":
    sys.exit(main())
