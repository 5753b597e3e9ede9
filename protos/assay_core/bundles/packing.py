"""Packing a folder: the same files give the same bundle on every machine."""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from assay_core.bundles.form import (
    BLOCK,
    DEFAULT_BOUNDS,
    END,
    BundleBounds,
    Entry,
    header,
    refused,
    require_name,
)
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import private_opener
from assay_core.records.upload import Bundle

_PIECE_BYTES = 1 << 20
_LEVEL = 6


def pack_bundle(folder: Path, target: Path, bounds: BundleBounds = DEFAULT_BOUNDS) -> Bundle:
    """Write the files of ``folder``, compressed, to the new file ``target``.

    Raises InputError, with the name, for what cannot be in a bundle: links, devices, too many or too large
    files; StorageError if ``target`` cannot be written.
    """
    entries = entries_of(folder, bounds)
    hashing, packed, size = hashlib.sha256(), zlib.compressobj(_LEVEL), 0
    with storage_errors(target), open(target, "xb", opener=private_opener) as file:
        for piece in _pieces(folder, entries):
            hashing.update(piece)
            size += len(piece)
            file.write(packed.compress(piece))
        file.write(packed.flush())
    return Bundle(hashing.hexdigest(), size, sum(not entry.is_folder for entry in entries))


def entries_of(folder: Path, bounds: BundleBounds = DEFAULT_BOUNDS) -> list[Entry]:
    """What a bundle of the folder holds, in its order. Raises InputError."""
    if not folder.is_dir():
        raise refused(str(folder), "it is not a folder on this machine", "correct 'bundle' in the file")
    entries: list[Entry] = []
    total = len(END)
    for entry in _below(folder, (), bounds):
        entries.append(entry)
        total += BLOCK + entry.size + entry.padding
        if len(entries) > bounds.entries:
            raise refused(str(folder), f"it has more than {bounds.entries:,} files and folders", _FEWER)
        if total > bounds.bytes:
            raise refused(str(folder), f"it has more than {bounds.bytes:,} bytes", _FEWER)
    if not any(not entry.is_folder for entry in entries):
        raise refused(str(folder), "there is no file in it", "correct 'bundle' in the campaign file")
    return sorted(entries, key=lambda entry: entry.key)


_FEWER = "leave out what the workload does not need; large inputs belong on the boxes"


def _below(folder: Path, above: tuple[str, ...], bounds: BundleBounds) -> Iterator[Entry]:
    try:
        with os.scandir(folder) as listed:
            places = sorted(listed, key=lambda place: place.name)
    except OSError as error:
        raise refused(str(folder), f"it cannot be read ({error.strerror})", "make it readable") from error
    for place in places:
        parts = (*above, place.name)
        name = "/".join(parts)
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise refused(repr(name), "its name is not UTF-8", "rename it") from error
        require_name(parts, bounds)
        state = place.stat(follow_symlinks=False)
        if stat.S_ISDIR(state.st_mode):
            yield Entry(parts, is_folder=True)
            yield from _below(Path(place.path), parts, bounds)
        elif stat.S_ISREG(state.st_mode):
            yield Entry(parts, False, state.st_size, bool(state.st_mode & stat.S_IXUSR))
        else:
            cause = "it is a link" if stat.S_ISLNK(state.st_mode) else "it is neither a file nor a folder"
            raise refused(repr(name), f"{cause}, and a bundle has only files and folders", "copy its content")


def _pieces(folder: Path, entries: list[Entry]) -> Iterator[bytes]:
    for entry in entries:
        yield header(entry)
        if not entry.is_folder:
            yield from _content(folder.joinpath(*entry.parts), entry)
    yield END


def _content(path: Path, entry: Entry) -> Iterator[bytes]:
    try:
        rest = entry.size
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            while rest and (data := file.read(min(rest, _PIECE_BYTES))):
                rest -= len(data)
                yield data
            if rest or file.read(1):
                raise refused(repr(entry.name), "its size changed while it was packed", "try again")
    except OSError as error:
        raise refused(repr(entry.name), f"it cannot be read ({error.strerror})", "try again") from error
    yield bytes(entry.padding)
