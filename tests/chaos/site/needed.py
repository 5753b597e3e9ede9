"""The programs that a site needs beside Assay's own, and which of them this machine lacks."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.services import seaweedfs
from tests.services.postgresql import programs


def haproxy() -> str:
    """Debian's HAProxy, installed or unpacked; "" without one."""
    unpacked = Path(os.environ.get("ASSAY_SERVICES", "")) / "usr" / "sbin" / "haproxy"
    return str(unpacked) if unpacked.is_file() else _found("haproxy", "/usr/sbin/haproxy")


def weed() -> str:
    """SeaweedFS's one program, of its package; "" without it."""
    return os.environ.get("ASSAY_WEED", "") or str(seaweedfs.program() or "")


def _found(program: str, place: str) -> str:
    return shutil.which(program) or (place if Path(place).is_file() else "")


def missing() -> list[str]:
    """What is not here, and how to get it."""
    needed: dict[str, Callable[[], object]] = {
        "PostgreSQL (apt install postgresql-15)": programs,
        "HAProxy (apt install haproxy)": haproxy,
        "SeaweedFS (make services)": weed,
        "obstore (pip install 'assay-gpu[object-store]')": lambda: importlib.util.find_spec("obstore"),
        "Dask (pip install 'assay-gpu[dask]')": lambda: importlib.util.find_spec("distributed"),
    }
    return [name for name, is_here in needed.items() if not is_here()]
