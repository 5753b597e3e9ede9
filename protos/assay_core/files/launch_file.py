"""Writing a launch table to a file that is either complete and durable or absent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from assay_core.files.durable import replacing, storage_errors
from assay_sampling.launches.parquet import LaunchWriter
from assay_sampling.launches.table import LaunchBatch


@contextlib.contextmanager
def new_launch_file(
    path: Path, schema: pa.Schema, *, private: bool = False, temporary: Path | None = None
) -> Iterator[LaunchWriter]:
    """Write launches to ``path``, which appears only if the block ends without an error.

    ``private``: its mode is 0600, regardless of the umask; ``temporary``: as in
    :func:`assay_core.files.durable.replacing`. Raises StorageError if the disk refuses, and what
    :class:`assay_sampling.launches.parquet.LaunchWriter` raises; on any error nothing is left behind.
    """
    with (
        storage_errors(path),
        replacing(path, private=private, temporary=temporary) as file,
        LaunchWriter(file, schema, str(path)) as writer,
    ):
        yield writer


class LaunchFileUnderWay:
    """A launch file that is written over a while; nobody sees it before :meth:`end`.

    Raises what :func:`new_launch_file` raises.
    """

    def __init__(self, path: Path, schema: pa.Schema, temporary: Path) -> None:
        """Private, and at ``temporary`` until it ends."""
        self._open = contextlib.ExitStack()
        made = new_launch_file(path, schema, private=True, temporary=temporary)
        self._writer = self._open.enter_context(made)

    @property
    def held_launches(self) -> int:
        """Launches in memory because they do not fill a row group yet."""
        return self._writer.held_launches

    def write(self, batch: LaunchBatch, *, named: bool = False) -> None:
        self._writer.write(batch, named=named)

    def end(self) -> None:
        """Complete the file, durably, under its name."""
        self._open.close()

    def drop(self) -> None:
        """Remove what was written; does nothing after :meth:`end`."""
        with contextlib.suppress(_Dropped), self._open:
            raise _Dropped


class _Dropped(Exception):
    pass
