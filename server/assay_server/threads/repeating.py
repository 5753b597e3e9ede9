"""A thread that does a step again and again, whatever becomes of it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from assay_sampling.errors import AssayError

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def repeated_in_thread(
    name: str,
    step: Callable[[], object],
    pause_seconds: float,
    *,
    at_once: bool = True,
    wake: threading.Event | None = None,
) -> Iterator[None]:
    """Do a step in a thread of its own, with pauses in between, while the block runs.

    A step that raises is logged and done again after the pause. At the end of the block a pause ends at once,
    and a step under way is waited for.

    Args:
        name: of the thread, which the log gives, too.
        step: what is done.
        pause_seconds: from the end of a step to the next one.
        at_once: whether the first step comes before the first pause.
        wake: ends a pause whenever it is set.
    """
    woken, end = wake or threading.Event(), threading.Event()

    def run() -> None:
        if not at_once:
            woken.wait(pause_seconds)
        while True:
            woken.clear()
            if end.is_set():
                return
            _done(name, step)
            woken.wait(pause_seconds)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        woken.set()
        thread.join()


def _done(name: str, step: Callable[[], object]) -> None:
    try:
        step()
    except AssayError as error:
        _log.warning("%s: %s", name, error)
    except Exception:  # noqa: BLE001 - this thread must outlive every fault
        _log.exception("%s failed", name)
