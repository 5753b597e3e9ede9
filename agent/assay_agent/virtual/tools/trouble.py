"""What stand-ins share of trouble: hanging, and files that end too early."""

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

    ``announce`` is called once signals are what they will be.

    Ends the process after an hour, or once the process that started it is gone: nobody waits for it then.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if stubborn else signal.SIG_DFL)
    announce()
    parent, end = os.getppid(), time.monotonic() + _LONGEST_HANG_S
    while os.getppid() == parent and time.monotonic() < end:
        time.sleep(_LOOK_S)
    os._exit(1)


def cut_in_half(path: Path) -> None:
    """Leave the first half of a file."""
    os.truncate(path, path.stat().st_size // 2)
