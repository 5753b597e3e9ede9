"""Looks again at the files that an analysis found missing, changed or unreadable, on this server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from assay_core.records.campaign import ChangedFile, FileChange
from assay_server.analysis.runs.intact import what_changed
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Slice


@dataclass(frozen=True)
class SecondLook:
    """What this server found; files that it found as published are in neither.

    Names are relative to the folder of records.

    Args:
        differing: files that are missing or changed.
        unreadable: files that exist and that this server's disk does not give.
    """

    differing: tuple[ChangedFile, ...]
    unreadable: tuple[ChangedFile, ...]


def look_again(coordinator: Coordinator, named: Collection[ChangedFile]) -> SecondLook:
    """Read the named files on this server.

    A worker without the shared folder misses every file, a disk may give a file the second time, and of a
    bucket's file it may be the copy that cannot be read. Raises StorageError.
    """
    # A file's name in its run is its own, wherever the one who found it has read it.
    by_name = {(each.run_id, Path(each.file).name): each.what for each in named}
    with coordinator.snapshot() as store:
        pieces = [p for run_id in sorted({run for run, _ in by_name}) for p in store.slices(run_id) if p.file]
    changes = []
    for piece in pieces:
        was = by_name.get((piece.run_id, Path(piece.file).name))
        now = None if was is None else _change_of(coordinator, piece, was)
        if now is not None:
            changes.append(ChangedFile(piece.run_id, piece.file, now))
    return SecondLook(
        tuple(each for each in changes if each.what is not FileChange.UNREADABLE),
        tuple(each for each in changes if each.what is FileChange.UNREADABLE),
    )


def _change_of(coordinator: Coordinator, piece: Slice, was: FileChange) -> FileChange | None:
    with coordinator.records.reading(piece.file) as path:
        # Who missed a file says nothing of its bytes; otherwise this process's memory of them may be old.
        return what_changed(path, piece.content_hash, afresh=was is not FileChange.MISSING)
