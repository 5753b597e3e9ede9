"""The sections of ``make bench-scale``. To add one: its module, and its line here.

The function of a section gives the lines of its part of the page as they are measured, and adds to ``goals``
what they come to. It is given how much to measure. What it needs and does not find (a database, an object
store) it says in a line, and ends.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.bench.lab.goals import Goal


@dataclass(frozen=True)
class ScaleSize:
    """How much is measured: medians of ``rounds``; ``share`` of each size, 1 is all of it."""

    rounds: int = 3
    share: float = 1.0

    def of(self, whole: int, at_least: int = 1) -> int:
        """This share of a size."""
        return max(at_least, round(whole * self.share))


Page = Callable[[ScaleSize, list[Goal]], Iterator[str]]

# By name: module and function. Modules are loaded when their section is measured.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "metadata": ("tests.bench.scale.metadata", "metadata_page"),
    "analyses": ("tests.bench.scale.analyses", "analyses_page"),
    "heartbeats": ("tests.bench.scale.heartbeats", "heartbeats_page"),
    "objects": ("tests.bench.scale.objects", "objects_page"),
    "engine": ("tests.bench.scale.engine", "engine_page"),
}


def page_of(name: str) -> Page:
    """The function that measures a section."""
    module, function = SECTIONS[name]
    found: Page = getattr(importlib.import_module(module), function)
    return found
