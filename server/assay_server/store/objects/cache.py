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
import threading
import time
from collections.abc import Callable, Iterator
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


class CacheFolder:
    """A folder of files by name. Thread-safe, also over processes.

    Args:
        folder: made if missing.
        most_bytes: the bound.
        used_every_seconds: how exactly it is known when a file was last used.
    """

    def __init__(
        self, folder: Path, most_bytes: int, used_every_seconds: float = _USED_EVERY_SECONDS
    ) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._used_every_ns = int(used_every_seconds * 1e9)
        self._lock = threading.Lock()
        self._fetching: dict[str, threading.Lock] = {}
        self._added, self._held_bytes = _LOOK_EVERY, 0  # so the first addition looks
        with storage_errors(folder):
            make_private_folder(folder)
            for left in folder.rglob(f"*{TEMPORARY}*"):
                _remove_unless_used(left)

    @contextlib.contextmanager
    def reading(
        self, name: str, fetch: Callable[[IO[bytes]], bool], is_whole: Callable[[Path], bool]
    ) -> Iterator[Path]:
        """A file, which stays until the block ends.

        ``fetch`` writes it if it is not here, is not ``is_whole``, or the disk does not open it; False: there
        is none, and the path leads to nothing. Raises StorageError and what ``fetch`` raises.
        """
        path = self._folder / name
        with storage_errors(path):
            held = self._given(path)
            if held is not None and not is_whole(path):
                held.close()
                path.unlink(missing_ok=True)
                held = None
            if held is None:
                held = self._fetched(name, path, fetch)
        if held is None:
            yield path
            return
        with held:
            yield path

    def path(self, name: str) -> Path:
        """Where a file of that name would be."""
        return self._folder / name

    def put(self, name: str, source: Path) -> None:
        """Move a file of the same disk here. Raises OSError."""
        path = self._folder / name
        self._make_room(source.stat().st_size)
        _give_name(source, path)

    def forget(self, name: str) -> None:
        """Remove a file; who reads it keeps it."""
        path = self._folder / name
        with storage_errors(path):
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)

    def forget_all(self, folder: str) -> None:
        """Remove the files of a folder."""
        with storage_errors(self._folder):
            for path in list((self._folder / folder).rglob("*")):
                if path.is_file():
                    path.unlink(missing_ok=True)
            self._remove_empty(self._folder / folder)

    def _fetched(self, name: str, path: Path, fetch: Callable[[IO[bytes]], bool]) -> IO[bytes] | None:
        """The file, brought here and held; None: there is none."""
        with self._lock:
            alone = self._fetching.setdefault(name, threading.Lock())
        try:
            with alone:
                while True:  # somebody may make room before it is held
                    held = self._taken(path)  # another thread may have brought it
                    if held is not None or not self._bring(path, fetch):
                        return held
        finally:
            with self._lock:
                self._fetching.pop(name, None)

    def _bring(self, path: Path, fetch: Callable[[IO[bytes]], bool]) -> bool:
        make_private_folder(path.parent)
        temporary = path.with_name(f"{path.name}{TEMPORARY}{secrets.token_hex(8)}")
        try:
            with open(temporary, "xb", opener=private_opener) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not fetch(file):
                    temporary.unlink()
                    self._remove_empty(path.parent)
                    return False
                file.flush()
                self._make_room(os.fstat(file.fileno()).st_size)
                _give_name(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return True

    def _given(self, path: Path) -> IO[bytes] | None:
        """The file at a path, held; None: there is none, or there was one that the disk did not give."""
        try:
            return self._taken(path)
        except OSError as error:
            if not storage_fails(error):
                raise
        path.unlink(missing_ok=True)
        return None

    def _taken(self, path: Path) -> IO[bytes] | None:
        """The file at a path, held; None: there is none."""
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
            file.close()  # it was removed before it was held

    def _note_use(self, path: Path, state: os.stat_result) -> None:
        now = time.time_ns()
        if now - state.st_atime_ns >= self._used_every_ns:
            with contextlib.suppress(OSError):
                os.utime(path, ns=(now, state.st_mtime_ns))

    def _make_room(self, more_bytes: int) -> None:
        with self._lock:
            self._added += 1
            self._held_bytes += more_bytes
            # Others may use the folder, so what it holds is counted from time to time.
            if self._held_bytes <= self._most_bytes and self._added < _LOOK_EVERY:
                return
            self._added = 0
            files = sorted(self._files())
            self._held_bytes = more_bytes + sum(size for _, size, _ in files)
            if self._held_bytes > self._most_bytes:
                self._remove_oldest(files)

    def _remove_oldest(self, files: list[tuple[int, int, Path]]) -> None:
        for _, size, path in files:
            if self._held_bytes <= self._most_bytes * _LEAVE:
                return
            if _remove_unless_used(path):
                self._held_bytes -= size
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


class RecordFetcher:
    """Reads the records of a bucket. Thread-safe; several processes may share the folder."""

    def __init__(self, bucket: Bucket, place: RecordsPlace) -> None:
        self._bucket = bucket
        self.cache = CacheFolder(place.cache_folder / "files", place.cache_bytes)

    def reading(self, name: str, copy: str = "") -> contextlib.AbstractContextManager[Path]:
        """An object, which stays until the block ends; nothing at the path: there is none.

        A copy of a published file that this machine's disk has changed, or does not give, is fetched again.
        An object that has changed is given as it is: its readers find out by the hash. ``copy``: another name
        for it here.
        """

        def fetch(into: IO[bytes]) -> bool:
            try:
                self._bucket.download(name, into)
            except MissingObjectError:
                return False
            return True

        return self.cache.reading(copy or name, fetch, _is_whole)

    def report(self, name: str) -> Path:
        """Where a report is now: the newest, also of an earlier server. Read it at once."""
        bucket_object = self._bucket.look_at(name)
        if bucket_object is None:
            return self.cache.path(name)
        tag = hashlib.blake2b(
            f"{bucket_object.tag} {bucket_object.made_at}".encode(), digest_size=8
        ).hexdigest()
        folder, _, base = name.rpartition("/")
        with self.reading(name, f"{folder}/{tag}/{base}") as path:
            return path


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
    """Whether a copy is as its name says."""
    named = _NAMED_BY_CONTENT.search(path.name)
    if named is None:
        return True
    with storage_errors(path):
        try:
            return hash_of_file(path).startswith(named[1])
        except OSError as error:
            if storage_fails(error):
                return False
            raise
