"""Target ``accel-sim``: a list of the selected launches, next to links to their traces.

Accel-Sim has no option for ranges of launches: it simulates what its list names, and looks for traces in the
folder of the list. Copies to the device stay in their places where a launch after them is simulated; a copy
that a later one overwrites before that is left out.

Source: docs/simulator-files.md, "Traces"; docs/handover.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from assay_sampling.errors import MisalignedError, RefusedError
from assay_sampling.handover.comparing.realignment import realigned
from assay_sampling.handover.comparing.shapes import (
    SeenLaunch,
    refuse_another_sequence,
    refuse_other_launches,
)
from assay_sampling.handover.nvbit import environment_notes, tracer_files
from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need, of_one_process, the_traces
from assay_sampling.handover.weights import weights_entry
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.listed_launches import read_listed_launches
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList, MemoryCopy
from assay_sampling.simulators.accel_sim.trace_folder import (
    IDS_NAME,
    TraceFolder,
    launch_ids_text,
    open_trace_folder,
)
from assay_sampling.simulators.accel_sim.trace_text import TraceHeader
from assay_sampling.simulators.accel_sim.warm_up import (
    memory_only_path,
    memory_only_trace,
    warm_up_order,
)

LIST_NAME = "kernelslist.g"
WARM_LIST_NAME = "warm-kernelslist.g"


def filtered_entries(kernels: KernelsList, traces: frozenset[Path]) -> list[Path | MemoryCopy]:
    """The entries of a list with only these ``traces``, and the copies that these need, in their order."""
    entries: list[Path | MemoryCopy] = []
    pending: list[MemoryCopy] = []
    for entry in kernels.entries:
        if isinstance(entry, MemoryCopy):
            pending.append(entry)
        elif entry in traces:
            entries += [*_not_overwritten(pending), entry]
            pending = []
    return entries  # no kept launch follows the pending copies


def _not_overwritten(copies: Sequence[MemoryCopy]) -> list[MemoryCopy]:
    """Copies without those whose bytes one later copy writes again; each in its place."""
    last_writes: list[MemoryCopy] = []
    for copy in reversed(copies):
        end = copy.address + copy.size_bytes
        if not any(
            later.address <= copy.address and end <= later.address + later.size_bytes for later in last_writes
        ):
            last_writes.append(copy)
    return last_writes[::-1]


class AccelSimTarget:
    """A folder that Accel-Sim's ``-trace`` points at."""

    name = "accel-sim"
    summary = "a folder for Accel-Sim: filtered kernelslist.g, links to traces, ids, warm-up, weights"
    needs: frozenset[Need] = frozenset({"traces"})
    takes: frozenset[Need] = frozenset({"traces", "recording"})
    file_suffix = ""

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        whole, saved = saved, saved.by_launch()
        launches = of_one_process(saved, inputs)
        folder, notes = checked_traces(saved, inputs, launches)
        chosen = {int(launch) + 1 for launch in launches}
        traces = frozenset(folder.by_id[number] for number in chosen)
        entries = filtered_entries(folder.kernels, traces)
        names = [entry.line if isinstance(entry, MemoryCopy) else entry.name for entry in entries]
        place = {folder.by_id[launch + 1]: row for row, launch in enumerate(launches.tolist())}
        order = np.array([place[entry] for entry in entries if isinstance(entry, Path)], np.int64)
        warm_files, warm_links = _warm_up(saved, inputs, folder, launches)
        files = (
            HandedFile(LIST_NAME, "what Accel-Sim simulates: -trace", partial(_lines, names)),
            HandedFile(
                "warm-up.txt",
                "each representative and the launches before it that warm its caches, ids from 1",
                partial(_predecessors, launches, inputs.warm_up or 1),
            ),
            *warm_files,
            *launch_ids_files(folder, chosen),
            *tracer_files(saved, inputs),
            weights_entry(whole, inputs),
        )
        links = {entry.name: entry for entry in entries if isinstance(entry, Path)} | warm_links
        notes = (*notes, *_overlap_notes(folder, chosen), *environment_notes(saved, inputs))
        return HandOver(
            files, order, tuple(sorted(links.items())), notes, traced_ids_of(folder, launches[order])
        )


def launch_ids_files(folder: TraceFolder, kernel_ids: Iterable[int], place: str = "") -> list[HandedFile]:
    """What says which launches the traces in a place are, where their ids do not; else nothing."""
    if not folder.traced_ids:
        return []
    about = "each launch, and the id that its trace has"
    return [HandedFile(f"{place}{IDS_NAME}", about, partial(launch_ids_text, folder, tuple(kernel_ids)))]


def traced_ids_of(folder: TraceFolder, launches: np.ndarray) -> tuple[int, ...]:
    """The ids that the traces of 0-based launches have, where these are not those of the launches."""
    return tuple(folder.traced_id(launch + 1) for launch in launches.tolist()) if folder.traced_ids else ()


def _overlap_notes(folder: TraceFolder, chosen: set[int]) -> list[Note]:
    """Whether a simulator that runs streams side by side would overlap the launches."""
    streams = {folder.header(number).stream for number in chosen}
    return [make_note("launches_on_several_streams", streams=len(streams))] if len(streams) > 1 else []


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{line}\n"


