"""A script that starts a program whose life is bound to that of a parent.

    python -I -S bound.py PARENT PROGRAM [ARGUMENT ...]

The kernel kills the program as soon as the thread that started it is gone, however that ended; if the
process PARENT is gone already, nothing is started. Linux only (prctl, PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Become the program; returns only if the parent is gone."""
    parent, command = int(arguments[0]), arguments[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 1
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
