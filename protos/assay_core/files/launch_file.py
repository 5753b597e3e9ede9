"""Writing a launch table to a file that is either complete and durable or absent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from assay_core.files.durable import replacing, storage_errors
from assay_sampling.launches.parquet import LaunchWriter


@contextlib.contextmanager
def new_launch_file(path: Path, schema: pa.Schema, *, private: bool = False) -> Iterator[LaunchWriter]:
    """Write launches to ``path``, which appears only if the block ends without an error.

    ``private``: its mode is 0600, regardless of the umask. Raises StorageError if the disk refuses, and what
    :class:`assay_sampling.launches.parquet.LaunchWriter` raises; on any error nothing is left behind.
    """
    with (
        storage_errors(path),
        replacing(path, private=private) as file,
        LaunchWriter(file, schema, str(path)) as writer,
    ):
        yield writer
