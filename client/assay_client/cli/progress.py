"""Progress on standard error, for people at a terminal, when work takes over two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from assay_client.cli.output import can_move, console
from assay_client.cli.reporters.reading import describe_reading
from assay_sampling.files.watching import ReadProgress, watched_reads
from assay_sampling.visible import visible

SHOWN_AFTER_SECONDS = 2.0


class Activity:
    """The activity that is shown; ``say`` may be called from any thread, any number of times."""

    def __init__(self, text: str, reads: ReadProgress) -> None:
        self._text = visible(text)
        self._reads = reads
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._ended = False

    def say(self, text: str) -> None:
        with self._lock:
            self._text = visible(text)
            self._reads.now = None  # what is done from now on belongs to the new text
            if self._progress is not None:
                self._progress.update(self._progress.task_ids[0], description=self._text)

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
                _ReadingColumn(self._reads),
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


class _ReadingColumn(ProgressColumn):
    """How far the file that is being read has come; drawn afresh at each refresh."""

    def __init__(self, reads: ReadProgress) -> None:
        super().__init__()
        self._reads = reads

    def render(self, task: Task) -> Text:
        state = self._reads.now
        return Text("" if state is None else describe_reading(state, time.monotonic()))


@contextlib.contextmanager
def activity(text: str) -> Iterator[Activity]:
    """Show ``text``, a spinner and the elapsed time on standard error once the block takes long.

    While files are read it also shows bytes, launches and the time until the end of the file.
    """
    with watched_reads() as reads, _shown(Activity(text, reads)) as shown:
        yield shown


@contextlib.contextmanager
def _shown(shown: Activity) -> Iterator[Activity]:
    timer = threading.Timer(SHOWN_AFTER_SECONDS, shown.appear)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield shown
    finally:
        timer.cancel()
        shown.end()
