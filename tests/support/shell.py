"""A shell script run as a person would type it, in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def typed_in_bash(
    script: str, folder: Path, seconds: float, *, programs: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Its exit code, and what it printed; whatever a line that failed left running ends with it.

    ``folder``: where it begins; ``programs``: where ``assay`` is, beside this Python if not given;
    ``environment``: besides PATH and LANG.
    """
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={
            "PATH": f"{programs or Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **environment,
        },
    )
    try:
        shown, _ = process.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, shown
