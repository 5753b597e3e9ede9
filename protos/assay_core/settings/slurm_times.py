"""Spans of time as Slurm writes them: ``30``, ``4:00:00``, ``1-12``, ``UNLIMITED``.

Source: sbatch(1), "--time".
"""

from __future__ import annotations

import re

_UNLIMITED = ("UNLIMITED", "INFINITE", "-1", "0")
_DAYS = re.compile(r"(\d{1,6})-(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?", re.ASCII)
_PLAIN = re.compile(r"(?:(\d{1,9}):)??(\d{1,9})(?::(\d{1,9}))?", re.ASCII)


def slurm_seconds(text: str) -> int | None:
    """A time limit in seconds; None: there is no limit, or it is not a time that we know."""
    if text.upper() in _UNLIMITED:
        return None
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if match := _PLAIN.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return (hours * 60 + minutes) * 60 + seconds
    return None
