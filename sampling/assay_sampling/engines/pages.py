"""Pages of mapped files, which count as memory of this process until they are given back."""

from __future__ import annotations

import mmap
from typing import Any


def give_back_pages(*arrays: Any) -> None:
    """Let the kernel take back the pages of arrays on disk: they are read again when they are needed.

    Other arrays stay as they are.
    """
    for array in arrays:
        base = array
        while (under := getattr(base, "base", None)) is not None:
            base = under
        if isinstance(base, memoryview):
            base = base.obj
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)
