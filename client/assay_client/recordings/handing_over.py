"""Writes a selection in the form of a target: the files of ``assay export``, and links to existing traces or
copies of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_client.files import link_to, require_folder_of, write_atomically
from assay_client.recordings.analyses import load_selection, read_profile
from assay_core.files.durable import storage_errors
from assay_core.program import distribution_version
from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.handover import HandOverDocument, WrittenFileEntry
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.files.reading import reading
from assay_sampling.handover.offered import target_called
from assay_sampling.handover.target import HandOver, Inputs, Target
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.scoring.saved_selection import SavedSelection

_PIECE_BYTES = 1 << 20
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class ExportRequest:
    """What to export.

    Args:
        selection: a selection's file, or a weights file.
        to: the name of the target.
        output: the folder, or the file of a target of one file; None: next to the caller, named after the
            selection.
        traces: a folder of traces or the list in it.
        recording: that of the selection: to draw it, or to find the launches that a tracer missed.
        workload: the workload's name in files; "" takes the selection's.
        warm_up: earlier launches to replay before each representative.
        match: how closely traces must be the selected launches.
        copy: write copies of traces instead of links to them.
        force: write over existing files.
        memory_limit_bytes: refuse before holding more than this.
    """

    selection: Path
    to: str
    output: Path | None = None
    traces: Path | None = None
    recording: Path | None = None
    workload: str = ""
    warm_up: int = 0
    match: MatchKind = "exact"
    copy: bool = False
    force: bool = False
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES


def export(request: ExportRequest, say: Callable[[str], None] = lambda _: None) -> HandOverDocument:
    """Write a selection in the form of a target, or nothing if one of its files must not be written.

    Raises ParameterError for an unknown target, inputs that it does not take or lacks, and a place that must
    not be written to; StorageError for existing files without ``force``; and what the target raises for
    inputs of another workload.
    """
    target = target_called(request.to)
    _check_inputs(target, request)
    saved = load_selection(request.selection)
    handed = target.hand_over(saved, _inputs(request, say))
    output = request.output or Path(f"{request.selection.stem}{target.file_suffix or f'.{target.name}'}")
    places = _places(target, handed, output)
    _refuse_to_write(request, target, places, handed, output)
    for entry in handed.files:
        say(f"writing {places[entry.name]}")
        write_atomically(places[entry.name], entry.pieces())
    for name, existing in handed.links:
        if request.copy:
            say(f"copying {existing}")
            _copy(existing, output / name)
        else:
            link_to(output / name, _from_folder_of(output / name, existing))
    return _document(request, saved, handed, output, places)


def _from_folder_of(link: Path, existing: Path) -> Path:
    """The way from a link to what it leads to, which stays right where both are moved or copied together."""
    return Path(os.path.relpath(existing.resolve(), link.parent.resolve()))


def _copy(existing: Path, place: Path) -> None:
    """Copy a trace, or the folder of one; raises InputError and StorageError."""
    if place.is_symlink():  # what it leads to may be the trace itself
        with storage_errors(place):
            place.unlink()
    if existing.is_dir():
        for path in sorted(existing.iterdir()):
            _copy(path, place / path.name)
    else:
        write_atomically(place, _pieces(existing))


def _pieces(path: Path) -> Iterator[bytes]:
    with reading(path), path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def made_by() -> str:
    """The program and its version, for files that name them."""
    return f"assay {distribution_version()}".strip()


def workload_name(request_name: str, selection: Path) -> str:
    """The workload's name in files: as given, else after the selection's file, without blanks and colons."""
    return _NOT_IN_A_NAME.sub("-", request_name or selection.stem).strip("-") or "workload"


def _check_inputs(target: Target, request: ExportRequest) -> None:
    if request.copy and "traces" not in target.takes:
        raise ParameterError("--copy", f"--to {target.name} takes no traces", "leave it out")
    inputs = {"traces": request.traces, "recording": request.recording}
    for name, value in inputs.items():
        if value is not None and name not in target.takes:
            raise ParameterError(f"--{name}", f"--to {target.name} reads none", "leave it out")
        if value is None and name in target.needs:
            example = "DIR" if name == "traces" else "FILE"
            raise ParameterError(f"--{name}", f"--to {target.name} needs it", f"give --{name} {example}")


def _inputs(request: ExportRequest, say: Callable[[str], None]) -> Inputs:
    recording = None
    if request.recording is not None:
        say(f"reading {request.recording}")
        profile = read_profile(request.recording, memory_limit_bytes=request.memory_limit_bytes)
        recording = profile.whole
    return Inputs(
        selection=request.selection,
        workload=workload_name(request.workload, request.selection),
        made_by=made_by(),
        traces=request.traces,
        recording=recording,
        warm_up=request.warm_up,
        match=request.match,
    )


def _places(target: Target, handed: HandOver, output: Path) -> dict[str, Path]:
    """Where each file goes."""
    if target.file_suffix:
        (only,) = handed.files
        return {only.name: output}
    return {entry.name: output / entry.name for entry in handed.files}


def _refuse_to_write(
    request: ExportRequest, target: Target, places: dict[str, Path], handed: HandOver, output: Path
) -> None:
    """Raise before anything is written: ParameterError for a place, StorageError for what exists."""
    if target.file_suffix:
        require_folder_of(output)
        if output.is_dir():
            raise ParameterError("--output", f"{output} is a folder", "name a file")
    folders = {existing.resolve().parent for _, existing in handed.links}
    if not target.file_suffix and output.resolve() in folders:
        raise ParameterError(
            "--output",
            f"{output} is the folder of the traces, whose list would be overwritten",
            "name another folder, to which the traces are linked",
        )
    if request.force:
        return
    for path in (*places.values(), *(output / name for name, _ in handed.links)):
        if path.is_symlink() or path.exists():
            raise StorageError(
                str(path), "it exists already", "name another place with --output, or replace it with --force"
            )


def _document(
    request: ExportRequest,
    saved: SavedSelection,
    handed: HandOver,
    output: Path,
    places: dict[str, Path],
) -> HandOverDocument:
    chosen = saved.by_launch()
    files = [WrittenFileEntry(path=str(places[e.name]), about=e.about) for e in handed.files]
    traces = [(str(output / name), existing) for name, existing in handed.links]
    if request.copy:
        files += [WrittenFileEntry(path=path, about=f"a copy of {existing}") for path, existing in traces]
    return HandOverDocument(
        target=request.to,
        selection=str(request.selection),
        output=str(output),
        files=files,
        links=[] if request.copy else [path for path, _ in traces],
        launches=chosen.launch[handed.launches].tolist(),
        weights=chosen.weight[handed.launches].tolist(),
        traced_ids=list(handed.traced_ids),
        notes=[NoteEntry.of(note) for note in handed.notes],
    )
