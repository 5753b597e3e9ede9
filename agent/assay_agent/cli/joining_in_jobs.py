"""Joining a lab in a job: a server that is being restarted when the job starts costs the job nothing.

A job may have waited for days for its GPU, so it does not end because the server is away for some minutes. An
address that nobody ever answers must not keep a GPU for long, either.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from assay_sampling.errors import ServerUnreachableError

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 600.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 2.0, 30.0


def join_patiently(
    join: Callable[[], object], asked_to_end: threading.Event, patience_seconds: float = PATIENCE_SECONDS
) -> bool:
    """Call ``join`` until the server answers; False if the job was asked to end, even while it answered.

    Raises ServerUnreachableError if nothing answers for ``patience_seconds``, and at once all that ``join``
    raises besides.
    """
    until, wait_seconds = time.monotonic() + patience_seconds, _FIRST_WAIT_SECONDS
    while not asked_to_end.is_set():
        try:
            join()
        except ServerUnreachableError as error:
            if asked_to_end.is_set():
                return False
            if time.monotonic() + wait_seconds > until:
                raise
            _log.warning("%s; asking again in %.0f s", error, wait_seconds)
            asked_to_end.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
        else:
            return not asked_to_end.is_set()  # Slurm signals once, and this signal was taken here
    return False


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, instead of ending this process, as long as the block lasts."""
    event = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda received, frame: event.set()) for number in numbers]
    try:
        yield event
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
