"""The type of a kind of note, and helpers that several sentences share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NoteValue = str | int | float | tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True)
class NoteKind:
    """A kind of note. ``meaning`` is a phrase without a full stop, Markdown allowed; ``flag`` the name of
    the validity flag that the note stands for, or None; ``sentence`` takes the parameters by name."""

    code: str
    meaning: str
    sentence: Callable[..., str]
    flag: str | None = None


def count_of(number: int, one: str, more: str) -> str:
    """``1 launch``, ``2 launches``."""
    return f"{number:,} {one if number == 1 else more}"


def launches_of(number: int) -> str:
    """``1 launch``, ``2 launches``."""
    return count_of(number, "launch", "launches")
