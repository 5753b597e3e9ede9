"""Says which extra is missing, where a verb needs more than the base installation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from assay_sampling.errors import MissingExtraError


@contextlib.contextmanager
def server_extra() -> Iterator[None]:
    """Turn a missing module of others in the block into MissingExtraError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("assay_"):
            raise
        raise MissingExtraError("assay-server", error.name or "?", "server") from None
