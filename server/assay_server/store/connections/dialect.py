"""How one kind of database is told to begin, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """The commands of one kind of database.

    Args:
        begin: commands that begin a transaction that writes, with the writer's lock.
        begin_reading: begins one that reads one moment.
        failures: what its driver raises.
    """

    begin: tuple[str, ...]
    begin_reading: str
    failures: tuple[type[Exception], ...]
