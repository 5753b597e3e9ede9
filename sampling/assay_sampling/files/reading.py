"""Reads files, plain or compressed by gzip or zstd; every failure is an InputError.

A compressed file that is cut off is told from one that is damaged: what comes before a cut is right.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from assay_sampling.errors import CutOffError, InputError, StorageError
from assay_sampling.files.watching import note_bytes
from assay_sampling.files.zstd_frames import ends_within_a_frame

HEAD_BYTES = 1 << 16
HASH_BLOCK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Recordings compress to a tenth or a fiftieth of their size; files made to fill a disk, to a thousandth.
_MOST_UNPACKED_BYTES = 1 << 30
_MOST_UNPACKED_TIMES = 250
_READ_AGAIN = "copy it again from where it was recorded, or record it again"


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; False where the system refuses to tell."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def require_file(path: Path, remedy: str | None = None) -> None:
    """Raises InputError unless ``path`` is a regular file with something in it.

    ``remedy``: what to do about a missing or empty file that no profiler wrote.
    """
    try:
        if not path.exists():
            raise InputError(path, "there is no such file", remedy or "check the path")
        if path.is_dir():
            raise InputError(path, "it is a directory", "name the files in it that hold the recording")
        if not path.is_file():
            raise InputError(path, "it is not a regular file", "copy its content into a file first")
        if path.stat().st_size == 0:
            raise InputError(
                path,
                "it is empty",
                remedy or "the profiler wrote nothing; look at its log and run it again",
            )
    except (OSError, ValueError) as error:
        raise InputError(
            path, f"it cannot be accessed ({error})", "check the path and its permissions"
        ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error while reading a file into an InputError that names the file."""
    try:
        yield
    except EOFError as error:
        raise _cut_off(path) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(path, f"the compressed file is damaged ({error})", _READ_AGAIN) from error
    except OSError as error:
        if error.errno is None:  # the decompressor's, not the system's
            if _compression(path) == "zstd" and ends_within_a_frame(path):
                raise _cut_off(path) from error
            raise InputError(path, f"the compressed file is damaged ({error})", _READ_AGAIN) from error
        raise InputError(
            path, f"it cannot be read ({error.strerror or error})", "check that you may read it"
        ) from error


def _cut_off(path: Path) -> CutOffError:
    return CutOffError(path, "the compressed file is cut off before its end", _READ_AGAIN)


def is_compressed(path: Path) -> bool:
    """Whether the file is compressed by gzip or zstd, by its first bytes."""
    return bool(_compression(path))


def _compression(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        head = file.read(4)
    if head == _ZSTD_MAGIC:
        return "zstd"
    return "gzip" if head.startswith(_GZIP_MAGIC) else ""


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if needed. Use under :func:`reading`."""
    with path.open("rb", buffering=0) as raw, _unpacked(raw, _compression(path)) as file:
        yield file


@contextmanager
def _unpacked(raw: IO[bytes], compression: str) -> Iterator[IO[bytes]]:
    if compression == "zstd":
        with pa.input_stream(raw, compression="zstd") as stream:
            yield cast(IO[bytes], stream)
    elif compression:
        with gzip.GzipFile(fileobj=raw) as file:
            yield cast(IO[bytes], file)
    else:
        yield raw


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first ``size`` bytes (fewer in a small or cut file), decompressed."""
    blocks = read_blocks(path, size)
    try:
        return next(blocks, b"")
    finally:
        blocks.close()


def read_blocks(path: Path, block_bytes: int) -> Generator[bytes, None, None]:
    """The file, decompressed, in blocks of at most ``block_bytes``.

    In a cut file, yields everything before the cut and then raises CutOffError.
    """
    for memory, end in read_behind(path, block_bytes, b""):
        yield bytes(memoryview(memory)[:end])


def read_behind(
    path: Path, block_bytes: int, before: bytes | bytearray
) -> Generator[tuple[bytearray, int], None, None]:
    """As :func:`read_blocks`, each block behind what ``before`` holds then.

    Yields the memory that both are in, which the next block is read into again, and where they end.
    """
    compression = _compression(path)
    with (
        reading(path),
        path.open("rb", buffering=0) as raw,
        _unpacked(raw, compression) as file,
    ):
        total_bytes = os.fstat(raw.fileno()).st_size
        read = getattr(file, "readinto1", None) or cast(Any, file).readinto
        memory, offset, missing = bytearray(), 0, 0
        while not missing:
            start, missing, failure = len(before), block_bytes, None
            if len(memory) < start + missing:
                memory = bytearray(2 * start + missing + HEAD_BYTES)
            memory[:start] = before
            end = start
            try:
                while missing and (size := read(memoryview(memory)[end : end + missing])):
                    end, missing = end + size, missing - size
            except (EOFError, OSError, zlib.error) as error:
                failure = error
            note_bytes(path, raw.tell(), total_bytes)
            offset += end - start
            if failure is not None and compression == "zstd":
                memory = memory[:end] + _rest_of_zstd(path, offset)
                end = len(memory)
            if end > start:
                yield memory, end
            if failure is not None:
                raise failure


def _rest_of_zstd(path: Path, offset: int) -> bytes:
    """What a cut zstd file has behind the first ``offset`` bytes: at a cut, Arrow loses the bytes of the read
    that it fails. So it reads again, in pieces that become smaller."""
    rest = bytearray()
    for piece_bytes in (1 << 16, 1 << 8, 1):
        with path.open("rb", buffering=0) as raw, _unpacked(raw, "zstd") as file:
            skipped = 0
            while skipped < offset + len(rest):
                skipped += len(file.read(min(1 << 20, offset + len(rest) - skipped)))
            try:
                while piece := file.read(piece_bytes):
                    rest += piece
            except OSError:
                continue
    return bytes(rest)


def content_hash_of(path: Path) -> bytes:
    """A hash of the decompressed bytes of a file. Raises InputError where it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    for block in read_blocks(path, HASH_BLOCK_BYTES):
        digest.update(block)
    return digest.digest()


class PlainFile:
    """A file for code that seeks: ``path`` itself, or a decompressed temporary copy of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        if is_compressed(path):
            self._directory = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
            self.path = Path(self._directory.name) / "plain"
            try:
                self._decompress(path)
            except BaseException:
                self.close()
                raise

    def _decompress(self, source: Path) -> None:
        with (
            reading(source),
            source.open("rb", buffering=0) as raw,
            _unpacked(raw, _compression(source)) as file,
        ):
            packed_bytes = os.fstat(raw.fileno()).st_size
            try:
                target = self.path.open("wb")
            except OSError as error:
                raise _no_room(source, error) from error
            most = max(_MOST_UNPACKED_BYTES, _MOST_UNPACKED_TIMES * packed_bytes)
            written = 0
            with target:
                while block := file.read(1 << 20):
                    written += len(block)
                    note_bytes(source, raw.tell(), packed_bytes)
                    if written > most:
                        raise InputError(
                            source,
                            f"it unpacks to more than {most:,} bytes, which no recording of its size does",
                            "if you trust where it is from, decompress it yourself and look at it",
                        )
                    try:
                        target.write(block)
                    except OSError as error:
                        raise _no_room(source, error) from error

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def _no_room(source: Path, error: OSError) -> StorageError:
    return StorageError(
        str(source),
        f"it must be decompressed to be read, and {tempfile.gettempdir()} has no room ({error.strerror})",
        "free space there, point TMPDIR elsewhere, or decompress the file yourself",
    )
