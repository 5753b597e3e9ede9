"""Which glibc a library or program needs, and which this box has.

A program that was linked on a newer system does not start on an older one, and CUDA ignores an injected
library that does not load, without a word. Source: ld.so(8); elf(5), ``SHT_GNU_verneed``.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

# Names of needed versions lie in the table of dynamic strings, each with a zero byte at its end.
_VERSION = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])")
Version = tuple[int, int]


def needed_glibc(path: Path) -> Version:
    """The newest glibc that a file names; (0, 0) where it names none. Raises OSError."""
    versions = _VERSION.findall(path.read_bytes())
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def box_glibc() -> Version | None:
    """That of this box; None where its C library is another one."""
    name, version = platform.libc_ver()
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if name == "glibc" and len(parts) > 1 else None


def glibc_fault(path: Path) -> str:
    """Why a file does not load here; "" if its glibc is old enough. Raises OSError."""
    needed, here = needed_glibc(path), box_glibc()
    if here is None or needed <= here:
        return ""
    return f"{path} needs glibc {needed[0]}.{needed[1]}, and this box has {here[0]}.{here[1]}"
