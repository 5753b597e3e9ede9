"""Texts in figures: names from anywhere made safe and short, and numbers for labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from assay_sampling.visible import visible

LONGEST_LABEL = 44
# A tooltip shows a whole name; a hostile one may be longer than a page.
LONGEST_HINT = 4096
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def in_one_line(text: str) -> str:
    """``text`` on one line, with nothing hidden: XML forbids control characters even escaped."""
    return visible(" ".join(text.split()))


def shortened(text: str, characters: int = LONGEST_LABEL) -> str:
    """``text`` on one line, cut in the middle where it is longer than ``characters``."""
    line = in_one_line(text)
    if len(line) <= characters:
        return line
    head = (characters - 1) // 2
    return f"{line[:head]}…{line[len(line) - (characters - 1 - head) :]}"


def hint(text: str) -> str:
    """What a reader sees on pointing at a mark: everything, up to some thousand characters."""
    return shortened(text, LONGEST_HINT)


def labels(names: Sequence[str], characters: int = LONGEST_LABEL) -> dict[str, str]:
    """A short label for each of ``names``, in their order; no two names share a label."""
    by_name: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        short = shortened(name, characters) or "(no name)"
        candidates = (short if number == 1 else f"{short} ({number})" for number in count(1))
        label = next(each for each in candidates if each not in taken)
        taken.add(label)
        by_name[name] = label
    return by_name


def file_name(*parts: str) -> str:
    """A file's name, without suffix, from texts that may hold any character."""
    return "-".join(_NOT_IN_A_NAME.sub("-", part).strip("-.")[:60] or "x" for part in parts).lower()


def number(value: float) -> str:
    """A short number for a label, with thousands separators."""
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
