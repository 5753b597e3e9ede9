"""The console that everything is drawn on."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from assay_sampling.visible import visible


class VisibleConsole(Console):
    """A console on which no text that it is given steers the terminal or hides what is around it."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)
