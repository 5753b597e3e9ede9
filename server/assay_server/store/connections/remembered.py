"""What the transactions of a process have read and written, kept for those that come after them.

A database server is asked over a connection, and each question of its own costs two changes between
processes. Whatever one transaction has read stays right for the next one if nobody else has written since.
So each transaction of a store begins by asking how often others have written
(:mod:`assay_server.store.postgresql.marks`), and reads everything anew if that is another number.
"""

from __future__ import annotations

from typing import Any

from assay_server.store.connections.prepared import Driver

# Under this key: what the transactions that come later will not ask for, and which may be large.
DONE_WITH = ("done with",)
_AHEAD = 15


class Remembered:
    """``rows``: what is known, by table and key. Only whoever has the writer's turn uses it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}
        self._others: Any = None
        self._was_alone = False

    @property
    def ahead(self) -> int:
        """How much more than a transaction asks for is worth reading for those that come after it."""
        return _AHEAD if self._was_alone else 0

    def begin(self, driver: Driver) -> None:
        """A group of transactions has begun: forget everything if somebody else wrote since the last one.

        While others write between any two groups, nobody waits for that answer.
        """
        if not (self._was_alone and driver.begun() == self._others):
            self.rows.clear()

    def end(self, driver: Driver) -> None:
        """A group was committed; what it knows stays right until somebody else writes."""
        for key in self.rows.pop(DONE_WITH, ()):
            self.rows.pop(key, None)
        others = driver.begun_with
        self._was_alone = others is not None and others == self._others
        self._others = others

    def forget(self) -> None:
        """Some of what is known was undone, or may have been."""
        self.rows.clear()
        self._was_alone = False
