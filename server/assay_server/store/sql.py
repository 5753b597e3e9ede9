"""The metadata store's transaction over SQL: plain SQLAlchemy Core, without dialects.

Records that a transaction has read or written it need not read again, because nobody else writes meanwhile.
So a record that is saved changes only the columns that differ.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from assay_server.store.parts.agents import AgentRows
from assay_server.store.parts.attempts import AttemptRows
from assay_server.store.parts.bundles import BundleRows
from assay_server.store.parts.overviews import OverviewRows
from assay_server.store.parts.people import PeopleRows
from assay_server.store.parts.queue import QueueRows
from assay_server.store.transactions import Transactions


class SqlTransaction(
    OverviewRows,
    QueueRows,
    AttemptRows,
    AgentRows,
    PeopleRows,
    BundleRows,
):
    """Reads and writes inside one connection's current transaction: completely or not at all.

    Reads are of one consistent moment; missing records are None or an empty list, never an error. ``save_*``
    replaces an existing record. A write that breaks a rule of the data (a second active attempt of a slot or
    slice, a second published attempt of a slice, an existing key) raises StorageError.
    """


class MetadataStore(Protocol):
    """Campaigns, runs, slices, attempts, segments and agents, on SQLite or PostgreSQL. Thread-safe."""

    def snapshot(self) -> AbstractContextManager[SqlTransaction]:
        """Read; nothing is written. Raises StorageError if the disk or the data cannot be read."""

    def transaction(self) -> AbstractContextManager[SqlTransaction]:
        """Write: durable when the block ends, undone when it raises. Raises StorageError."""

    def close(self) -> None: ...


class SqlStore:
    """A ``MetadataStore`` in a database: of its transactions that write, one runs at a time.

    ``reading`` None: readers take their turn with writers.
    """

    def __init__(self, writing: Transactions, reading: Transactions | None) -> None:
        self.writing, self._reading = writing, reading
        self._turn = threading.Lock()

    @contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        if self._reading is None:
            with self.transaction() as transaction:
                yield transaction
            return
        with self._reading.transaction() as connection:
            yield SqlTransaction(connection)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with self._turn, self.writing.transaction() as connection:
            yield SqlTransaction(connection)

    def close(self) -> None:
        with self._turn:
            self.writing.close()
        if self._reading is not None:
            self._reading.close()
