"""Failures that the stand-ins share: hanging, and truncated files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

_LONGEST_HANG_S = 3600.0
_LOOK_S = 0.1


def hang(*, stubborn: bool, announce: Callable[[], None] = lambda: None) -> None:
    """Do nothing until a signal ends the process (a stubborn one only dies of SIGKILL).

    ``announce`` is called once the signal handlers are set.

    Ends the process after an hour, or once its parent is gone, because then nobody waits for it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if stubborn else signal.SIG_DFL)
    announce()
    parent, end = os.getppid(), time.monotonic() + _LONGEST_HANG_S
    while os.getppid() == parent and time.monotonic() < end:
        time.sleep(_LOOK_S)
    os._exit(1)


def cut_in_half(path: Path) -> None:
    """Cut a file to its first half."""
    os.truncate(path, path.stat().st_size // 2)
