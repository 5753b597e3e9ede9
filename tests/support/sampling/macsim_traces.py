"""Traces of MacSim, made up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path


def write_warps(path: Path, grid: Sequence[int], block: Sequence[int], *, head: str = "") -> Path:
    """The ``Trace.txt`` of a launch, of which the ids of the first block are written and one more."""
    warps = -(-math.prod(map(int, block)) // 32)
    every = math.prod(map(int, grid)) * warps
    ids = (place // warps * 65536 + place % warps for place in range(min(every, warps + 1)))
    lines = [f"{head}{every} newptx 8", *(f"{each} 0" for each in ids)]
    path.write_text("\n".join(lines) + "\n")
    return path
