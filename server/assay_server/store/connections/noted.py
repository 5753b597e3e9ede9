"""Rows by key, and a note of which of them the transactions of a group have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Key = tuple[Any, ...]
EXPECTED = ("expected",)  # noted: what others expect to be asked for may be another by now


class NotedRows(dict[Key, Any]):
    """What is known, by table and key.

    ``changed``: the keys of what was written since :meth:`begin_notes`; None: it may have been anything.
    Some of it was read because it is expected to be asked for; that follows from many rows.
    """

    def __init__(self, rows: Iterable[tuple[Key, Any]] = ()) -> None:
        super().__init__(rows)
        self.changed: set[Key] | None = set()
        self._expected: set[Key] = set()

    def expect(self, key: Key, value: Any) -> None:
        """Keep what is expected to be asked for."""
        self[key] = value
        self._expected.add(key)

    def expected(self) -> list[tuple[Key, Any]]:
        """What is known of what was given to :meth:`expect`."""
        return [(key, self[key]) for key in self._expected if key in self]

    def forget_expected(self) -> None:
        """Something is written that concerns what is expected to be asked for."""
        self.drop_expected()
        self.note(EXPECTED)

    def drop_expected(self) -> None:
        """Another server has written that: nobody need be told again."""
        for key in self._expected:
            self.pop(key, None)
        self._expected.clear()

    def begin_notes(self) -> None:
        """Nothing was written yet."""
        self.changed = set()

    def note(self, *keys: Key) -> None:
        """What has these keys is written; what is known of it, the caller brings in line."""
        if self.changed is not None:
            self.changed.update(keys)

    def clear(self) -> None:
        """Something is written that may concern whatever is known."""
        self.forget()
        self.changed = None

    def forget(self) -> None:
        """Know nothing any more, though nothing was written."""
        super().clear()
        self._expected.clear()
