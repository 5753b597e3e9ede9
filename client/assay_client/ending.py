"""Ending a command by signals, whose handlers only record that they came.

A handler that raises does so wherever the main thread happens to be. In a destructor Python swallows the
exception, and under a lock of gRPC the process waits for ever. So a thread acts for it: it cancels what
waits, and the main thread raises where that is safe; a command with nothing to clean up just ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

# The kernel, a shell and a service manager may each send a signal that a person meant once.
_ONE_REQUEST_SECONDS = 1.0
# A command has this long to clean up; then it ends as if it had been killed, which loses nothing.
_GRACE_SECONDS = 45.0
_SHOW_CURSOR = "\x1b[?25h"

_callbacks: list[Callable[[], None]] = []
_signals: list[int] = []
_orderly: list[int] = []  # signals that came while there was something to clean up
_lock = threading.Lock()


@contextlib.contextmanager
def ended_in_order(cancel: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the block runs, a signal only calls ``cancel`` in another thread."""
    with _lock:
        _callbacks.append(cancel)
    try:
        if _signals:
            cancel()
        yield
    finally:
        with _lock:
            _callbacks.remove(cancel)


def raise_if_asked() -> None:
    """Raise KeyboardInterrupt or SystemExit if a signal asked for the end; only in the main thread."""
    if not _signals or threading.current_thread() is not threading.main_thread():
        return
    if _signals[0] == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + _signals[0])


@contextlib.contextmanager
def signals_noted(last_words: Callable[[int], None]) -> Iterator[None]:
    """While the block runs, SIGTERM and Ctrl-C end the command; ``last_words`` gets the exit code before.

    It does nothing outside the main thread, where the caller owns the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.clear()
    _orderly.clear()
    waiting, waking = socket.socketpair()
    waking.setblocking(False)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    fd = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    for number in before:
        signal.signal(number, _note)
    thread = threading.Thread(target=_act, args=(waiting, last_words), name="assay-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        waking.close()
        thread.join()
        waiting.close()
        _signals.clear()
        _orderly.clear()


def _note(number: int, _frame: FrameType | None) -> None:
    if _callbacks:
        _orderly.append(number)
    _signals.append(number)


def _act(waiting: socket.socket, last_words: Callable[[int], None]) -> None:
    """Wait for signals and make sure that the process ends."""
    began = 0.0
    while True:
        waiting.settimeout(max(0.0, began + _GRACE_SECONDS - time.monotonic()) if began else None)
        try:
            received = waiting.recv(1)
        except TimeoutError:
            _leave(128 + _signals[0])
        if not received:
            return
        number = received[0]
        if number not in (signal.SIGTERM, signal.SIGINT):
            continue
        if began and time.monotonic() - began > _ONE_REQUEST_SECONDS:
            _leave(128 + number)
        if began:
            continue
        began = time.monotonic()
        if not _signals:
            _signals.append(number)
        with _lock:
            callbacks = list(_callbacks)
        if not callbacks and not _orderly:
            last_words(128 + number)
            _leave(128 + number)
        for cancel in callbacks:
            cancel()


def _leave(code: int) -> None:
    if sys.stderr.isatty():
        with contextlib.suppress(OSError):
            os.write(2, _SHOW_CURSOR.encode())
    os._exit(code)
