"""Writing a launch table to a file that is either complete and durable or absent."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from assay_core.files.durable import replacing, storage_errors
from assay_sampling.launches.parquet import LaunchWriter


class HashedContent(io.RawIOBase):
    """A file that is only appended to, hashed while it is written: BLAKE2b-256, in hexadecimal."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._file: IO[bytes] | None = None

    def of(self, file: IO[bytes]) -> IO[bytes]:
        """This, around an empty file that the caller makes durable and closes."""
        self._file = file
        return cast(IO[bytes], self)

    def hexdigest(self) -> str:
        """The hash of what was written so far."""
        return self._hash.hexdigest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        assert self._file is not None
        return self._file.tell()

    def write(self, data: Any) -> int:
        assert self._file is not None
        written = self._file.write(data)
        self._hash.update(data)
        return written

    def flush(self) -> None:
        if self._file is not None and not self._file.closed:
            self._file.flush()


@contextlib.contextmanager
def new_launch_file(
    path: Path,
    schema: pa.Schema,
    *,
    private: bool = False,
    temporary: Path | None = None,
    hashed: HashedContent | None = None,
    named: Callable[[], Path] | None = None,
) -> Iterator[LaunchWriter]:
    """Write launches to ``path``, which appears only if the block ends without an error.

    ``private``: its mode is 0600, regardless of the umask; ``temporary``, ``named``: as in
    :func:`assay_core.files.durable.replacing`; ``hashed`` hashes what is written. Raises StorageError if the
    disk refuses, and what :class:`assay_sampling.launches.parquet.LaunchWriter` raises; on any error nothing
    is left behind.
    """
    with (
        storage_errors(path),
        replacing(path, private=private, temporary=temporary, named=named) as file,
        LaunchWriter(file if hashed is None else hashed.of(file), schema, str(path)) as writer,
    ):
        yield writer
