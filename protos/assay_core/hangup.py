"""SIGHUP means two things: reload, from a service manager; or that the terminal of a daemon has gone."""

from __future__ import annotations

import os


class Terminal:
    """The terminal that this process was started in, if any; make it at the start."""

    def __init__(self) -> None:
        self._had = _opens()

    @property
    def is_gone(self) -> bool:
        """Whether it was there and has been closed: whoever started this program has left."""
        return self._had and not _opens()


def _opens() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:  # ENXIO without a terminal, EIO after it was hung up
        return False
    return True
