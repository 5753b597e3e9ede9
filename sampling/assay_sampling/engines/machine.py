"""How much memory this machine, or the control group that this process runs in, has."""

from __future__ import annotations

import os
from pathlib import Path

_SHARE = 0.75
# Version 2 of control groups, then version 1; source: the kernel's Documentation/admin-guide/cgroup-v2.rst.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory_bytes() -> int:
    """Physical memory, or the limit of the control group where that is lower."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            memory_bytes = min(memory_bytes, int(path.read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return memory_bytes


def within_machine(limit_bytes: int) -> int:
    """A memory limit that leaves the machine a quarter of its memory."""
    return min(limit_bytes, int(machine_memory_bytes() * _SHARE))
