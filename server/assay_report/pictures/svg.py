"""A small SVG writer: elements with escaped text and attributes, axes with round ticks.

Pictures stand on their own (namespace and style inside), so they work in a page and as files. Colours
follow the reader's light or dark scheme. The background is part of the picture, because any page may show it.
Readers who cannot tell red from green can tell the colours from each other and from the background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

SERIES_COLOURS = 8
MARKERS = ("circle", "square", "diamond", "triangle", "down", "cross", "hourglass", "bar")

_STYLE = """
.assay-picture { font-family: system-ui, sans-serif; font-size: 12px; }
.assay-picture text { fill: #1f2933; } .assay-picture .quiet { fill: #5b6770; }
.assay-picture .title { font-size: 14px; font-weight: 600; }
.assay-picture .inside { fill: #ffffff; stroke: #000000; stroke-width: 2.5px; paint-order: stroke; }
.assay-picture .axis { stroke: #5b6770; } .assay-picture .gridline { stroke: #d5dbe0; }
.assay-picture .paper { fill: #ffffff; } .assay-picture .line { fill: none; stroke: #1f2933; }
.assay-picture .mark { stroke: #ffffff; stroke-width: 1; }
.assay-picture .s0 { fill: #2b3fe5; } .assay-picture .s1 { fill: #a22b11; }
.assay-picture .s2 { fill: #33a85e; } .assay-picture .s3 { fill: #9983bc; }
.assay-picture .s4 { fill: #b29000; } .assay-picture .s5 { fill: #2b8bf6; }
.assay-picture .s6 { fill: #49368a; } .assay-picture .s7 { fill: #737373; }
@media (prefers-color-scheme: dark) { @media not print {
.assay-picture text { fill: #e6e9ec; } .assay-picture .quiet { fill: #a3adb5; }
.assay-picture .inside { fill: #ffffff; }
.assay-picture .axis { stroke: #a3adb5; } .assay-picture .gridline { stroke: #3a444c; }
.assay-picture .paper { fill: #14181b; } .assay-picture .line { stroke: #e6e9ec; }
.assay-picture .mark { stroke: #14181b; }
.assay-picture .s0 { fill: #7081b6; } .assay-picture .s1 { fill: #cf570c; }
.assay-picture .s2 { fill: #35f065; } .assay-picture .s3 { fill: #ddd9b2; }
.assay-picture .s4 { fill: #f9fe20; } .assay-picture .s5 { fill: #2d67d9; }
.assay-picture .s6 { fill: #ddcfff; } .assay-picture .s7 { fill: #a0a0a0; }
} }
"""

# Mean width of a character at 12 px: labels are laid out without measuring fonts.
_CHARACTER_WIDTH = 6.6
# Below this a linear axis would show rounding, not data.
_LEAST_LARGEST = 1e-12


_CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)),
    "triangle": ((0, -6), (6, 5), (-6, 5)),
    "down": ((0, 6), (6, -5), (-6, -5)),
    "cross": (
        (-2, -6), (2, -6), (2, -2), (6, -2), (6, 2), (2, 2),
        (2, 6), (-2, 6), (-2, 2), (-6, 2), (-6, -2), (-2, -2),
    ),
    "hourglass": ((-6.5, -7), (6.5, -7), (-6.5, 7), (6.5, 7)),
    "bar": ((-2.5, -7), (2.5, -7), (2.5, 7), (-2.5, 7)),
}  # fmt: skip


def text_width(text: str) -> float:
    """The approximate width of ``text`` in px."""
    return _CHARACTER_WIDTH * len(text)


def shortened(text: str, characters: int) -> str:
    """``text``, cut in the middle where it is longer than ``characters``."""
    if len(text) <= characters:
        return text
    head = (characters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (characters - 1 - head) :]}"


def element(name: str, content: str = "", **attributes: object) -> str:
    """One element; ``content`` is markup. An underscore in an attribute's name becomes a hyphen."""
    pairs = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_text(value))}" for key, value in attributes.items()
    )
    return f"<{name}{pairs}>{content}</{name}>" if content else f"<{name}{pairs}/>"


def label(content: str, x: float, y: float, **attributes: object) -> str:
    """A text at a point; ``content`` is plain text."""
    return element("text", escape(_printable(content)), x=x, y=y, **attributes)


def tooltip(content: str) -> str:
    """The text that a reader sees on pointing at the element around it."""
    return element("title", escape(_printable(content)) or " ")


def marker(series: int, shape: str, x: float, y: float, hint: str) -> str:
    """A data point of a series (colour) in one of MARKERS."""
    content = tooltip(hint)
    style = f"mark s{series % SERIES_COLOURS}"
    if shape == "circle":
        return element("circle", content, class_=style, cx=x, cy=y, r=5)
    if shape == "square":
        return element("rect", content, class_=style, x=x - 4.5, y=y - 4.5, width=9, height=9)
    points = " ".join(f"{_text(x + dx)},{_text(y + dy)}" for dx, dy in _CORNERS[shape])
    return element("polygon", content, class_=style, points=points)


def picture(title: str, width: float, height: float, parts: Sequence[str], description: str = "") -> str:
    """A whole picture; its title is heading and accessible name, ``description`` its content in words."""
    width = max(width, 16 + 1.25 * text_width(title))
    head = element("title", escape(_printable(title))) + element(
        "desc", escape(_printable(description)) or " "
    )
    head += element("style", _STYLE) + element("rect", class_="paper", width=width, height=height)
    heading = label(title, 8, 20, class_="title")
    return element(
        "svg", head + heading + "".join(parts), xmlns="http://www.w3.org/2000/svg", role="img",
        class_="assay-picture", viewBox=f"0 0 {_text(width)} {_text(height)}",
        width=width, height=height,
    )  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """Maps values onto [start, stop] px. ``log`` axes need positive limits."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of ``value`` in px."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)


def linear_axis(largest: float, start: float, stop: float) -> tuple[Axis, list[float]]:
    """An axis from 0 to a round number of at least ``largest``, and its ticks."""
    step = _round_step(largest / 4) if largest > _LEAST_LARGEST else 0.25
    count = max(1, math.ceil(largest / step - 1e-9))
    ticks = [step * i for i in range(count + 1)]
    return Axis(0.0, ticks[-1], start, stop), ticks


def log_axis(values: Sequence[float], start: float, stop: float) -> tuple[Axis, list[float]]:
    """An axis over whole powers of ten around positive ``values``, and those powers as ticks."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))
    return Axis(10.0**low, 10.0**high, start, stop, log=True), [10.0**e for e in range(low, high + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))


def number(value: float) -> str:
    """A tick or data label: short, with thousands separators."""
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return _printable(str(value))


def _printable(text: str) -> str:
    # XML 1.0 forbids control characters and lone surrogates even when escaped.
    return "".join(c if c.isprintable() or c == " " else "\ufffd" for c in text)
