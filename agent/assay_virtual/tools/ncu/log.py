"""The log of Nsight Compute: lines "==PROF== ...", "==WARNING== ..." and "==ERROR== ..."."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO


class Log:
    """The destination of all messages: a file, or one of the standard channels; flushed line by line."""

    def __init__(self, output: TextIO, *, quiet: bool = False) -> None:
        self.output = output
        self._quiet = quiet

    def profile(self, text: str) -> None:
        self._line("PROF", text)

    def warning(self, text: str) -> None:
        self._line("WARNING", text)

    def error(self, text: str) -> None:
        self._line("ERROR", text)

    def write(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()

    def _line(self, kind: str, text: str) -> None:
        if not self._quiet:
            self.write(f"=={kind}== {text}\n")


def open_log(name: str, output: TextIO, errors: TextIO) -> TextIO:
    """The channel that ``--log-file`` names; raises OSError for a file that cannot be written."""
    if name in ("", "stdout"):
        return output
    return errors if name == "stderr" else Path(name).open("w", encoding="utf-8")
