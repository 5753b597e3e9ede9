"""bubblewrap for tests: this box's, or the one that ``make services`` unpacked, if it works here."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

import pytest

from assay_agent.execution.confinement.means import Means, find_means

_UNPACKED = Path(os.environ.get("ASSAY_SERVICES", "/nowhere")) / "bin" / "bwrap"
BUBBLEWRAP = str(_UNPACKED) if _UNPACKED.is_file() else shutil.which("bwrap") or "/usr/bin/bwrap"


@functools.cache
def _found() -> Means | str:
    return find_means(BUBBLEWRAP)


def bubblewrap_here() -> Means:
    """How programs are confined here; skips the test, with the reason, where they cannot be."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(found)
    return found
