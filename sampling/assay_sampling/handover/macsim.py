"""Target ``macsim``: MacSim's list with the selected launches only, next to links to their folders.

``kernel_config.txt`` has a first part with the number of threads (-1: a list follows) and the kind of trace,
then one path to a ``Trace.txt`` for each launch, in order of launch. MacSim takes the last folder of each
path and looks for it in the folder of the list. Its traces do not name kernels, so that names cannot be
checked; the number of launches is.

Source: docs/simulator-files.md, "MacSim"; MacSim's process_manager_c::create_process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError, MisalignedError
from assay_sampling.files.reading import is_folder, reading, require_file
from assay_sampling.handover.target import Given, HandedFile, HandOver, Need, of_one_process, the_traces
from assay_sampling.handover.weights import weights_entry
from assay_sampling.notes.registry import make_note
from assay_sampling.scoring.selection import SavedSelection

LIST_NAME = "kernel_config.txt"
_AGAIN = "name the folder with the kernel_config.txt of the traces"


def read_kernel_config(path: Path) -> tuple[str, list[str]]:
    """The first part of a ``kernel_config.txt``, and the paths of its launches in order.

    Raises InputError for a file that is not such a list.
    """
    require_file(path)
    with reading(path):
        lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    first = next((at for at, line in enumerate(lines) if line.strip().endswith("Trace.txt")), len(lines))
    head = [line for line in lines[:first] if line.strip()]
    if "-1" not in " ".join(head).split():
        raise InputError(path, "it is not a list of kernels: it does not say '-1'", _AGAIN, line=1)
    paths = [line.strip() for line in lines[first:] if line.strip()]
    for number, line in enumerate(lines[first:], first + 1):
        if line.strip() and not line.strip().endswith("Trace.txt"):
            raise InputError(path, f"{line[:60]!r} is not the path of a Trace.txt", _AGAIN, line=number)
    if not paths:
        raise InputError(path, "it lists no launch", _AGAIN)
    return "\n".join(head), paths


class MacSimTarget:
    """A folder that MacSim's ``trace_file_list`` points at."""

    name = "macsim"
    summary = "a folder for MacSim: filtered kernel_config.txt, links to traces, weights"
    needs: frozenset[Need] = frozenset({"traces"})
    takes: frozenset[Need] = frozenset({"traces"})
    file_suffix = ""

    def hand_over(self, saved: SavedSelection, given: Given) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        launches = of_one_process(saved, given)
        traces = the_traces(given)
        listed = traces / LIST_NAME if is_folder(traces) else traces
        if is_folder(traces) and not listed.exists() and any(traces.glob("kernelslist*")):
            raise InputError(traces, "its traces are Accel-Sim's", "hand over with: --to accel-sim")
        head, paths = read_kernel_config(listed)
        if len(paths) != saved.document.profile.launches:
            raise MisalignedError(
                f"{listed} and {given.selection}",
                f"it lists {len(paths):,} launches, and the selection was made on "
                f"{saved.document.profile.launches:,}",
                "trace all launches: MacSim's lists do not say which launch a trace is of",
            )
        order = np.argsort(launches, kind="stable")
        # Only the last folder of a path counts, wherever the traces were moved.
        chosen = [Path(paths[launch]).parts[-2:] for launch in launches[order].tolist()]
        for parts, launch in zip(chosen, launches[order].tolist(), strict=True):
            if len(parts) < 2 or parts[0] in ("/", ".", ".."):
                raise InputError(listed, f"the path of launch {launch + 1} names no folder", _AGAIN)
            if not is_folder(listed.parent / parts[0]):
                raise InputError(
                    listed.parent / parts[0],
                    f"there is no such folder, and it has the trace of launch {launch + 1}",
                    "copy the traces again, with all folders that the list names",
                )
        names = [head, *("/".join(parts) for parts in chosen)]
        files = (
            HandedFile(LIST_NAME, "the selected launches in order", partial(_lines, names)),
            HandedFile("trace_file_list", "what MacSim starts from", _trace_file_list),
            weights_entry(saved, given),
        )
        links = {parts[0]: listed.parent / parts[0] for parts in chosen}
        return HandOver(files, order, tuple(sorted(links.items())), (make_note("names_not_in_traces"),))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{line}\n"


def _trace_file_list() -> Iterator[str]:
    yield f"1\n./{LIST_NAME}\n"
