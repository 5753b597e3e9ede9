"""Which launches Nsight Compute profiles: processes, names, launch skip and launch count.

Launches of several processes are taken in turn: launch 0 of each process, then launch 1 of each. (With the
real tool the order depends on the machine.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_sampling.running.identity import Condition
from assay_virtual.model.gpu import ProcessLaunches
from assay_virtual.tools.environment import VirtualEnvironment
from assay_virtual.tools.kernel_names import named
from assay_virtual.tools.options import CommandLine, UsageError
from assay_virtual.tools.program import Program, run_launches

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Selected:
    """Launches to profile in the order they are met: ``part`` indexes ``parts`` (one a process), ``row``
    the launches in it; shape (n,)."""

    parts: tuple[ProcessLaunches, ...]
    part: Ints
    row: Ints

    def __len__(self) -> int:
        return len(self.part)

    def take(self, rows: Ints | slice) -> Selected:
        return Selected(self.parts, self.part[rows], self.row[rows])

    def first_of_each_process(self) -> Selected:
        return self.take(np.sort(np.unique(self.part, return_index=True)[1]))


def select_launches(
    program: Program, environment: VirtualEnvironment, command: CommandLine, condition: Condition
) -> Selected:
    """Run the program as far as needed and pick launches; raises UsageError for a bad expression."""
    totals = list(program.totals)
    if command.text("target-processes") == "application-only":
        totals[1:] = [0] * (len(totals) - 1)
    skip = (command.count("launch-skip") or 0) + (command.count("launch-skip-before-match") or 0)
    count = command.count("launch-count")
    filtered = "kernel-name" in command or "kernel-id" in command
    stop = sum(totals) if count is None or filtered else skip + count
    first = 0 if filtered else skip
    process, launch = _in_turn(totals, first, stop)
    parts, part, row = [], np.zeros(len(process), np.int64), np.zeros(len(process), np.int64)
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        least, greatest = int(launch[rows[0]]), int(launch[rows[-1]]) + 1
        parts.append(
            run_launches(
                program,
                environment,
                number,
                level="detailed",
                condition=condition,
                skip=least,
                stop=greatest,
            )
        )
        part[rows], row[rows] = len(parts) - 1, launch[rows] - least
    selected = Selected(tuple(parts), part, row)
    return _filtered(selected, command) if filtered else selected


def _in_turn(totals: list[int], first: int, stop: int) -> tuple[Ints, Ints]:
    """Process and launch of the launches [first, stop) in turn, shape (n,) each."""
    lengths = [min(total, stop) for total in totals]
    process = np.repeat(np.arange(len(totals)), lengths)
    launch = np.concatenate([np.arange(n) for n in lengths]) if lengths else np.zeros(0, np.int64)
    order = np.lexsort((process, launch))[first:stop]
    return process[order], launch[order]


def _filtered(selected: Selected, command: CommandLine) -> Selected:
    before = command.count("launch-skip-before-match") or 0
    selected = selected.take(slice(before, None))
    base = command.text("kernel-name-base")
    mask = np.ones(len(selected), np.bool_)
    if "kernel-name" in command:
        mask &= _by_name(selected, base, command.values["kernel-name"])
    if "kernel-id" in command:
        mask &= np.any([_by_id(selected, base, text) for text in command.values["kernel-id"]], axis=0)
    skip, count = command.count("launch-skip") or 0, command.count("launch-count")
    rows = np.flatnonzero(mask)[skip : None if count is None else skip + count]
    return selected.take(rows)


def _by_name(selected: Selected, base: str, texts: tuple[str, ...]) -> NDArray[np.bool_]:
    mask = np.zeros(len(selected), np.bool_)
    for number, part in enumerate(selected.parts):
        rows = np.flatnonzero(selected.part == number)
        matches = np.array(
            [any(_matches(named(kernel.name, base), text) for text in texts) for kernel in part.kernels]
        )
        mask[rows] = matches[part.kernel[selected.row[rows]]]
    return mask


def _by_id(selected: Selected, base: str, text: str) -> NDArray[np.bool_]:
    """The launches that "context:stream:[regex:]name:invocation" selects; empty parts select all."""
    match = re.fullmatch(r"([^:]*):([^:]*):(.*):([^:]*)", text)
    if match is None:
        raise UsageError(f"the argument ('{text}') for option '--kernel-id' is invalid")
    context, stream, name, invocation = match.groups()
    mask = _by_name(selected, base, (name,)) if name else np.ones(len(selected), np.bool_)
    for number, part in enumerate(selected.parts):
        rows = np.flatnonzero((selected.part == number) & mask)
        within = part.kernel[selected.row[rows]]
        good = np.full(len(rows), context in ("", "1"))
        if stream:
            good &= part.stream[selected.row[rows]] == int(stream)
        if invocation:
            nth = np.zeros(len(rows), np.int64)
            for kernel in np.unique(within).tolist():
                same = within == kernel
                nth[same] = np.arange(1, int(same.sum()) + 1)
            good &= np.array([re.fullmatch(invocation, str(value)) is not None for value in nth.tolist()])
        mask[rows] = good
    return mask


def _matches(name: str, text: str) -> bool:
    if text.startswith("regex:"):
        return re.search(text.removeprefix("regex:"), name) is not None
    return name == text
