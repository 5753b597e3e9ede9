"""Processes that carry the name of another program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(program: Path) -> Iterator[int]:
    """A sleeping process, not of ours by descent, under the name of a program; its number."""
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    # The shell that starts it ends, and another process takes it over.
    started = subprocess.run(
        ["setsid", "sh", "-c", '"$0" 600 >/dev/null 2>&1 & echo $!', program],
        env={"PATH": os.defpath},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    try:
        yield int(started.stdout)
    finally:
        os.kill(int(started.stdout), 9)
