"""Reading a bundle as its pieces come: bounded, hashed, and compared with its one allowed form.

Nobody believes a bundle: the server checks what people send, and an agent what the server sends.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Protocol

from assay_core.bundles.form import (
    BLOCK,
    DEFAULT_BOUNDS,
    END,
    FILE_MODE,
    FOLDER_MODE,
    PROGRAM_MODE,
    BundleBounds,
    Entry,
    entry_of,
    is_hash,
    refused,
)
from assay_core.records.upload import Bundle

_PIECE_BYTES = 1 << 20


class Sink(Protocol):
    """Takes what a bundle holds."""

    def begin(self, entry: Entry) -> None:
        """The next file or folder; its content follows."""
        ...

    def write(self, data: bytes) -> None:
        """The next bytes of the file."""
        ...

    def end(self) -> None:
        """The file is complete."""
        ...


class Checked:
    """A sink that keeps nothing: the bundle is only checked."""

    def begin(self, entry: Entry) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        pass


class Unpacked:
    """A sink that makes the files in a new folder, of which nobody else has a descriptor. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        folder.mkdir(mode=0o700)
        folder.chmod(FOLDER_MODE)

    def begin(self, entry: Entry) -> None:
        path = self._folder.joinpath(*entry.parts)
        if entry.is_folder:
            path.mkdir()
            path.chmod(FOLDER_MODE)
            return
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(self._file, PROGRAM_MODE if entry.executable else FILE_MODE)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def end(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


class BundleReader:
    """One bundle: :meth:`feed` its compressed pieces in order, then :meth:`finish`.

    Both raise InputError for what is not the bundle that was named, and what the sink raises. At most a
    megabyte more than was fed is held.
    """

    def __init__(self, bundle: Bundle, sink: Sink, bounds: BundleBounds = DEFAULT_BOUNDS) -> None:
        if not is_hash(bundle.sha256):
            raise refused("", f"{bundle.sha256[:100]!r} is not the name of a bundle")
        if not len(END) < bundle.bytes <= bounds.bytes:
            raise refused("", f"it has {bundle.bytes:,} bytes; at most {bounds.bytes:,} are taken")
        if not 0 < bundle.files <= bounds.entries:
            raise refused("", f"it has {bundle.files:,} files; 1 to {bounds.entries:,} are taken")
        self._bundle, self._sink, self._bounds = bundle, sink, bounds
        self._inflating, self._hash = zlib.decompressobj(), hashlib.sha256()
        self._buffer = bytearray()
        self._entry: Entry | None = None
        self._rest = self._seen = self._entries = self._files = 0
        self._last: tuple[bytes, ...] = ()
        self._folders: set[tuple[str, ...]] = {()}
        self._ended = False

    @property
    def has_ended(self) -> bool:
        """Whether its compressed bytes came to their end; before that, more may follow."""
        return self._inflating.eof

    def feed(self, data: bytes) -> None:
        """The next compressed bytes."""
        if self._inflating.eof and data:
            raise refused("", "it goes on after its end")
        while True:
            try:
                piece = self._inflating.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise refused("", f"it cannot be decompressed ({error})") from error
            data = self._inflating.unconsumed_tail
            self._take(piece)
            if self._inflating.unused_data:
                raise refused("", "it goes on after its end")
            if self._inflating.eof or (len(piece) < _PIECE_BYTES and not data):
                return

    def finish(self) -> None:
        """Raises InputError unless all of the bundle came, and it is the one that was named."""
        if not self._inflating.eof or bytes(self._buffer) != END:
            raise refused("", "it is cut off, or does not end as a bundle does", "send it again")
        if (self._seen, self._files) != (self._bundle.bytes, self._bundle.files):
            raise refused("", f"it has {self._files:,} files in {self._seen:,} bytes, not what was said")
        if self._hash.hexdigest() != self._bundle.sha256:
            raise refused("", f"its content is not that of {self._bundle.sha256}", "send it again")

    def _take(self, piece: bytes) -> None:
        self._seen += len(piece)
        if self._seen > self._bundle.bytes:
            raise refused("", f"it has more than the {self._bundle.bytes:,} bytes that were said")
        self._hash.update(piece)
        self._buffer += piece
        while not self._ended and (self._content() if self._entry is not None else self._header()):
            pass
        if self._ended and len(self._buffer) > len(END):
            raise refused("", "it goes on after its end")

    def _header(self) -> bool:
        """Take the next header; False if more bytes are needed."""
        if len(self._buffer) < BLOCK:
            return False
        block = bytes(self._buffer[:BLOCK])
        if block == bytes(BLOCK):
            self._ended = True
            return False
        entry = entry_of(block, self._bounds)
        self._entries += 1
        if self._entries > self._bounds.entries:
            raise refused("", f"it has more than {self._bounds.entries:,} files and folders")
        if entry.key <= self._last:
            raise refused(repr(entry.name), "it comes twice, or is not in its place")
        if entry.parts[:-1] not in self._folders:
            raise refused(repr(entry.name), "its folder is missing")
        del self._buffer[:BLOCK]
        self._last = entry.key
        self._sink.begin(entry)
        if entry.is_folder:
            self._folders.add(entry.parts)
            return True
        self._entry, self._rest = entry, entry.size
        self._files += 1
        return True

    def _content(self) -> bool:
        """Take content of the file; False if more bytes are needed."""
        assert self._entry is not None
        if self._rest:
            data = bytes(self._buffer[: self._rest])
            del self._buffer[: len(data)]
            self._rest -= len(data)
            self._sink.write(data)
            if self._rest:
                return False
        padding = self._entry.padding
        if len(self._buffer) < padding:
            return False
        if any(self._buffer[:padding]):
            raise refused(repr(self._entry.name), "there are bytes after its end")
        del self._buffer[:padding]
        self._entry = None
        self._sink.end()
        return True
