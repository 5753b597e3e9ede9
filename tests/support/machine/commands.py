"""What runs on this machine, although processes come and go while one looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def running_commands() -> Iterator[tuple[int, bytes]]:
    """The id and the command line (words end with NUL) of each process that has one.

    A pattern that names the file within the process's folder would not do: pathlib looks whether it is there,
    and raises ProcessLookupError for a process that has just ended.
    """
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if command:
            yield int(place.name), command
