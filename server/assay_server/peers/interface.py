"""Servers on one database: the news they tell each other, what one alone may do at a time, and their time.

Nothing is decided by votes. The database says who is there and who holds a name; both end with a server's
connection, however it dies. Whoever works under a name must stay right if two do it for a moment, for a
connection may be lost unnoticed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from assay_server.store.sql import SqlTransaction

# Hears a text that a server told (also this one's own), or None: some may have been missed.
Hear = Callable[[str | None], None]


class Peers(Protocol):
    """One server among those of a database. Thread-safe. Methods raise StorageError."""

    shared: bool  # whether there may be others

    def joining(self) -> AbstractContextManager[bool]:
        """Join the servers: whether no other one is there. Other servers wait until the block has ended."""
        ...

    def tell(self, write: SqlTransaction, news: Sequence[str]) -> None:
        """In a transaction: once it is durable, all servers hear these texts, each of at most MOST_BYTES."""
        ...

    def told(self, news: Sequence[str]) -> None:
        """The transaction is durable that was given to :meth:`tell` with these texts."""
        ...

    def listening(self, hear: Hear) -> AbstractContextManager[None]:
        """Hear news, in a thread of the peers, until the block ends."""
        ...

    def holding(self, names: Sequence[str]) -> AbstractContextManager[frozenset[str]]:
        """Take names for the block; the given ones are those that no other server has. Never waits."""
        ...

    def now_ms(self) -> int | None:
        """The time that all servers share, Unix ms; None: that of this machine."""
        ...

    def close(self) -> None:
        """Leave the others."""
        ...


MOST_BYTES = 7_900  # of one text: PostgreSQL's NOTIFY takes less than 8,000


@dataclass
class Hub:
    """Where servers of one process meet."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    starting: threading.Lock = field(default_factory=threading.Lock)
    members: list[PeersInProcess] = field(default_factory=list)
    hearing: list[Hear] = field(default_factory=list)
    held: dict[str, PeersInProcess] = field(default_factory=dict)


class PeersInProcess:
    """A server whose database nobody else uses: SQLite's. Several on one hub are a lab of one process."""

    def __init__(self, hub: Hub | None = None) -> None:
        self._hub = hub or Hub()
        self.shared = hub is not None

    @contextmanager
    def joining(self) -> Iterator[bool]:
        with self._hub.starting:
            yield not self._hub.members
            self._hub.members.append(self)

    def tell(self, write: SqlTransaction, news: Sequence[str]) -> None:
        """Nothing yet: it may be undone."""

    def told(self, news: Sequence[str]) -> None:
        for text in news:
            for hear in list(self._hub.hearing):
                hear(text)

    @contextmanager
    def listening(self, hear: Hear) -> Iterator[None]:
        self._hub.hearing.append(hear)
        try:
            yield
        finally:
            self._hub.hearing.remove(hear)

    @contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[frozenset[str]]:
        hub = self._hub
        with hub.lock:
            got = frozenset(name for name in names if hub.held.get(name, self) is self)
            mine = [name for name in got if name not in hub.held]
            hub.held.update(dict.fromkeys(mine, self))
        try:
            yield got
        finally:
            with hub.lock:
                for name in mine:
                    del hub.held[name]

    def now_ms(self) -> int | None:
        return None

    def close(self) -> None:
        if self in self._hub.members:
            self._hub.members.remove(self)
