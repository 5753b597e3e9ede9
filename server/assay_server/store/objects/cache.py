"""Files of a bucket on this machine: a folder of bounded size; what was used longest ago goes first.

Servers and the workers of an analysis read published files, reports and bundles through it.

Several processes may use one folder. Who reads a file holds a shared lock (flock) on it, which ends with the
process; only who gets the exclusive lock removes a file. So a file that is being read or written stays, even
if the folder then holds more than its bound.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from assay_core.files.durable import TEMPORARY, storage_errors, storage_fails
from assay_core.files.private_folders import make_private_folder, private_opener
from assay_server.content_hash import hash_of_file
from assay_server.places import RecordsPlace
from assay_server.store.objects.bucket import Bucket, MissingObjectError

_USED_EVERY_SECONDS = 60.0
_LOOK_EVERY = 64
_TRIES = 3
_NAMED_BY_CONTENT = re.compile(r"-([0-9a-f]{16})\.parquet")
_LEAVE = 0.95  # of the bound, so that not every new file makes room anew


class RecordCache:
    """The objects of a bucket in a folder of this machine. Thread-safe, also over processes.

    Args:
        bucket: has the objects.
        place: the folder, made if missing, and its bound.
        used_every_seconds: how exactly it is known when a file was last used.
    """

    def __init__(
        self, bucket: Bucket, place: RecordsPlace, used_every_seconds: float = _USED_EVERY_SECONDS
    ) -> None:
        self._bucket, self._most_bytes = bucket, place.cache_bytes
        self._folder = place.cache_folder / "files"
        self._used_every_ns = int(used_every_seconds * 1e9)
        self._lock = threading.Lock()
        self._fetching: dict[Path, threading.Lock] = {}
        self._added, self._bytes = _LOOK_EVERY, 0  # so the first addition looks
        with storage_errors(self._folder):
            make_private_folder(self._folder)
            for left in self._folder.rglob(f"*{TEMPORARY}*"):
                _remove_unless_used(left)

    @contextlib.contextmanager
    def reading(self, name: str, copy: str = "") -> Iterator[Path]:
        """An object, which stays until the block ends; nothing at the path: there is none.

        A copy of a published file that this machine's disk has changed, or does not give, is fetched again.
        An object that has changed is given as it is: its readers find out by the hash. ``copy``: another name
        for it here. Raises StorageError.
        """
        path = self._folder / (copy or name)
        with storage_errors(path):
            file = self._whole(path) or self._fetched(name, path)
        if file is None:
            yield path
            return
        with file:
            yield path

    def report(self, name: str) -> Path:
        """Where a report is now: the newest, also of an earlier server. Read it at once."""
        bucket_object = self._bucket.look_at(name)
        if bucket_object is None:
            return self._folder / name
        tag = hashlib.blake2b(
            f"{bucket_object.tag} {bucket_object.made_at}".encode(), digest_size=8
        ).hexdigest()
        folder, _, base = name.rpartition("/")
        with self.reading(name, f"{folder}/{tag}/{base}") as path:
            return path

    def put(self, name: str, source: Path) -> None:
        """Move a file of the same disk here. Raises OSError."""
        self._make_room(source.stat().st_size)
        _give_name(source, self._folder / name)

    def forget(self, name: str) -> None:
        """Remove a file; who reads it keeps it."""
        path = self._folder / name
        with storage_errors(path):
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)

    def forget_all(self, folder: str) -> None:
        """Remove the files of a folder."""
        path = self._folder / folder
        with storage_errors(path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def _fetched(self, name: str, path: Path) -> IO[bytes] | None:
        """The file, brought here and locked; None: there is none."""
        with self._lock:
            alone = self._fetching.setdefault(path, threading.Lock())
        try:
            with alone:
                # Another thread may have brought it; somebody may make room before it is locked.
                while (file := self._locked(path)) is None and self._bring(name, path):
                    pass
                return file
        finally:
            with self._lock:
                self._fetching.pop(path, None)

    def _bring(self, name: str, path: Path) -> bool:
        make_private_folder(path.parent)
        temporary = path.with_name(f"{path.name}{TEMPORARY}{secrets.token_hex(8)}")
        try:
            with open(temporary, "xb", opener=private_opener) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._bucket.download(name, file)
                file.flush()
                self._make_room(os.fstat(file.fileno()).st_size)
                _give_name(temporary, path)
        except MissingObjectError:
            temporary.unlink()
            self._remove_empty(path.parent)
            return False
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return True

    def _whole(self, path: Path) -> IO[bytes] | None:
        """The file at a path, locked; None: there is none that is as its name says and the disk gives."""
        file = None
        try:
            file = self._locked(path)
            if file is None or _is_whole(path):
                return file
        except OSError as error:
            if not storage_fails(error):
                raise
        if file is not None:
            file.close()
        path.unlink(missing_ok=True)
        return None

    def _locked(self, path: Path) -> IO[bytes] | None:
        """The file at a path, locked against removal; None: there is none."""
        while True:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return None
            fcntl.flock(file, fcntl.LOCK_SH)
            state = os.fstat(file.fileno())
            if state.st_nlink:
                self._note_use(path, state)
                return file
            file.close()  # it was removed before it was locked

    def _note_use(self, path: Path, state: os.stat_result) -> None:
        now = time.time_ns()
        if now - state.st_atime_ns >= self._used_every_ns:
            with contextlib.suppress(OSError):
                os.utime(path, ns=(now, state.st_mtime_ns))

    def _make_room(self, more_bytes: int) -> None:
        with self._lock:
            self._added += 1
            self._bytes += more_bytes
            # Others may use the folder, so what it holds is counted from time to time.
            if self._bytes <= self._most_bytes and self._added < _LOOK_EVERY:
                return
            self._added = 0
            files = sorted(self._files())
            self._bytes = more_bytes + sum(size for _, size, _ in files)
            if self._bytes > self._most_bytes:
                self._remove_oldest(files)

    def _remove_oldest(self, files: list[tuple[int, int, Path]]) -> None:
        for _, size, path in files:
            if self._bytes <= self._most_bytes * _LEAVE:
                return
            if _remove_unless_used(path):
                self._bytes -= size
                self._remove_empty(path.parent)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """When each file was last used, its size and its path."""
        for path in self._folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                state = path.lstat()
                if path.is_file() and TEMPORARY not in path.name:
                    yield state.st_atime_ns, state.st_size, path

    def _remove_empty(self, folder: Path) -> None:
        if folder != self._folder:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _give_name(source: Path, path: Path) -> None:
    for _ in range(_TRIES):
        make_private_folder(path.parent)
        try:
            source.replace(path)
        except FileNotFoundError:  # somebody removed the folder, which was empty
            continue
        return
    source.replace(path)


def _remove_unless_used(path: Path) -> bool:
    """Remove a file that nobody reads or writes now; whether it was removed."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_whole(path: Path) -> bool:
    """Whether a copy is as its name says. Raises OSError."""
    named = _NAMED_BY_CONTENT.search(path.name)
    return named is None or hash_of_file(path).startswith(named[1])
