"""Progress on standard error, for people at a terminal, when work takes over two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from assay_client.cli.output import can_move, console

SHOWN_AFTER_SECONDS = 2.0


class Activity:
    """The activity that is shown; ``say`` may be called from any thread, any number of times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._ended = False

    def say(self, text: str) -> None:
        with self._lock:
            self._text = text
            if self._progress is not None:
                self._progress.update(self._progress.task_ids[0], description=text)

    def appear(self) -> None:
        with self._lock:
            if self._ended or self._progress is not None:
                return
            drawn = console(error=True)
            if not can_move(drawn):
                drawn.print(f"{self._text} ...", soft_wrap=True)
                return
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=drawn,
                transient=True,
            )
            self._progress.add_task(self._text, total=None)
            self._progress.start()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._progress is not None:
                self._progress.stop()
                self._progress = None


@contextlib.contextmanager
def activity(text: str) -> Iterator[Activity]:
    """Show ``text``, a spinner and the elapsed time on standard error once the block takes long."""
    shown = Activity(text)
    timer = threading.Timer(SHOWN_AFTER_SECONDS, shown.appear)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield shown
    finally:
        timer.cancel()
        shown.end()
