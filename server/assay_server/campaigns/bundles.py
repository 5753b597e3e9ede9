"""Bundles by their hash: equal files are kept once, and every server on the database knows them.

Their files are in the place of records, each under a name of its own; the database decides which one is a
bundle. Only who sent a bundle may name it in a campaign: the hash of somebody's files must not be enough
to have them run, or to learn that they are here. A holder's claim goes when no campaign of theirs names the
bundle any more and they did not ask for it for a while; the files go with the last claim.

What a stream brought before it broke is kept as long, in the server's state folder, for whoever sent it. It
counts as theirs, and is checked again when the next stream continues it. After a takeover they send it
from its beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import secrets
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

from assay_core.bundles.form import BundleBounds
from assay_core.bundles.reading import BundleReader, Checked
from assay_core.files.durable import make_folder, storage_errors
from assay_core.files.free_space import free_space
from assay_core.files.private_folders import private_opener
from assay_core.records.upload import Bundle, BundlePart
from assay_sampling.errors import AssayError, InputError, StorageError
from assay_server.access.caller import OWNER_ID, current_caller
from assay_server.clock import wall_ms
from assay_server.limits import DEFAULT_LIMITS, BundleLimits
from assay_server.store.model import KeptBundle
from assay_server.store.record_store import BUNDLES, PACKED, RecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_AGAIN = "submit the campaign again: it is sent then"
_counter = itertools.count()


@dataclass(frozen=True)
class _Part:
    """What a broken stream brought, and when it broke (Unix ms)."""

    path: Path
    part: BundlePart
    at_ms: int


class BundleStore:
    """The bundles of a server. Thread-safe. Methods raise StorageError.

    Args:
        state: the server's own state folder, for what is on its way in.
        metadata: says which bundles there are, and who sent them.
        records: has their files.
        limits: bounds of one bundle, of what one identity may have, and of all.
        minimum_free_bytes: what must stay free on the disk.
        now_ms: the server's clock.
    """

    def __init__(
        self,
        state: Path,
        metadata: MetadataStore,
        records: RecordStore,
        limits: BundleLimits = DEFAULT_LIMITS.bundles,
        *,
        minimum_free_bytes: int = 0,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._incoming = state / BUNDLES / "incoming"
        self._metadata, self._records = metadata, records
        self.limits = limits
        self.bounds = BundleBounds(limits.bundle_bytes, limits.bundle_entries, limits.bundle_path_bytes)
        self._minimum_free_bytes = minimum_free_bytes
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._parts: dict[tuple[str, str], _Part] = {}  # by holder and bundle, the oldest first
        with storage_errors(self._incoming):
            shutil.rmtree(self._incoming, ignore_errors=True)

    def missing(self, holder: str, bundles: Iterable[Bundle]) -> tuple[str, ...]:
        """Those that this holder must send, each once; the others are kept for a while."""
        names = list(dict.fromkeys(each.sha256 for each in bundles))
        here = self._renewed(holder, names)
        return tuple(name for name in names if name not in here)

    def require(self, holder: str, bundles: Iterable[Bundle]) -> None:
        """Raises InputError unless the holder sent all of them, as they are described."""
        required_bundles = list(bundles)
        here = self._renewed(holder, [each.sha256 for each in required_bundles])
        for each in required_bundles:
            if here.get(each.sha256) != each:
                raise InputError(f"bundle {each.sha256[:64]}", "you have not sent it to this server", _AGAIN)

    def _renewed(self, holder: str, names: Sequence[str]) -> dict[str, Bundle]:
        """Those that a holder sent and whose files are there; they are kept for a while."""
        if not names:
            return {}
        with self._metadata.transaction() as store:
            of_holder = [
                self._claim(store, kept_bundle, holder)
                for name in names
                if (kept_bundle := store.bundle(name)) and holder in kept_bundle.holders
            ]
        # Only now: a claim that is new keeps the file from going meanwhile.
        here = (kept_bundle for kept_bundle in of_holder if self._records.has_bundle(kept_bundle.file))
        return {kept_bundle.bundle.sha256: kept_bundle.bundle for kept_bundle in here}

    def _claim(self, store: SqlTransaction, kept_bundle: KeptBundle, holder: str) -> KeptBundle:
        """Note that a holder has asked for a bundle, or sent it."""
        claimed = replace(kept_bundle, holders={**kept_bundle.holders, holder: self._now_ms()})
        store.put_bundle(claimed)
        return claimed

    def parts(self, holder: str, bundles: Iterable[Bundle]) -> tuple[BundlePart, ...]:
        """What streams of this holder brought here of these bundles before they broke."""
        with self._lock:
            holder_parts = (self._parts.get((holder, each.sha256)) for each in bundles)
            return tuple(dict.fromkeys(part.part for part in holder_parts if part is not None))

    def begin(self, holder: str, bundle: Bundle, offset: int = 0) -> Incoming:
        """Begin to receive a bundle, or go on behind the part of it that the holder sent here.

        Raises InputError or StorageError if it cannot be taken.
        """
        reader = BundleReader(bundle, Checked(), self.bounds)
        with self._metadata.snapshot() as store:
            mine, total = store.bundle_bytes(holder)
        with self._lock, storage_errors(self._incoming):
            part = self._parts.pop((holder, bundle.sha256), None)  # one stream continues it
            if part is not None and part.part.bytes != offset:
                part.path.unlink(missing_ok=True)
                part = None
            if offset and part is None:
                cause = f"it goes on at byte {offset:,}, and the server has no such part of it from you"
                raise InputError(f"bundle {bundle.sha256[:64]}", cause, "send it from its beginning")
            mine += sum(each.part.bytes for (who, _), each in self._parts.items() if who == holder)
            total += sum(each.part.bytes for each in self._parts.values())
            make_folder(self._incoming)
            room = min(
                self.limits.bundle_identity_bytes - mine,
                self.limits.bundle_total_bytes - total,
                free_space(self._incoming).free_bytes - self._minimum_free_bytes,
            )
        if room <= 0:
            raise _no_room(self.limits, mine, total)
        path = self._incoming / f"{os.getpid()}-{next(_counter)}" if part is None else part.path
        incoming = Incoming(self, holder, bundle, reader, most_bytes=room, path=path)
        if part is not None:
            try:
                incoming.read_again()
            except BaseException:
                incoming.close()
                raise
        return incoming

    def keep_part(self, holder: str, bundle: Bundle, path: Path, bundle_part: BundlePart) -> None:
        """Keep what a stream brought that broke; the oldest parts of a holder with too many go."""
        with self._metadata.snapshot() as store:
            kept_bundle = store.bundle(bundle.sha256)
        with self._lock, storage_errors(path):
            self._drop_part((holder, bundle.sha256))
            if kept_bundle is not None and holder in kept_bundle.holders:
                path.unlink(missing_ok=True)  # another stream was faster
            else:
                self._parts[holder, bundle.sha256] = _Part(path, bundle_part, self._now_ms())
            mine = [key for key in self._parts if key[0] == holder]
            for key in mine[: -self.limits.bundle_parts]:
                self._drop_part(key)

    def _drop_part(self, key: tuple[str, str]) -> None:
        """Remove what a stream brought, if it is here; in the lock."""
        part = self._parts.pop(key, None)
        if part is not None:
            part.path.unlink(missing_ok=True)

    def keep(self, holder: str, bundle: Bundle, packed: Path) -> None:
        """Take a checked file in for its holder, durably; a second copy changes nothing but the holders."""
        with self._metadata.transaction() as store:
            kept_bundle = store.bundle(bundle.sha256)
            if kept_bundle is not None:
                self._claim(store, kept_bundle, holder)
        if kept_bundle is None or not self._records.has_bundle(kept_bundle.file):
            self._store(holder, bundle, packed, lost="" if kept_bundle is None else kept_bundle.file)
        with self._lock, storage_errors(packed):
            packed.unlink(missing_ok=True)
            self._drop_part((holder, bundle.sha256))

    def _store(self, holder: str, bundle: Bundle, packed: Path, *, lost: str) -> None:
        """Store a bundle's file, which the commit of the database makes the bundle's.

        ``lost``: the name of its file that is gone, and is replaced. A file whose commit failed stays, for
        that may have been kept after all: the sweep knows.
        """
        with storage_errors(packed):
            size = packed.stat().st_size
        file, is_used = new_bundle_file(bundle.sha256), True
        self._records.keep_bundle(file, packed)
        try:
            with self._metadata.transaction() as store:
                kept_bundle = store.bundle(bundle.sha256)
                if kept_bundle is not None and kept_bundle.file != lost:  # another stream was faster
                    is_used = False
                    self._claim(store, kept_bundle, holder)
                    return
                store.delete_bundle(bundle.sha256)
                mine, total = store.bundle_bytes(holder)
                is_used = (
                    mine + size <= self.limits.bundle_identity_bytes
                    and total + size <= self.limits.bundle_total_bytes
                )
                if not is_used:
                    raise _no_room(self.limits, mine, total)
                holders = {} if kept_bundle is None else kept_bundle.holders
                self._claim(store, KeptBundle(bundle, file, size, holders), holder)
        finally:
            if not is_used:
                self._records.remove_bundle(file)

    def stored_bytes(self, sha256: str) -> int:
        """The compressed bytes of a bundle; 0: it is not here."""
        with self._metadata.snapshot() as store:
            kept_bundle = store.bundle(sha256)
        return 0 if kept_bundle is None else kept_bundle.stored_bytes

    @contextlib.contextmanager
    def reading(self, sha256: str) -> Iterator[Path]:
        """Where a compressed bundle can be read on this machine until the block ends.

        Raises StorageError if there is none.
        """
        with self._metadata.snapshot() as store:
            kept_bundle = store.bundle(sha256)
        if kept_bundle is None:
            cause = "the server has no such bundle"
            raise StorageError(f"bundle {sha256[:64]}", cause, "see what assay-server check finds")
        with self._records.reading_bundle(kept_bundle.file) as path:
            yield path

    def pieces(self, sha256: str) -> Iterator[bytes]:
        """The compressed bundle. Raises StorageError if it is not here."""
        with self.reading(sha256) as path:
            yield from _pieces(path)

    def forget(self, named: Mapping[str, frozenset[str]]) -> list[str]:
        """Remove what nobody needs; ``named``: by bundle, the owners of campaigns that name it.

        Returns the bundles that are gone.
        """
        before = self._now_ms() - 1000 * self.limits.bundle_unnamed_seconds
        gone: list[KeptBundle] = []
        with self._metadata.transaction() as store:
            for kept_bundle in store.bundles():
                owners = named.get(kept_bundle.bundle.sha256, frozenset())
                holders = {
                    who: at for who, at in kept_bundle.holders.items() if at >= before or who in owners
                }
                if not holders and not owners:
                    store.delete_bundle(kept_bundle.bundle.sha256)
                    gone.append(kept_bundle)
                elif holders != kept_bundle.holders:
                    store.put_bundle(replace(kept_bundle, holders=holders))
        # What the database does not name any more; after a crash the sweep sees to it.
        for kept_bundle in gone:
            self._records.remove_bundle(kept_bundle.file)
        self.forget_parts()
        if gone:
            _log.info("%d bundles are gone that no campaign names any more", len(gone))
        return [kept_bundle.bundle.sha256 for kept_bundle in gone]

    def forget_parts(self) -> None:
        """Remove what streams brought to this server that broke long ago."""
        before = self._now_ms() - 1000 * self.limits.bundle_unnamed_seconds
        with self._lock, storage_errors(self._incoming):
            for key in [key for key, part in self._parts.items() if part.at_ms < before]:
                self._drop_part(key)


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

    def __exit__(self, *_error: object) -> None:
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
                part = BundlePart(self.bundle.sha256, self._bytes, self._hash.hexdigest())
                self._store.keep_part(self._holder, self.bundle, self._path, part)
            else:
                self._path.unlink(missing_ok=True)


def _no_room(limits: BundleLimits, mine: int, total: int) -> StorageError:
    return StorageError(
        "bundle",
        f"there is no room for it: yours take {mine:,} of {limits.bundle_identity_bytes:,} bytes, all "
        f"{total:,} of {limits.bundle_total_bytes:,}, and the disk must keep its free space",
        "delete campaigns that name bundles you no longer need: assay lab campaigns delete ID --yes",
    )


def new_bundle_file(sha256: str) -> str:
    """A name that no other file of a bundle has or had, so that removing one never takes another away."""
    return f"{sha256}-{secrets.token_hex(8)}{PACKED}"


def holder() -> str:
    """Whose bundles the current call is about."""
    caller = current_caller()
    return OWNER_ID if caller is None else caller.identity_id


def named_bundles(store: SqlTransaction) -> dict[str, frozenset[str]]:
    """By bundle that a campaign names: the owners of such campaigns."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for overview in store.campaigns():
        campaign = store.campaign(overview.campaign_id)
        for bundle in campaign.compiled.bundles if campaign is not None else ():
            owners[bundle.sha256].add(overview.owner or OWNER_ID)
    return {sha256: frozenset(bundle_owners) for sha256, bundle_owners in owners.items()}
