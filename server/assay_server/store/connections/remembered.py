"""What the transactions of a process have read and written, kept for those that come after them.

A database server is asked over a connection, and each question of its own costs two changes between
processes. Whatever one transaction has read stays right for the next one, except for what others have
written since. Writers take turns, and each turn has a number and says what it changed
(:mod:`assay_server.store.postgresql.turns`): a transaction begins by hearing of the turns since the last one
that is known here, and forgets what they changed; or everything, if one of them cannot be heard any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assay_server.store.connections.noted import Key, NotedRows

# Under this key: what the transactions that come later will not ask for, and which may be large.
DONE_WITH = ("done with",)
_AHEAD = 15
_MOST_TOLD = 400  # keys of one turn: some fifty leases, or heartbeats of a hundred busy agents


class Turn(NamedTuple):
    """One commit: its place among all of them, who made it, and as which one of theirs."""

    number: int
    writer: int
    of_writer: int


class Told(NamedTuple):
    """What a turn changed, as :meth:`Remembered.note` wrote it; None: anything."""

    turn: Turn
    changed: str | None


class Remembered:
    """``rows``: what is known; ``last``: the turn whose changes it has. Only who has the turn uses it.

    ``leave_out`` removes from the rows what others have changed.
    """

    def __init__(self, leave_out: Callable[[NotedRows, Iterable[Key]], None]) -> None:
        self.rows = NotedRows()
        self.last: Turn | None = None
        self._leave_out = leave_out
        self._was_kept = False

    @property
    def ahead(self) -> int:
        """How much more than a transaction asks for is worth reading for those that come after it."""
        return _AHEAD if self._was_kept else 0

    def hear(self, told: Sequence[Told]) -> None:
        """Forget what was changed since ``last``, given that turn and all behind it, in order."""
        changed = self._changed_in(told)
        self._was_kept = changed is not None
        if changed is None:
            self.rows.forget()
        elif len(told) > 1:
            self._leave_out(self.rows, changed)
        self.last = told[-1].turn if told else None

    def _changed_in(self, told: Sequence[Told]) -> set[Key] | None:
        """The keys of what others changed; None if that cannot be known."""
        if self.last is None or not told or told[0].turn != self.last:
            return None  # the last one known is gone: so may be others, or the database is an older one
        numbers = [each.turn.number for each in told]
        texts = [each.changed for each in told[1:]]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))) or None in texts:
            return None
        try:
            return {key for text in texts for key in _keys_of(text or "[]")}
        except (ValueError, TypeError):  # a damaged row, or one of another release
            return None

    def note(self) -> str | None:
        """What this group has changed, for others; None: anything."""
        changed = self.rows.changed
        return None if changed is None or len(changed) > _MOST_TOLD else json.dumps(list(changed))

    def end(self, turn: Turn) -> None:
        """A group was committed; what it knows stays right until somebody else writes."""
        for key in self.rows.pop(DONE_WITH, ()):
            self.rows.pop(key, None)
        self.last = turn

    def forget(self) -> None:
        """Some of what is known was undone, or may have been."""
        self.rows.forget()
        self.last = None
        self._was_kept = False


def _keys_of(text: str) -> list[Key]:
    """The keys of a turn, as :meth:`Remembered.note` wrote them. Raises ValueError if it did not."""
    keys = json.loads(text)
    if not isinstance(keys, list) or not all(isinstance(key, list) and key for key in keys):
        raise ValueError(text)
    return [tuple(key) for key in keys]
