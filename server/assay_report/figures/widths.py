"""Figures at other widths than a page's, redrawn in place of a picture scaled down.

For a phone: plots below one another, wrapped titles, legends in fewer columns, texts as large. For a paper:
narrower plots with smaller text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from assay_report.figures.parts import fitting_columns
from assay_report.figures.theme import config

# A phone of 400 px without the margins of a page.
NARROW_PX = 360.0
_TITLE_CHARACTERS = 44
_CHARACTER_PX = 6.2
_LABEL_CHARACTERS = 22
# A longer name takes two lines, broken at a space if both then fit.
_SPACE = f"lastindexof(slice(datum.label, 0, {_LABEL_CHARACTERS + 1}), ' ')"
_IN_LINES = (
    f"length(datum.label) <= {_LABEL_CHARACTERS} ? datum.label"
    f" : {_SPACE} > 0 && length(datum.label) - {_SPACE} <= {_LABEL_CHARACTERS + 1}"
    f" ? [slice(datum.label, 0, {_SPACE}), slice(datum.label, {_SPACE} + 1)]"
    f" : [slice(datum.label, 0, {_LABEL_CHARACTERS}), slice(datum.label, {_LABEL_CHARACTERS})]"
)
# What axes at the sides of plots take before they are measured, without the names of rows.
_BESIDE_PX, _BESIDE_NAMES_PX = 80.0, 46.0
_LEAST_PLOT_PX = 100.0
_PADDING_PX, _SYMBOL_PX = 16.0, 20.0
# IEEE and ACM: 7 in of a page.
PAGE_PT = 504.0
PAPER_TEXT_PT = 8
_LEAST_PLOT = 60.0


def narrowed(spec: Mapping[str, Any], plot_px: float | None = None) -> dict[str, Any]:
    """``spec`` for :data:`NARROW_PX`; without ``plot_px``, plots are as wide as the names of rows are
    expected to let them be.
    """
    stacked = _stacked(spec)
    if plot_px is None:
        longest = min(_longest_name(stacked), _LABEL_CHARACTERS)
        beside = _BESIDE_NAMES_PX + longest * _CHARACTER_PX if longest else _BESIDE_PX
        plot_px = NARROW_PX - beside
    plot_px = max(plot_px, _LEAST_PLOT_PX)
    plots = plot_width(stacked)
    narrow_view = scaled(stacked, plot_px / plots) if plots else stacked
    lines = textwrap.wrap(narrow_view["title"], _TITLE_CHARACTERS)
    return {**_in_width(narrow_view, plot_px), "title": {"text": lines, "limit": NARROW_PX - _PADDING_PX}}


def _stacked(view: Mapping[str, Any]) -> dict[str, Any]:
    """Views side by side become views below one another, each with the names of its rows."""
    stack = dict(view)
    beside = stack.pop("hconcat", None)
    below = beside or stack.get("vconcat")
    if below:
        stack["vconcat"] = [_stacked(_with_labels(each) if beside else each) for each in below]
    return stack


def _with_labels(view: Mapping[str, Any]) -> dict[str, Any]:
    up = view.get("encoding", {}).get("y", {})
    if (up.get("axis") or {}).get("labels") is not False:
        return dict(view)
    axis = {key: value for key, value in up["axis"].items() if key != "labels"}
    return {**view, "encoding": {**view["encoding"], "y": {**up, "axis": axis}}}


def _in_width(view: Mapping[str, Any], plot_px: float) -> dict[str, Any]:
    """A view with the titles of its axes, its names and its legends within the width."""
    narrow_view = dict(view)
    mark = narrow_view.get("mark")
    if isinstance(mark, Mapping) and "limit" in mark:  # an empty figure, which says why
        texts = [textwrap.wrap(each["text"], _TITLE_CHARACTERS) for each in narrow_view["data"]["values"]]
        narrow_view["data"] = {"values": [{"text": lines} for lines in texts]}
    for part in ("vconcat", "layer"):
        if part in narrow_view:
            narrow_view[part] = [_in_width(each, plot_px) for each in narrow_view[part]]
    if "encoding" in narrow_view:
        narrow_view["encoding"] = {
            channel: _channel(channel, each, plot_px) for channel, each in narrow_view["encoding"].items()
        }
    return narrow_view


def _channel(channel: str, encoding: Mapping[str, Any], plot_px: float) -> dict[str, Any]:
    definition = dict(encoding)
    if channel == "x" and isinstance(definition.get("title"), str):
        definition["title"] = (
            textwrap.wrap(definition["title"], int((plot_px + 40) / _CHARACTER_PX)) or definition["title"]
        )
    if channel in ("x", "y") and definition.get("type") == "nominal" and definition.get("axis") is not None:
        definition["axis"] = {**definition.get("axis", {}), "labelExpr": _IN_LINES}
    legend = definition.get("legend")
    if legend and "columns" in legend:
        shown = (definition.get("scale") or {}).get("domain", ())
        columns = fitting_columns(shown, legend["columns"], plot_px)
        # A legend begins where the plot does.
        definition["legend"] = {**legend, "columns": columns, "labelLimit": plot_px - _SYMBOL_PX}
    return definition


def _longest_name(view: Mapping[str, Any]) -> int:
    """The characters of the longest name of a row, at the side of a plot."""
    inner = [_longest_name(each) for part in ("vconcat", "layer") for each in view.get(part, ())]
    up = view.get("encoding", {}).get("y", {})
    names = up["scale"]["domain"] if up.get("type") == "nominal" else ()
    return max([*inner, *map(len, names)], default=0)


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
