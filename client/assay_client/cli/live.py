"""Following a campaign on a terminal: its live table, redrawn while it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from assay_client.cli.reporters.live import LiveView, live_text
from assay_sampling.errors import AssayError

REFRESH_SECONDS = 2.0
# Beyond this, fetching every run again and again would cost the server more than the watching is worth.
MOST_RUNS = 500


def follow_live(
    statuses: Iterable[Mapping[str, Any]],
    look: Callable[[Mapping[str, Any]], LiveView],
    console: Console,
) -> Mapping[str, Any]:
    """Redraw a campaign's table until its last status, which is returned; the table is then removed.

    Args:
        statuses: the campaign after every change.
        look: completes a status with runs and GPUs; called every two seconds from a thread of its own. What
            it raises is not shown: the statuses tell whether the server is there.
        console: a terminal on which text can be redrawn.
    """
    board = _Board(look)
    with Live(
        console=console, transient=True, refresh_per_second=2, get_renderable=lambda: board.text(console)
    ):
        try:
            for status in statuses:
                board.take(status)
        finally:
            board.end()
    return board.status


class _Board:
    """What is drawn now: one thread takes statuses, another looks at runs and GPUs."""

    def __init__(self, look: Callable[[Mapping[str, Any]], LiveView]) -> None:
        self.status: Mapping[str, Any] = {}
        self._look = look
        self._last_view: LiveView | None = None
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._keep_looking, daemon=True)

    def take(self, status: Mapping[str, Any]) -> None:
        self.status = status
        if not self._looking.is_alive():
            self._looking.start()

    def end(self) -> None:
        self._ended.set()
        if self._looking.is_alive():
            self._looking.join(timeout=REFRESH_SECONDS)

    def text(self, console: Console) -> Text:
        status, last_view = self.status, self._last_view
        if not status:
            return Text("waiting for the server")
        view = LiveView(status) if last_view is None else replace(last_view, status=status)
        return Text(live_text(view, console.width, console.height))

    def _keep_looking(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(AssayError):
                self._last_view = self._look(self.status)
            self._ended.wait(REFRESH_SECONDS)
