"""Links to existing traces: simulators look for traces in the folder of their list."""

from __future__ import annotations

from pathlib import Path

from assay_sampling.errors import StorageError


def link_to(link: Path, existing: Path) -> None:
    """Make ``link`` lead to ``existing``, in place of what was there; raises StorageError."""
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(existing)
    except OSError as error:
        raise StorageError(
            str(link),
            f"it cannot be created as a link to {existing} ({error.strerror or error})",
            "name a list in a folder that you may write to",
        ) from error
