"""A figure in a notebook: drawn without a network, shown as SVG, written in the form that a paper needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay_client.files import AnyPath
from assay_report.figures import forms
from assay_report.figures.figure import Figure
from assay_report.figures.widths import PAGE_PT

if TYPE_CHECKING:
    import altair


class Plot:
    """A figure of launches, scores or a report; docs/figures.md. It needs the extra ``figures``."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    @property
    def title(self) -> str:
        """What it shows."""
        return self._figure.title

    @property
    def caption(self) -> str:
        """How to read it."""
        return self._figure.caption

    @property
    def empty(self) -> str | None:
        """Why there is nothing to see; None if there is."""
        return self._figure.empty

    def svg(self) -> str:
        """The figure as SVG: a whole file, and also a part of a page."""
        return forms.svg(self._figure)

    def png(self, *, scale: float = forms.PNG_SCALE) -> bytes:
        """The figure as PNG, with ``scale`` dots for each px."""
        return forms.png(self._figure, scale=scale)

    def pdf(self, *, width_pt: float = PAGE_PT) -> bytes:
        """The figure as vector PDF for a paper, at most ``width_pt`` wide; 240 fits a column."""
        return forms.pdf(self._figure, width_pt=width_pt)

    def chart(self) -> altair.TopLevelMixin:
        """The figure as a chart of Altair, to be changed."""
        return self._figure.chart()

    def write(self, path: AnyPath) -> None:
        """Write it as ``.svg``, ``.png``, vector ``.pdf``, interactive ``.html`` or Vega-Lite ``.json``.

        Raises ParameterError for another ending, MissingExtraError without the extra ``figures``.
        """
        forms.write(self._figure, Path(path))

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"
