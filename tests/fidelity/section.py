"""A section of the fidelity bench: a table with its bounds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Effort(StrEnum):
    """How much of a section is run: ``short`` in tests, ``full`` by ``make bench-fidelity``."""

    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True)
class Section:
    """A table: ``rows`` have one text per column; ``missed`` names each bound that was not kept.

    ``about`` says where the data is from, and whether it is measured, simulated or synthetic.
    """

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    missed: Sequence[str] = field(default=())

    def markdown(self) -> str:
        """The section as Markdown."""
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"{self.title}: a row has more or fewer cells than {len(self.columns)} columns")
        lines = [f"## {self.title}", "", self.about, ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += ["", "Bounds missed:" if self.missed else "Bounds missed: none."]
        lines += [f"- {text}" for text in self.missed]
        return "\n".join(lines) + "\n"


def shared_data() -> Path | None:
    """The folder of real recordings beside the checkout; None where it is absent."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("ASSAY_SHARED_DATA", beside))
    return path if path.is_dir() else None
