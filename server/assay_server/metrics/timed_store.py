"""A metadata store that tells how long its transactions take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from assay_sampling.errors import StorageError
from assay_server.store.sql import MetadataStore, SqlTransaction


class StoreMeter(Protocol):
    """Hears of transactions, in their threads."""

    def stored(self, wait_seconds: float, work_seconds: float, commit_seconds: float) -> None:
        """A transaction is durable: it waited for the writer, worked, and was committed."""

    def not_stored(self) -> None:
        """A transaction was undone because the store, or something in it, refused."""


class TimedStore:
    """The ``MetadataStore`` that it is given, whose writing transactions are timed.

    ``on_refusal`` is called after a transaction that was refused.
    """

    def __init__(
        self, store: MetadataStore, meter: StoreMeter, on_refusal: Callable[[], None] = lambda: None
    ) -> None:
        self._store, self._meter, self._on_refusal = store, meter, on_refusal

    def snapshot(self) -> AbstractContextManager[SqlTransaction]:
        return self._store.snapshot()

    @contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[SqlTransaction]:
        asked = time.perf_counter()
        try:
            with self._store.transaction(alone=alone) as transaction:
                began = time.perf_counter()
                yield transaction
                ended = time.perf_counter()
        except StorageError:
            self._meter.not_stored()
            self._on_refusal()
            raise
        self._meter.stored(began - asked, ended - began, time.perf_counter() - ended)

    def close(self) -> None:
        self._store.close()
