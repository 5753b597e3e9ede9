"""Which part of a program a verdict is about, where its recording is a window of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assay_sampling.notes.base import count_of


def windows_of(notes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The windows that a recording's notes tell of, the wider first, in words that "only for" can precede;
    empty where the whole program was recorded."""
    by_code = {note.get("code"): note for note in notes}
    return tuple(phrase(by_code[code]) for code, phrase in _WINDOWS.items() if code in by_code)


def stands_for(windows: Iterable[str]) -> str:
    """``it stands only for launches 1 to 812, the first 600 s of ...``; nothing for the whole program."""
    text = ", and of these for ".join(windows)
    return f"it stands only for {text}" if text else ""


def _in_range(note: Mapping[str, Any]) -> str:
    recorded = count_of(note["of"], "recorded launch", "recorded launches")
    return f"the {note['launches']:,} of {recorded} in the NVTX range {note['range']!r}"


_WINDOWS = {"light_window": lambda note: str(note["window"]), "window_is_range": _in_range}
