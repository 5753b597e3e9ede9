"""Ending the program by signals, whose handlers take no locks."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from assay_core.hangup import Terminal

# The kernel, a shell and a service manager may each send a signal that a person sent once.
_ONE_REQUEST_SECONDS = 1.0


class StandbyEndedError(Exception):
    """The program was asked to end while it stood by for another one."""


@dataclass(frozen=True)
class Ending:
    """The end of the program. ``wait`` for it in the main thread; ``ask`` for it from any thread."""

    wait: Callable[[], None]
    ask: Callable[[], None]
    is_asked: Callable[[], bool]


@contextlib.contextmanager
def until_asked_to_end(on_hangup: Callable[[], None] = lambda: None) -> Iterator[Ending]:
    """In the main thread: SIGTERM and Ctrl-C ask for the end from now on.

    A signal more than a second after the first ends the process at once, without an orderly end. While it
    waits, SIGHUP calls ``on_hangup``, unless the terminal of this process has gone: then it ends.
    """
    terminal = Terminal()
    request_times: list[float] = []

    def received(number: int, _frame: FrameType | None) -> None:
        # It may interrupt itself and the main thread anywhere, so it takes no lock.
        request_times.append(time.monotonic())
        if request_times[-1] - request_times[0] > _ONE_REQUEST_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    waiting, waking = socket.socketpair()
    waking.setblocking(False)
    with waiting, waking:
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, received)
        signal.signal(signal.SIGHUP, lambda number, frame: None)
        try:
            yield Ending(
                lambda: _wait(waiting, terminal, on_hangup),
                lambda: None if request_times else signal.raise_signal(signal.SIGTERM),
                lambda: bool(request_times) or terminal.is_gone,
            )
        finally:  # The handlers stay, so that a second signal can end a slow shutdown.
            signal.set_wakeup_fd(-1)


def _wait(waiting: socket.socket, terminal: Terminal, on_hangup: Callable[[], None]) -> None:
    while waiting.recv(1)[0] == signal.SIGHUP and not terminal.is_gone:
        on_hangup()
