"""What the process that draws figures does; it alone loads Vega."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

_DESCRIBED_CHARACTERS = 600


@dataclass(frozen=True)
class Described:
    """A figure of a report, without its picture.

    ``workload``: which it is about, "" for the whole campaign; ``empty``: why there is nothing to see, "" if
    there is; ``words``: its content for readers who do not see it.
    """

    name: str
    title: str
    caption: str
    workload: str
    words: str
    empty: str


def described(report: Path | bytes) -> tuple[Described, ...]:
    """The figures of a report (JSON), in the report's order; raises InputError, OSError."""
    return tuple(
        Described(
            figure.name,
            figure.title,
            figure.caption,
            figure.workload or "",
            figure.described[:_DESCRIBED_CHARACTERS],
            figure.empty or "",
        )
        for figure in _figures_of(report).values()
    )


def picture(report: Path | bytes, name: str, *, narrow: bool = False) -> bytes | None:
    """A figure as SVG, ``narrow`` for a phone; None if there is none. Raises InputError, OSError."""
    from assay_report.figures import forms  # noqa: PLC0415 - see above

    figure = _figures_of(report).get(name)
    drawn = forms.narrow_svg if narrow else forms.svg
    return None if figure is None else drawn(figure).encode()


def _figures_of(report: Path | bytes) -> dict[str, Figure]:
    return _parsed(report if isinstance(report, bytes) else report.read_bytes())


@lru_cache(maxsize=2)
def _parsed(report: bytes) -> dict[str, Figure]:
    from assay_report.figures import gallery  # noqa: PLC0415
    from assay_report.reading import parse_report  # noqa: PLC0415

    return {figure.name: figure for figure in gallery.of_report(parse_report(report))}
