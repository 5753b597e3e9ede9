"""Traces of simulated launches: they hold what a launch executes, though a simulation did not finish it.

A rule of projection needs the thread instructions of a launch that was stopped, and the instructions of each
warp to see whether its last blocks are long. Source: docs/simulator-files.md, "Traces";
docs/methods/projection.md, "Inputs".
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.simulators.accel_sim.statistics import LaunchHeader
from assay_sampling.simulators.accel_sim.trace_text import (
    HEADER_BYTES,
    TraceHeader,
    block_texts,
    mask_pattern,
    open_trace,
    parse_header,
    read_header,
)

_REPLAY = "kernel-mem-"
_NUMBERED = re.compile(r"kernel-(\d{1,15})(?:-ctx_0x[0-9a-fA-F]+)?\.trace(?:g(?:\.\w+)?|z)")
_INSTRUCTIONS = re.compile(rb"^insts *= *(\d{1,9})[ \r]*$", re.MULTILINE)
_BLOCK = re.compile(rb"^thread block *= *(\d{1,10}) *, *(\d{1,10}) *, *(\d{1,10})[ \r]*$", re.MULTILINE)
_AGAIN = "copy the trace again, or trace the launch again"
_SAME = "give the traces that were simulated"


@dataclass(frozen=True)
class LaunchWork:
    """What a launch executes: its thread instructions, and the warp instructions of its warps.

    ``warp_instructions`` has shape (w,), int64, block after block in the order of the trace, in which a
    simulator starts them; ``block_warps`` how many warps each block has, shape (b,), int64.
    """

    thread_instructions: int
    warp_instructions: np.ndarray
    block_warps: np.ndarray


@dataclass(frozen=True)
class LaunchTraces:
    """Traces by the 1-based id that they have, which logs repeat; ``launch_ids`` are those of their launches
    by it, empty where they are the same. Headers and instructions are read when they are asked for, and
    instructions once, by whichever thread asks first."""

    by_id: Mapping[int, Path]
    launch_ids: Mapping[int, int] = field(default_factory=dict)
    _counted: dict[Path, LaunchWork] = field(default_factory=dict, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return LaunchTraces, (self.by_id, self.launch_ids)  # another process counts again

    @classmethod
    def of(cls, paths: Iterable[Path], launch_ids: Mapping[int, int] | None = None) -> LaunchTraces:
        """Traces known by their names, ``kernel-N.traceg``, else by the headers in them. Traces of memory
        instructions alone, which warm caches, are passed over.

        Raises InputError for a file of another name that is not a trace.
        """
        by_id: dict[int, Path] = {}
        for path in paths:
            if path.name.startswith(_REPLAY):
                continue
            named = _NUMBERED.fullmatch(path.name)
            by_id.setdefault(int(named[1]) if named else read_header(path).kernel_id, path)
        return cls(by_id, launch_ids or {})

    def path_of(self, kernel_id: int) -> Path | None:
        """The trace of a launch; None if it is not among them."""
        return self.by_id.get(kernel_id)

    def work_of(self, launch: LaunchHeader) -> LaunchWork | None:
        """What a launch that a log echoes executes, counted in its trace; None without its trace.

        Raises InputError where the trace is of another launch, is not there or is damaged.
        """
        path = None if launch.traced_id is None else self.path_of(launch.traced_id)
        if path is None or not path.exists():
            return None
        _refuse_another(path, read_header(path), launch)
        return self.work_in(path)

    def work_in(self, path: Path) -> LaunchWork:
        """What one of the traces holds; raises InputError as :func:`launch_work` does."""
        if path not in self._counted:  # what is counted already waits for no other count
            with self._lock:
                if path not in self._counted:
                    self._counted[path] = launch_work(path)
        return self._counted[path]


def _refuse_another(path: Path, header: TraceHeader, launch: LaunchHeader) -> None:
    facts: list[tuple[str, Any, Any]] = [
        ("launch", header.kernel_id, launch.traced_id),
        ("the kernel", header.kernel_name, launch.name.strip()),
        ("the grid", header.grid, launch.grid),
        ("the block", header.block, launch.block),
    ]
    for what, ours, simulated in facts:
        if simulated is not None and ours != simulated:
            raise InputError(
                path,
                f"it is of {what} {ours!r}, and what was simulated as launch {launch.traced_id} is of "
                f"{simulated!r}",
                _SAME,
            )


def launch_work(path: Path) -> LaunchWork:
    """What a launch executes, counted in its trace; thread instructions are the active lanes of all of them.

    It is what :func:`assay_sampling.simulators.accel_sim.trace.read_blocks` counts, without looking into
    operands. Raises InputError for a warp with other instructions than it says, and for a trace that does not
    hold each block of the grid once.
    """
    masks: Counter[bytes] = Counter()
    places: set[bytes] = set()
    warps: list[int] = []
    block_warps: list[int] = []
    with open_trace(path) as file:
        head = file.read(HEADER_BYTES)
        header, start = parse_header(path, head)
        lines = mask_pattern(header)
        line = head.count(b"\n", 0, start) + 1
        for text in block_texts(path, file, head[start:]):
            lanes = lines.findall(text)
            of_warps = [int(each) for each in _INSTRUCTIONS.findall(text)]
            declared = sum(of_warps)
            place = _BLOCK.search(text)
            if place is None or declared != len(lanes):
                cause = (
                    "a thread block has no index"
                    if place is None
                    else f"a thread block says that it has {declared:,} instructions, and has {len(lanes):,}"
                )
                raise InputError(path, cause, _AGAIN, line=line)
            if any(int(at) >= size for at, size in zip(place.groups(), header.grid, strict=True)):
                raise InputError(path, f"a thread block is outside the grid {header.grid}", _AGAIN, line=line)
            places.add(place[0])
            masks.update(lanes)
            warps += of_warps
            block_warps.append(len(of_warps))
            line += text.count(b"\n")
    if len(places) != header.blocks:
        raise InputError(
            path, f"it holds {len(places):,} of the {header.blocks:,} thread blocks of its grid", _AGAIN
        )
    threads = sum(int(mask, 16).bit_count() * times for mask, times in masks.items())
    return LaunchWork(threads, np.array(warps, np.int64), np.array(block_warps, np.int64))
