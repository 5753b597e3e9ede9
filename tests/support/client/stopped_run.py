"""``assay run`` as a process that a test stops at a moment of its course."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.client.demo_kills import hearing_interrupts

_PROGRAM = Path(sys.executable).with_name("assay")


@dataclass(frozen=True)
class Stopped:
    """How a run ended: its exit code, and the lines of its standard error. ``ended``: nobody stopped it."""

    code: int
    lines: tuple[str, ...]
    ended: bool


def run_until(
    words: Sequence[str | Path], moment: str | None, number: signal.Signals, *, after_seconds: float = 0.0
) -> Stopped:
    """Run ``assay run`` with these words, and send it a signal some time after a line with ``moment``.

    None: let it end.
    """
    process = subprocess.Popen(
        hearing_interrupts([_PROGRAM, "run", *words]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines, stopped = [], False
    with process:
        assert process.stderr is not None
        while line := process.stderr.readline():
            lines.append(line.rstrip("\n"))
            if moment is not None and moment in line and not stopped:
                try:
                    process.wait(after_seconds)
                except subprocess.TimeoutExpired:
                    process.send_signal(number)
                    stopped = True
    return Stopped(process.wait(120), tuple(lines), not stopped)
