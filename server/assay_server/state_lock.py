"""One process at a time uses a state folder; the kernel frees it when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import private_opener
from assay_sampling.errors import StorageError


@contextlib.contextmanager
def locked_state(state: Path) -> Iterator[None]:
    """Hold a state folder while the block runs; raises StorageError if another process has it."""
    path = state / "lock"
    with storage_errors(path), open(path, "a+", encoding="ascii", opener=private_opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StorageError(
                str(state),
                f"another assay-server has it (process {file.read().strip() or 'unknown'})",
                "stop that server, or choose another --state directory",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
