"""Target ``macsim``: MacSim's list with the selected launches only, next to links to their folders.

Its traces do not name kernels (:mod:`assay_sampling.simulators.macsim`). Compared are the number of launches,
and of each selected one the warps of a block and, unless grids are left out, of the whole launch.

Source: docs/handover.md; docs/simulator-files.md, "MacSim".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError, MisalignedError
from assay_sampling.files.reading import is_folder
from assay_sampling.handover.comparing.shapes import require_shapes
from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need, of_one_process, the_traces
from assay_sampling.handover.weights import weights_entry
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.macsim import (
    LIST_NAME,
    TRACE_NAME,
    TracedWarps,
    read_kernel_config,
    read_traced_warps,
)

_AGAIN = "name the folder with the kernel_config.txt of the traces"
_COPY_AGAIN = "copy the traces again, with all folders that the list names"
_SAME = "use the traces of the workload, with its input, that the selection was made on"
_WARP_THREADS = 32


class MacSimTarget:
    """A folder that MacSim's ``trace_file_list`` points at."""

    name = "macsim"
    summary = "a folder for MacSim: filtered kernel_config.txt, links to traces, weights"
    needs: frozenset[Need] = frozenset({"traces"})
    takes: frozenset[Need] = frozenset({"traces"})
    file_suffix = ""

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        whole, saved = saved, saved.by_launch()
        launches = of_one_process(saved, inputs)
        traces = the_traces(inputs)
        listed = traces / LIST_NAME if is_folder(traces) else traces
        if is_folder(traces) and not listed.exists() and any(traces.glob("kernelslist*")):
            raise InputError(traces, "its traces are Accel-Sim's", "hand over with: --to accel-sim")
        head, paths = read_kernel_config(listed)
        if len(paths) != saved.document.profile.launches:
            raise MisalignedError(
                f"{listed} and {inputs.selection}",
                f"it lists {len(paths):,} launches, and the selection was made on "
                f"{saved.document.profile.launches:,}",
                "trace all launches: MacSim's lists do not say which launch a trace is of",
            )
        order = np.argsort(launches, kind="stable")
        folders = {
            row: _folder(listed, paths[int(launches[row])], int(launches[row])) for row in order.tolist()
        }
        require_shapes(f"{listed} and {inputs.selection}", saved, inputs.match)
        _refuse_other_sizes(saved, inputs, listed, folders)
        chosen = list(folders.values())
        names = [head, *(f"{folder.name}/{TRACE_NAME}" for folder in chosen)]
        files = (
            HandedFile(LIST_NAME, "the selected launches in order", partial(_lines, names)),
            HandedFile("trace_file_list", "what MacSim starts from", _trace_file_list),
            weights_entry(whole, inputs),
        )
        links = {folder.name: folder for folder in chosen}
        return HandOver(files, order, tuple(sorted(links.items())), (make_note("names_not_in_traces"),))


def _folder(listed: Path, path: str, launch: int) -> Path:
    """The folder of a launch's trace: the last one of its path, wherever the traces were moved."""
    parts = Path(path).parts[-2:]
    if len(parts) < 2 or parts[0] in ("/", ".", ".."):
        raise InputError(listed, f"the path of launch {launch + 1} names no folder", _AGAIN)
    folder = listed.parent / parts[0]
    if not is_folder(folder):
        cause = f"there is no such folder, and it has the trace of launch {launch + 1}"
        raise InputError(folder, cause, _COPY_AGAIN)
    return folder


def _refuse_other_sizes(
    saved: SavedSelection, inputs: Inputs, listed: Path, folders: Mapping[int, Path]
) -> None:
    """Raise MisalignedError with the first differences where a selected launch has other blocks or warps.

    ``folders`` are by the row of the representative.
    """
    differences, of_blocks = [], False
    for row, folder in folders.items():
        there = read_traced_warps(folder / TRACE_NAME)
        of_blocks |= bool(
            _difference(there, saved.grid[row].tolist(), saved.block[row].tolist(), "name_block")
        )
        difference = _difference(there, saved.grid[row].tolist(), saved.block[row].tolist(), inputs.match)
        if difference:
            differences.append(f"{folder.name}/{TRACE_NAME} (launch {saved.launch[row] + 1:,}): {difference}")
    if differences:
        raise MisalignedError(
            f"{listed} and {inputs.selection}",
            f"{len(differences):,} of the {len(folders):,} selected launches have other blocks or warps",
            _SAME
            if of_blocks
            else f"{_SAME}; for those of another GPU, on which libraries choose other grids: "
            "--match name_block",
            tuple(differences[:DIFFERENCES_SHOWN]),
        )


def _difference(there: TracedWarps, grid: list[int], block: list[int], match: MatchKind) -> str:
    """What differs; "" for a launch of the grid and block. A block's last warp may have fewer threads."""
    of_block = -(-math.prod(block) // _WARP_THREADS)
    if there.warps_per_block != of_block:
        return f"{there.warps_per_block:,} warps in a block and not {of_block:,} (block {tuple(block)})"
    warps = math.prod(grid) * of_block
    if match == "exact" and there.warps != warps:
        return f"{there.warps:,} warps and not {warps:,} (grid {tuple(grid)})"
    return ""


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{line}\n"


def _trace_file_list() -> Iterator[str]:
    yield f"1\n./{LIST_NAME}\n"
