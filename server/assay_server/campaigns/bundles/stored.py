"""Bundles on a local disk, by their hash: equal files are kept once.

    <state>/bundles/<sha256>.tar.z    the compressed archive, as its first sender compressed it
    <state>/bundles/<sha256>.json     its size, and who sent it when: its holders
    <state>/bundles/incoming/...      on their way in, and what broken streams brought; removed at every start

Several servers may share the folder. Then each has a folder of its own below ``incoming``, and reads a
bundle's description again before it says that it lacks it, or changes it.

Only who sent a bundle may name it in a campaign: the hash of somebody's files must not be enough to have them
run, or to learn that they are here. A holder's claim goes when no campaign of theirs names the bundle any
more and they did not ask for it for a while; the files go with the last claim.

What a stream brought before it broke is kept as long, for whoever sent it, counts as theirs, and is checked
again when the next stream continues it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from assay_core.bundles.form import BundleBounds, is_hash
from assay_core.bundles.reading import BundleReader, Checked
from assay_core.files.durable import (
    make_folder,
    storage_errors,
    sync_directory,
    write_atomically,
)
from assay_core.files.free_space import free_space
from assay_core.files.private_folders import private_opener
from assay_core.records.upload import Bundle, BundlePart
from assay_sampling.errors import AssayError, InputError, StorageError
from assay_server.clock import wall_ms
from assay_server.limits import DEFAULT_LIMITS, BundleLimits

_log = logging.getLogger(__name__)

FOLDER, PACKED, TOLD = "bundles", ".tar.z", ".json"
_PIECE_BYTES = 1 << 20
_AGAIN = "submit the campaign again: it is sent then"
_counter = itertools.count()


@dataclass(frozen=True)
class _Part:
    """What a broken stream brought, and when it broke (Unix ms)."""

    path: Path
    told: BundlePart
    at_ms: int


@dataclass
class _Kept:
    """A bundle that is here; ``holders``: when each last asked for it (Unix ms)."""

    bundle: Bundle
    stored_bytes: int
    holders: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        bundle = self.bundle
        document = {"bytes": bundle.bytes, "files": bundle.files, "holders": self.holders}
        return json.dumps(document, sort_keys=True).encode()


class BundleStore:
    """The bundles of a server. Thread-safe.

    Args:
        state: the server's state folder.
        limits: bounds of one bundle, of what one identity may have here, and of all.
        minimum_free_bytes: what must stay free on the disk.
        now_ms: the wall clock.
        shared: whether other servers have bundles in the folder.
    """

    def __init__(
        self,
        state: Path,
        limits: BundleLimits = DEFAULT_LIMITS.bundles,
        minimum_free_bytes: int = 0,
        now_ms: Callable[[], int] = wall_ms,
        *,
        shared: bool = False,
    ) -> None:
        self._folder = state / FOLDER
        self._shared = shared
        self._incoming = self._folder / "incoming"
        if shared:
            self._incoming /= secrets.token_hex(8)
        self.limits = limits
        self.bounds = BundleBounds(limits.bundle_bytes, limits.bundle_entries, limits.bundle_path_bytes)
        self._minimum_free_bytes = minimum_free_bytes
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._parts: dict[tuple[str, str], _Part] = {}  # by holder and bundle, the oldest first
        with storage_errors(self._folder):
            shutil.rmtree(self._incoming, ignore_errors=True)
            if self._folder.is_dir():
                self._read()

    def path(self, sha256: str) -> Path:
        """Where a bundle is, or would be."""
        assert is_hash(sha256)
        return self._folder / f"{sha256}{PACKED}"

    def missing(self, holder: str, bundles: Iterable[Bundle]) -> tuple[str, ...]:
        """Those that this holder must send, each once; the others are kept for a while."""
        with self._lock, storage_errors(self._folder):
            return tuple(
                dict.fromkeys(each.sha256 for each in bundles if not self._touched(holder, each.sha256))
            )

    def require(self, holder: str, bundles: Iterable[Bundle]) -> None:
        """Raises InputError unless the holder sent all of them, as they are described."""
        for each in bundles:
            with self._lock, storage_errors(self._folder):
                here = self._touched(holder, each.sha256) and self._kept[each.sha256].bundle == each
            if not here:
                raise InputError(f"bundle {each.sha256[:64]}", "you have not sent it to this server", _AGAIN)

    def parts(self, holder: str, bundles: Iterable[Bundle]) -> tuple[BundlePart, ...]:
        """What streams of this holder brought of these bundles before they broke."""
        with self._lock:
            found = (self._parts.get((holder, each.sha256)) for each in bundles)
            return tuple(dict.fromkeys(part.told for part in found if part is not None))

    def begin(self, holder: str, bundle: Bundle, offset: int = 0) -> Incoming:
        """Begin to receive a bundle, or go on behind the part of it that the holder sent.

        Raises InputError or StorageError if it cannot be taken.
        """
        reader = BundleReader(bundle, Checked(), self.bounds)
        with self._lock, storage_errors(self._folder):
            part = self._parts.pop((holder, bundle.sha256), None)  # one stream continues it
            if part is not None and part.told.bytes != offset:
                part.path.unlink(missing_ok=True)
                part = None
            if offset and part is None:
                cause = f"it goes on at byte {offset:,}, and the server has no such part of it from you"
                raise InputError(f"bundle {bundle.sha256[:64]}", cause, "send it from its beginning")
            mine = sum(each.stored_bytes for each in self._kept.values() if holder in each.holders)
            mine += sum(each.told.bytes for (who, _), each in self._parts.items() if who == holder)
            total = sum(each.stored_bytes for each in self._kept.values())
            total += sum(each.told.bytes for each in self._parts.values())
            room = min(
                self.limits.bundle_identity_bytes - mine,
                self.limits.bundle_total_bytes - total,
                free_space(self._folder).free_bytes - self._minimum_free_bytes,
            )
            make_folder(self._incoming)
        if room <= 0:
            raise _no_room(self.limits, mine, total)
        path = self._new_path() if part is None else part.path
        incoming = Incoming(self, holder, bundle, reader, most_bytes=room, path=path)
        if part is not None:
            try:
                incoming.read_again()
            except BaseException:
                incoming.close()
                raise
        return incoming

    def keep_part(self, holder: str, bundle: Bundle, path: Path, told: BundlePart) -> None:
        """Keep what a stream brought that broke; the oldest parts of a holder with too many go."""
        with self._lock, storage_errors(path):
            replaced = [self._parts.pop((holder, bundle.sha256), None)]
            kept = self._kept.get(bundle.sha256)
            if kept is not None and holder in kept.holders:
                path.unlink(missing_ok=True)  # another stream was faster
            else:
                self._parts[holder, bundle.sha256] = _Part(path, told, self._now_ms())
            mine = [key for key in self._parts if key[0] == holder]
            replaced += [self._parts.pop(key) for key in mine[: -self.limits.bundle_parts]]
            for part in replaced:
                if part is not None:
                    part.path.unlink(missing_ok=True)

    def keep(self, holder: str, bundle: Bundle, packed: Path) -> None:
        """Give a checked file its name and its holder, durably; a second copy changes nothing."""
        path = self.path(bundle.sha256)
        with self._lock, storage_errors(path):
            kept = self._known(bundle.sha256)
            if kept is None:
                packed.replace(path)
                sync_directory(path.parent)
                kept = _Kept(bundle, path.stat().st_size)
            kept.holders[holder] = self._now_ms()
            self._tell(kept)
            self._kept[bundle.sha256] = kept
            part = self._parts.pop((holder, bundle.sha256), None)
            if part is not None:
                part.path.unlink(missing_ok=True)

    def stored_bytes(self, sha256: str) -> int:
        """The compressed bytes of a bundle; 0: it is not here."""
        with self._lock, storage_errors(self._folder):
            kept = self._known(sha256)
        return 0 if kept is None else kept.stored_bytes

    def pieces(self, sha256: str) -> Iterator[bytes]:
        """The compressed bundle. Raises StorageError if it is not here."""
        return _pieces(self.path(sha256))

    def forget(self, named: Mapping[str, frozenset[str]]) -> list[str]:
        """Remove what nobody needs; ``named``: by bundle, the owners of campaigns that name it.

        Returns the bundles that are gone.
        """
        before = self._now_ms() - 1000 * self.limits.bundle_unnamed_seconds
        gone = []
        with self._lock, storage_errors(self._folder):
            if self._shared and self._folder.is_dir():
                self._read()
            for sha256, kept in list(self._kept.items()):
                owners = named.get(sha256, frozenset())
                holders = {who: at for who, at in kept.holders.items() if at >= before or who in owners}
                if not holders and not owners:
                    self._tell_path(sha256).unlink(missing_ok=True)
                    self.path(sha256).unlink(missing_ok=True)
                    del self._kept[sha256]
                    gone.append(sha256)
                elif holders != kept.holders:
                    kept.holders = holders
                    self._tell(kept)
            for key, part in list(self._parts.items()):
                if part.at_ms < before:
                    del self._parts[key]
                    part.path.unlink(missing_ok=True)
        if gone:
            _log.info("%d bundles are gone that no campaign names any more", len(gone))
        return gone

    def _new_path(self) -> Path:
        """A new name for a file on its way in."""
        return self._incoming / f"{os.getpid()}-{next(_counter)}"

    def _touched(self, holder: str, sha256: str) -> bool:
        kept = self._known(sha256)
        if kept is None or holder not in kept.holders:
            return False
        kept.holders[holder] = self._now_ms()
        self._tell(kept)
        return True

    def _tell_path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}{TOLD}"

    def _tell(self, kept: _Kept) -> None:
        write_atomically(self._tell_path(kept.bundle.sha256), kept.to_json())

    def _read(self) -> None:
        """What is here. A file without its description was never acknowledged, and goes."""
        for path in self._folder.glob(f"*{PACKED}"):
            sha256 = path.name.removesuffix(PACKED)
            try:
                self._read_one(sha256)
            except FileNotFoundError:
                if not self._shared:  # another server may be about to describe it
                    path.unlink()

    def _known(self, sha256: str) -> _Kept | None:
        """A bundle that is here, also if another server took it in."""
        if self._shared:
            try:
                self._read_one(sha256)
            except FileNotFoundError:
                self._kept.pop(sha256, None)
        return self._kept.get(sha256)

    def _read_one(self, sha256: str) -> None:
        """Raises FileNotFoundError if it is not here, or not described."""
        try:
            told = json.loads(self._tell_path(sha256).read_bytes())
            bundle = Bundle(sha256, int(told["bytes"]), int(told["files"]))
            holders = {str(who): int(at) for who, at in told["holders"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            path = self.path(sha256)
            _log.warning("the description of bundle %s is damaged (%s): it must be sent again", path, error)
        else:
            self._kept[sha256] = _Kept(bundle, self.path(sha256).stat().st_size, holders)


def bundle_fault(path: Path, bundle: Bundle) -> str:
    """Why a file is not the bundle, compressed; "" if it is. Reads all of it."""
    if not path.exists():
        return "it is missing"
    try:
        reader = BundleReader(bundle, Checked())
        for piece in _pieces(path):
            reader.feed(piece)
        reader.finish()
    except AssayError as error:
        return error.cause
    return ""


def _pieces(path: Path) -> Iterator[bytes]:
    with storage_errors(path), path.open("rb") as file:
        while data := file.read(_PIECE_BYTES):
            yield data


class Incoming:
    """A bundle on its way in: :meth:`feed` its pieces, then :meth:`finish`. A context manager.

    What came of it is kept as a part if it is closed before it is finished, unless something in it was wrong.
    """

    def __init__(
        self,
        store: BundleStore,
        holder: str,
        bundle: Bundle,
        reader: BundleReader,
        *,
        most_bytes: int,
        path: Path,
    ) -> None:
        self._store, self._holder, self.bundle = store, holder, bundle
        self._reader, self._room = reader, most_bytes
        self._path = path
        self._bytes, self._hash = 0, hashlib.sha256()
        self._ended = self._wrong = False
        self._using = threading.Lock()  # a call that was cancelled is closed while a thread may still feed
        with storage_errors(self._path):
            self._file: IO[bytes] = open(self._path, "ab", opener=private_opener)  # noqa: SIM115 - see close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_again(self) -> None:
        """Check the part that is here, which the next pieces continue."""
        for piece in _pieces(self._path):
            self._take(piece)

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises InputError for what is not the bundle, StorageError without room."""
        with self._using:
            if not self._ended:
                self._take(data)
                with self._or_wrong(), storage_errors(self._path):
                    self._file.write(data)

    def _take(self, data: bytes) -> None:
        with self._or_wrong():
            self._room -= len(data)
            if self._room < 0:
                raise _no_room(self._store.limits, 0, 0)
            self._reader.feed(data)
        self._bytes += len(data)
        self._hash.update(data)

    def finish(self) -> None:
        """Raises InputError unless it came whole; then it is durable."""
        if not self._reader.has_ended:
            self._reader.finish()  # raises; a connection that is cut looks like this too, so the part is kept
        with self._using, self._or_wrong():
            self._reader.finish()
            with storage_errors(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            self._store.keep(self._holder, self.bundle, self._path)

    @contextlib.contextmanager
    def _or_wrong(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._wrong = True
            raise

    def close(self) -> None:
        """Keep what was received as a part, unless it was finished or is wrong."""
        with self._using:
            if self._ended:
                return
            self._ended = True
        is_part = not self._file.closed and not self._wrong and self._bytes
        with contextlib.suppress(OSError, StorageError):
            self._file.close()
            if is_part:
                told = BundlePart(self.bundle.sha256, self._bytes, self._hash.hexdigest())
                self._store.keep_part(self._holder, self.bundle, self._path, told)
            else:
                self._path.unlink(missing_ok=True)


def _no_room(limits: BundleLimits, mine: int, total: int) -> StorageError:
    return StorageError(
        "bundle",
        f"there is no room for it: yours take {mine:,} of {limits.bundle_identity_bytes:,} bytes, all "
        f"{total:,} of {limits.bundle_total_bytes:,}, and the disk must keep its free space",
        "delete campaigns that name bundles you no longer need: assay campaigns delete ID --yes",
    )
