"""Figures at the width of a paper: narrower plots with smaller text, in place of a picture scaled down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_report.figures.theme import config

# IEEE and ACM: 3.33 in of a column, 7 in of a page.
COLUMN_PT, PAGE_PT = 240.0, 504.0
PAPER_TEXT_PT = 8
_LEAST_PLOT = 60.0


def fitted(spec: Mapping[str, Any], width_px: float, drawn_px: float) -> dict[str, Any]:
    """``spec`` with the texts of a paper, its plots narrowed so that ``drawn_px`` becomes about ``width_px``.

    Args:
        spec: the document.
        width_px: the width to fit.
        drawn_px: the width at which it is drawn with the texts of a paper and its plots as they are.
    """
    plots = plot_width(spec)
    beside = drawn_px - plots
    factor = max(width_px - beside, _LEAST_PLOT) / plots if plots else 1.0
    return scaled(in_paper_text(spec), min(factor, 1.0))


def in_paper_text(spec: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` with the size of text that papers use, and without the title."""
    untitled = {key: value for key, value in spec.items() if key != "title"}
    return {**untitled, "config": {**config(PAPER_TEXT_PT), "padding": 2}}


def plot_width(view: Mapping[str, Any]) -> float:
    """The width of the plots of a view, without axes and legends, in px."""
    if "hconcat" in view:
        return float(sum(plot_width(each) for each in view["hconcat"]))
    if "vconcat" in view:
        return max((plot_width(each) for each in view["vconcat"]), default=0.0)
    width = view.get("width", 0.0)
    return float(width) if isinstance(width, int | float) else 0.0


def scaled(view: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A view whose plots have ``factor`` times the width."""
    scaled_view = dict(view)
    for part in ("hconcat", "vconcat"):
        if part in view:
            scaled_view[part] = [scaled(each, factor) for each in view[part]]
    if isinstance(view.get("width"), int | float):
        scaled_view["width"] = round(view["width"] * factor, 2)
    return scaled_view
