"""A server in a process of its own, and what it uses: the other half of a benchmark of ingest."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from assay_core.loading import collect_garbage_seldom
from tests.bench.measure import peak_bytes


@dataclass(frozen=True)
class Used:
    """CPU time and peak memory of a process so far; its children do not count."""

    cpu_seconds: float
    peak_bytes: int


def cpu_seconds() -> float:
    """CPU time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Served:
    """The parent's end; ``ready`` is what the server yielded when it was ready."""

    def __init__(self, wire: Connection, ready: Any) -> None:
        self._wire = wire
        self.ready = ready

    def used(self) -> Used:
        self._wire.send("used")
        found: Used = self._wire.recv()
        return found


@contextmanager
def served(serve: Callable[..., AbstractContextManager[Any]], *arguments: Any) -> Iterator[Served]:
    """Run ``with serve(*arguments)`` in a fresh process while the block runs."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, serve, arguments))
    # As assay-server sets it; peers get it, too, and are faster with it.
    with patch.dict(os.environ, ARROW_DEFAULT_MEMORY_POOL="system"):
        process.start()
    theirs.close()
    try:
        yield Served(mine, mine.recv())
    finally:
        mine.close()
        process.join()
    assert process.exitcode == 0


def _serve(wire: Connection, serve: Callable[..., AbstractContextManager[Any]], arguments: Any) -> None:
    with serve(*arguments) as ready:
        collect_garbage_seldom()  # as assay-server does
        wire.send(ready)
        try:
            while wire.recv():
                wire.send(Used(cpu_seconds(), peak_bytes()))
        except EOFError:
            return