def _predecessors(launches: np.ndarray, warm_up: int) -> Iterator[str]:
    for launch in np.sort(launches).tolist():
        before = range(max(launch - warm_up, 0), launch)
        yield f"{launch + 1}: {' '.join(str(each + 1) for each in before)}".rstrip() + "\n"


def checked_traces(
    saved: SavedSelection, inputs: Inputs, launches: np.ndarray
) -> tuple[TraceFolder, tuple[Note, ...]]:
    """The traces by the ids of the launches that they are, with notes on how they were found and compared
    with the selected launches, 0-based, shape (r,).

    Raises MisalignedError where they are of another workload or one is missing, RefusedError for traces of
    several tracers or GPUs, InputError for one that cannot be read.
    """
    folder, moved = realigned(saved, inputs, open_trace_folder(the_traces(inputs)))
    subject = f"{folder.kernels.path} and {inputs.selection}"
    there = [int(launch) for launch in np.sort(launches) if int(launch) + 1 in folder.by_id]
    headers = {launch: folder.header(launch + 1) for launch in there}
    _refuse_mixed_tracers(folder, headers)
    others = {
        launch: SeenLaunch(h.kernel_name, h.grid, h.block, folder.by_id[launch + 1].name)
        for launch, h in headers.items()
    }
    beyond = max(folder.by_id)
    if beyond > saved.document.profile.launches:
        others[beyond - 1] = SeenLaunch("", None, None, folder.by_id[beyond].name)
    notes = refuse_other_launches(subject, saved, others, inputs.match)
    _refuse_missing(subject, folder, launches)
    if len(folder.by_id) == saved.document.profile.launches:
        refuse_another_sequence(subject, saved, read_listed_launches(folder.kernels.path), inputs.match)
    return folder, (*moved, *notes)


def _refuse_missing(subject: str, folder: TraceFolder, launches: np.ndarray) -> None:
    """Raise MisalignedError where selected launches have no trace; those there are of this workload."""
    missing = [int(launch) + 1 for launch in np.sort(launches) if int(launch) + 1 not in folder.by_id]
    if missing:
        raise MisalignedError(
            subject,
            f"{len(missing)} of the {len(launches)} selected launches have no trace",
            "trace them: assay export SELECTION --to nvbit writes what the tracer needs",
            tuple(f"kernel-{number}.traceg is not in the list" for number in missing[:DIFFERENCES_SHOWN]),
        )


def _refuse_mixed_tracers(folder: TraceFolder, headers: dict[int, TraceHeader]) -> None:
    """Raise RefusedError for traces of different tracers or GPU generations in one folder."""
    first: tuple[int, TraceHeader] | None = None
    for launch, header in headers.items():
        if first is None:
            first = launch, header
        for name in ("tracer_version", "nvbit_version", "binary_version"):
            ours, theirs = getattr(first[1], name), getattr(header, name)
            if ours != theirs:
                raise RefusedError(
                    str(folder.path),
                    f"its traces were not made by one tracer on one GPU: {name.replace('_', ' ')} is {ours} "
                    f"in {folder.by_id[first[0] + 1].name} and {theirs} in {folder.by_id[launch + 1].name}",
                    "trace all launches with one tracer on one GPU",
                )


def _warm_up(
    saved: SavedSelection, inputs: Inputs, folder: TraceFolder, launches: np.ndarray
) -> tuple[tuple[HandedFile, ...], dict[str, Path]]:
    """The list that replays earlier launches, with the memory-only traces that it names; nothing without."""
    if not inputs.warm_up:
        return (), {}
    refuse_unwarmed(saved, inputs, folder, launches)
    order = warm_up_order(saved.document.profile.launches, launches.tolist(), inputs.warm_up)
    names, files = [], []
    for launch, memory_only in order:
        trace = folder.by_id[launch + 1]
        names.append((memory_only_path(trace) if memory_only else trace).name)
        if memory_only:
            about = f"memory instructions of launch {launch + 1}"
            files.append(HandedFile(names[-1], about, partial(memory_only_trace, trace)))
    about = "the same, each representative after the launches that warm its caches"
    return (HandedFile(WARM_LIST_NAME, about, partial(_lines, names)), *files), {}


def refuse_unwarmed(saved: SavedSelection, inputs: Inputs, folder: TraceFolder, launches: np.ndarray) -> None:
    """Raise MisalignedError where launches that warm caches have no trace."""
    if not inputs.warm_up:
        return
    order = warm_up_order(saved.document.profile.launches, launches.tolist(), inputs.warm_up)
    missing = [launch + 1 for launch, _ in order if launch + 1 not in folder.by_id]
    if missing:
        raise MisalignedError(
            f"{folder.kernels.path} and --warm-up {inputs.warm_up}",
            f"{len(missing)} of the launches to replay have no trace",
            remedy_of_unwarmed(folder, inputs, "COUNT, or give --warm-up 0"),
            tuple(f"kernel-{number}.traceg is not in the list" for number in missing[:DIFFERENCES_SHOWN]),
        )


def remedy_of_unwarmed(folder: TraceFolder, inputs: Inputs, warm_up: str) -> str:
    """What to do where launches to replay have no trace; after realignment only some traces are known."""
    tell = "name the selection's own recording, which tells more: --recording FILE; or "
    again = f"trace them too: assay export SELECTION --to nvbit --warm-up {warm_up}"
    return f"{tell}{again}" if folder.traced_ids and inputs.recording is None else again
