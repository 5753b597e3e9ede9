"""The type of a kind of note, and helpers that several sentences share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

from assay_sampling.parameters import Unit

NoteValue = str | int | float | tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True)
class NoteKind:
    """A kind of note. ``meaning`` is a phrase without a full stop, Markdown allowed; ``flag`` the name of
    the validity flag that the note stands for, or None; ``sentence`` takes the parameters by name, and
    ``unit``, "launch" unless given, where it counts what was selected from."""

    code: str
    meaning: str
    sentence: Callable[..., str]
    flag: str | None = None

    @property
    def has_unit(self) -> bool:
        """Whether the sentence counts launches, or operations in a selection by operation."""
        return "unit" in signature(self.sentence).parameters


def count_of(number: int, one: str, more: str) -> str:
    """``1 launch``, ``2 launches``."""
    return f"{number:,} {one if number == 1 else more}"


def launches_of(number: int, unit: Unit = "launch") -> str:
    """``1 launch``, ``2 launches``, ``2 operations``."""
    return count_of(number, unit, several(unit))


def several(unit: Unit) -> str:
    """``launches``, ``operations``."""
    return "launches" if unit == "launch" else "operations"


def part_of(unit: Unit) -> str:
    """By which parts of a workload methods are scored on other GPUs."""
    return "kernel and grid" if unit == "launch" else "stratum and size"


def launch_at(process: int, launch: int, unit: Unit = "launch") -> str:
    """``launch 3 of process 0``, ``the operation that begins with launch 3 of process 0``."""
    where = f"launch {launch} of process {process}"
    return where if unit == "launch" else f"the operation that begins with {where}"
