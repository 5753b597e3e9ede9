"""Unknown or changed files: moved out of the way, listed, and never removed.

    <state>/set-aside/2026-11-22T04-05-06Z-unknown_to_database/manifest.json
                                                               records/<run_id>/slice-00000.parquet

Each time, the files get a new folder, whose manifest is written before they are moved: after a crash or on a
full disk it may name more files than were moved. A person looks at the folder and removes it; the list shows
the folders that exist.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files.durable import (
    make_folder,
    storage_errors,
    sync_directory,
    sync_file,
    temporary_of,
    write_atomically,
)
from assay_core.records.campaign import SetAsideReason

MANIFEST = "manifest.json"
_NAMED = 20

_log = logging.getLogger(__name__)


_MEANINGS = {
    SetAsideReason.UNKNOWN: "which the database does not know (it may be an older backup)",
    SetAsideReason.CHANGED: "which changed since they were stored",
}


@dataclass(frozen=True)
class MovedFiles:
    """Files that were moved together; ``names`` are relative to the state folder, and now to ``folder``."""

    folder: str
    reason: SetAsideReason
    set_aside_at_ms: int
    file_bytes: int
    names: tuple[str, ...]

    @property
    def manifest(self) -> bytes:
        """The content of their manifest."""
        return json.dumps(asdict(self), indent=1).encode()


def read_manifest(folder: str, data: bytes) -> MovedFiles:
    """What a manifest in a folder says; one that cannot be read names nothing."""
    try:
        document = json.loads(data)
        names = tuple(map(str, document["names"]))
        reason, at_ms = SetAsideReason(document["reason"]), int(document["set_aside_at_ms"])
    except (ValueError, KeyError, TypeError):
        return MovedFiles(folder, SetAsideReason.UNKNOWN, 0, 0, ())
    return MovedFiles(folder, reason, at_ms, 0, names)


class SetAsideFolder:
    """``<state>/set-aside``. Thread-safe."""

    def __init__(self, state_dir: Path) -> None:
        self._state = state_dir
        self._top = state_dir / "set-aside"
        self._lock = threading.Lock()
        self._read: dict[str, MovedFiles] = {}

    def put(self, paths: Sequence[Path], reason: SetAsideReason) -> MovedFiles | None:
        """Move files and folders of the state folder; None if there are none. Raises StorageError."""
        files = sorted({file for path in paths for file in _files(path)})
        if not files:
            return None
        now = datetime.now(UTC)
        with self._lock, storage_errors(self._top):
            folder = self._new_folder(f"{now:%Y-%m-%dT%H-%M-%SZ}-{reason}")
            moved = MovedFiles(
                str(folder),
                reason,
                int(now.timestamp() * 1000),
                sum(path.lstat().st_size for path in files),
                tuple(str(path.relative_to(self._state)) for path in files),
            )
            try:
                write_atomically(folder / MANIFEST, moved.manifest)
                self._move(files, moved)
            except OSError:
                _remove_if_nothing_came(folder)
                raise
            self._read[folder.name] = moved
            return moved

    def _move(self, files: Sequence[Path], moved: MovedFiles) -> None:
        targets = [Path(moved.folder) / name for name in moved.names]
        for path, target in zip(files, targets, strict=True):
            make_folder(target.parent)
            try:
                path.rename(target)
            except OSError as error:
                if error.errno != errno.EXDEV:  # a folder of the state may be on another disk
                    raise
                _move_by_copy(path, target)
        for parent in {path.parent for path in (*files, *targets)}:
            sync_directory(parent)

    def all(self) -> list[MovedFiles]:
        """The folders there now, oldest first; a folder with an unreadable manifest appears as empty.

        A folder that got no files, because the server died, is left out.
        """
        with self._lock, storage_errors(self._top):
            names = sorted(p.name for p in self._top.iterdir() if p.is_dir()) if self._top.exists() else []
            listed = {name: self._read.get(name) or _files_there(self._top / name) for name in names}
            self._read = {name: moved for name, moved in listed.items() if moved is not None}
            return list(self._read.values())

    def _new_folder(self, name: str) -> Path:
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        folder = next(self._top / each for each in names if not (self._top / each).exists())
        make_folder(folder)
        return folder


def warn_of(moved: MovedFiles | None) -> None:
    """Log what was set aside, if anything was: the first files, and their number."""
    if moved is None:
        return
    rest = len(moved.names) - _NAMED
    _log.warning(
        "%d files %s were moved to %s: %s%s; nothing was removed: look at them, then remove the folder",
        len(moved.names),
        _MEANINGS[moved.reason],
        moved.folder,
        ", ".join(moved.names[:_NAMED]),
        f" and {rest:,} more" if rest > 0 else "",
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir() and not path.is_symlink():
        return [p for p in path.rglob("*") if p.is_symlink() or not p.is_dir()]
    return [path]


def _move_by_copy(path: Path, target: Path) -> None:
    """Removes ``path`` once its copy is durable."""
    temporary = temporary_of(target)
    try:
        shutil.copy2(path, temporary, follow_symlinks=False)
        if not temporary.is_symlink():
            sync_file(temporary)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
    path.unlink()


def _remove_if_nothing_came(folder: Path) -> None:
    """Otherwise a server that restarts on a full disk would leave a folder each time."""
    if any(path.name != MANIFEST for path in _files(folder)):
        return
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)


def _files_there(folder: Path) -> MovedFiles | None:
    """The files in a manifest that exist; None if none do."""
    try:
        moved = read_manifest(str(folder), (folder / MANIFEST).read_bytes())
        names = tuple(name for name in moved.names if os.path.lexists(folder / name))
        file_bytes = sum((folder / name).lstat().st_size for name in names)
    except OSError:
        return read_manifest(str(folder), b"")
    return replace(moved, names=names, file_bytes=file_bytes) if names or not moved.names else None
