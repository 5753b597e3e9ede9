"""Target ``nvbit``: which launches NVBit tracers are to trace.

Accel-Sim's tracer counts launches from 1, Sieve's from 0. Source: docs/handover.md, "Trace
what was selected".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

import numpy as np

from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need, of_one_process
from assay_sampling.handover.weights import weights_entry
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.saved_selection import SavedSelection

# Linux takes at most so many bytes of one variable of the environment, its name included.
_MOST_VARIABLE_BYTES = 131_071
_NAME = "DYNAMIC_KERNEL_RANGE"


def id_ranges(ids: np.ndarray) -> str:
    """Sorted ids, shape (i,), as the tracer's ranges: ``2 5-8 12``."""
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    parts = np.split(ids, breaks) if len(ids) else []
    return " ".join(f"{p[0]}" if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def traced_launches(launches: np.ndarray, warm_up: int) -> np.ndarray:
    """0-based launches to trace, shape (t,), ascending: the representatives and what warms them."""
    with_earlier = launches[:, None] - np.arange(warm_up + 1)[None, :]
    to_trace: np.ndarray = np.unique(with_earlier[with_earlier >= 0])
    return to_trace


def tracer_files(saved: SavedSelection, inputs: Inputs) -> tuple[HandedFile, ...]:
    """The tracer's environment, and ids from 0 as Sieve's tracer takes them."""
    launches = traced_launches(of_one_process(saved, inputs), inputs.warm_up)
    ids = partial(_lines, launches)
    return (
        HandedFile("tracer.env", "environment of Accel-Sim's tracer, ids from 1", partial(_env, launches)),
        HandedFile("ids.txt", "ids from 0, one a line, for the tracer of Sieve", ids),
        HandedFile(
            "kernel_ids.txt", "the same for run_hw_trace.py of Sieve", partial(_sieve, inputs, launches)
        ),
    )


def _env(launches: np.ndarray) -> Iterator[str]:
    ids = launches + 1
    yield "# Source it before the tracer runs: set -a; . ./tracer.env\n"
    ranges = id_ranges(ids)
    if _is_too_long(ranges):
        yield f"# {_NAME} would be too long for the environment; use ids.txt.\n"
    else:
        yield f"# Tracers of 2025 and later.\n{_NAME}={shlex.quote(ranges)}\n"
    yield (
        "# Earlier tracers know one range only, so they also trace what is between.\n"
        f"DYNAMIC_KERNEL_LIMIT_START={ids[0]}\nDYNAMIC_KERNEL_LIMIT_END={ids[-1]}\n"
        "TERMINATE_UPON_LIMIT=1\n"
    )


def _is_too_long(ranges: str) -> bool:
    return len(_NAME) + len(ranges) + 2 > _MOST_VARIABLE_BYTES


def _lines(launches: np.ndarray) -> Iterator[str]:
    for launch in launches.tolist():
        yield f"{launch}\n"


def _sieve(inputs: Inputs, launches: np.ndarray) -> Iterator[str]:
    yield f"{inputs.workload}:{' '.join(map(str, launches.tolist()))}\n"


def environment_notes(saved: SavedSelection, inputs: Inputs) -> tuple[Note, ...]:
    """A note where the ranges do not fit into a variable of the environment."""
    ids = traced_launches(of_one_process(saved, inputs), inputs.warm_up) + 1
    ranges = id_ranges(ids)
    return (make_note("ranges_too_long", text_bytes=len(ranges)),) if _is_too_long(ranges) else ()


class NvbitTarget:
    """Ids and environment for a tracer, before there are traces."""

    name = "nvbit"
    summary = "what NVBit tracers are to trace: their environment, and ids as Sieve has them"
    needs: frozenset[Need] = frozenset()
    takes: frozenset[Need] = frozenset()
    file_suffix = ""

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        whole, saved = saved, saved.by_launch()
        order = np.argsort(of_one_process(saved, inputs), kind="stable")
        files = (*tracer_files(saved, inputs), weights_entry(whole, inputs))
        return HandOver(files, order, notes=environment_notes(saved, inputs))
