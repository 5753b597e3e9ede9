"""How one kind of database is told to begin, mark, undo and commit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """The commands of one kind of database.

    Args:
        begin: commands that begin a transaction that writes, with the writer's lock.
        begin_reading: begins one that reads one moment.
        failures: what its driver raises.
        keep: ends a savepoint; "": the commit does it.
        commit_with_last: whether what the last of a group kept back is sent together with the commit.
        mark: sets the savepoint of a member of a group, "{}" being its number there: nobody can be taken back
            by mistake to that of a member before, whose own was refused.
        undo: takes the transaction back there.
    """

    begin: tuple[str, ...]
    begin_reading: str
    failures: tuple[type[Exception], ...]
    commit_with_last: bool = False
    mark: str = "SAVEPOINT one"
    keep: str = "RELEASE one"
    undo: tuple[str, ...] = ("ROLLBACK TO one", "RELEASE one")
