"""How all figures look: colours for light and dark, marks, dashes, fonts and sizes.

Readers who cannot tell red from green can tell the colours from each other and from the paper; marks and
dashes change with the colours, so that neither alone identifies a series. Figures are drawn in the light
colours; :data:`STYLE` replaces them where the reader prefers dark, except in print.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

INK, QUIET, GRID, PAPER = "#1f2933", "#5b6770", "#d5dbe0", "#ffffff"
SERIES = ("#2b3fe5", "#a22b11", "#33a85e", "#9983bc", "#b29000", "#2b8bf6", "#49368a", "#737373")
# Where there are more series than that: twelve, each as far from all others as there was one left.
MORE = ("#303048", "#6c0c18", "#48009c", "#605484", "#0000fc", "#fc2448", "#cc0ccc", "#484848", "#247830",
        "#9c90a8", "#183060", "#a89084")  # fmt: skip
# Letters inside coloured bars keep their colours in the dark.
INSIDE, AROUND_INSIDE = "#fffffe", "#000001"

DARK = {
    INK: "#e6e9ec", QUIET: "#a3adb5", GRID: "#3a444c", PAPER: "#14181b",
    "#2b3fe5": "#7081b6", "#a22b11": "#cf570c", "#33a85e": "#35f065", "#9983bc": "#ddd9b2",
    "#b29000": "#f9fe20", "#2b8bf6": "#2d67d9", "#49368a": "#ddcfff", "#737373": "#a0a0a0",
    **dict(zip(MORE, ("#cc0048", "#603cfc", "#909cfc", "#fc9000", "#c00084", "#90b46c", "#d8d8d8", "#248460",
                      "#cc603c", "#90a8cc", "#606cc0", "#fc1878"), strict=True)),
}  # fmt: skip

MARKS = (
    "circle", "square", "M0,-1.3L1.3,0L0,1.3L-1.3,0Z", "triangle-up", "triangle-down", "cross",
    "M-1,-1L1,-1L-1,1L1,1Z", "M-0.4,-1.1L0.4,-1.1L0.4,1.1L-0.4,1.1Z",
)  # fmt: skip
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 3], [1, 3], [6, 2, 1, 2, 1, 2])

# Liberation Sans comes with vl-convert; Arial and Helvetica have its widths, so that pages fit, too.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
LEAST_TEXT_PX = 11
TEXT_PX, TITLE_PX = 12, 14
WIDTH_PX = 640

CLASS = "assay-figure"


def style(used: Container[str] = DARK) -> str:
    """The style sheet that draws the colours ``used`` as dark ones where the reader asks for them."""
    rules = "".join(
        f'.{CLASS} [{what}="{light}"]{{{what}:{dark}}}'
        for light, dark in DARK.items()
        if light in used
        for what in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme:dark){{@media not print{{{rules}}}}}"


STYLE = style()


def config(text_px: int = TEXT_PX) -> dict[str, Any]:
    """Vega-Lite's ``config`` of all figures, with texts of ``text_px``."""
    quiet = {"labelColor": INK, "titleColor": QUIET, "labelFontSize": text_px, "titleFontSize": text_px,
             "titleFontWeight": "normal", "labelLimit": 700, "titleLimit": 700}  # fmt: skip
    return {
        "font": FONT,
        "background": PAPER,
        "padding": 8,
        "view": {"stroke": None},
        "title": {"color": INK, "fontSize": text_px + 2, "fontWeight": "bold",
                  "anchor": "start", "limit": 900, "offset": 10},
        "axis": {**quiet, "gridColor": GRID, "domainColor": QUIET, "tickColor": QUIET, "labelPadding": 4},
        "legend": {**quiet, "orient": "top", "symbolSize": 90, "rowPadding": 3, "columnPadding": 14,
                   "symbolStrokeWidth": 2, "offset": 8},
        "header": {**quiet, "labelFontWeight": "bold"},
        "text": {"fontSize": text_px, "color": INK},
        "concat": {"spacing": 24},
        "range": {"category": list(SERIES), "symbol": list(MARKS)},
    }  # fmt: skip
