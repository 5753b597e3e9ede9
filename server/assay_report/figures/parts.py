"""Parts of Vega-Lite documents that several figures use: axes, series, data, layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay_report.figures.text import labels
from assay_report.figures.theme import DASHES, MARKS, MORE, PAPER, QUIET, SERIES

View = dict[str, Any]
_COLOURS = (*SERIES, *MORE)
# Differences below this share of a percent are rounding, so a log axis does not reach further down.
LEAST_ERROR_PERCENT = 0.01
# Marks at the end of an axis look cut.
_KEPT_OFF = 1.08


def data(rows: Iterable[Mapping[str, Any]]) -> View:
    """Rows as data inside the document."""
    return {"values": [dict(row) for row in rows]}


def layer(
    mark: str | View, encoding: View, rows: Iterable[Mapping[str, Any]] | None = None, **more: Any
) -> View:
    """A mark with its encodings; ``rows``: its own data, None where the view around it has them."""
    own = {} if rows is None else {"data": data(rows)}
    return {**own, "mark": mark, "encoding": encoding, **more}


def nominal(field: str) -> View:
    """A field whose values are names."""
    return {"field": field, "type": "nominal"}


def largest(names: Iterable[str], size: Callable[[str], float], most: int) -> list[str]:
    """The ``most`` names of the largest size, in the order of ``names``."""
    every = list(dict.fromkeys(names))
    chosen = set(sorted(every, key=lambda name: -size(name))[:most])
    return [name for name in every if name in chosen]


def of_more(shown: int, every: int, what: str) -> str:
    """The sentence that says that only the largest are shown; nothing where all are."""
    return f" The {shown} of {every:,} with the largest {what}." if shown < every else ""


def series(
    names: Sequence[str], field: str, title: str | None = None, *, columns: int = 6, always: bool = False
) -> View:
    """Encodings of a series by colour and mark, with one legend; ``names`` in the order of the legend.

    A single series has a legend only with ``always``.
    """
    shown, legend = _legend(names, title, columns, always=always)
    return {"color": _scaled(field, shown, _COLOURS, legend), "shape": _scaled(field, shown, MARKS, legend)}


def lines(
    names: Sequence[str], field: str, title: str | None = None, *, columns: int = 6, always: bool = False
) -> View:
    """Encodings of lines by colour and dash, with one legend."""
    shown, legend = _legend(names, title, columns, always=always)
    dash = _scaled(field, shown, DASHES, legend)
    return {"color": _scaled(field, shown, _COLOURS, legend), "strokeDash": dash}


def _legend(
    names: Sequence[str], title: str | None, columns: int, *, always: bool
) -> tuple[list[str], View | None]:
    shown = list(labels(names).values())
    legend = {"title": title, "columns": fitting_columns(shown, columns)}
    return shown, legend if always or len(shown) > 1 else None


def _scaled(field: str, shown: Sequence[str], values: Sequence[Any], legend: View | None) -> View:
    repeated = [values[(i + i // len(values)) % len(values)] for i in range(len(shown))]
    scale = {"domain": list(shown), "range": repeated}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def fitting_columns(shown: Sequence[str], most: int, width_px: float = 640) -> int:
    """As many columns of a legend as fit ``width_px``."""
    longest = max(map(len, shown), default=1)
    return max(1, min(most, int(width_px // (6.2 * longest + 34))))


def hinted() -> View:
    """Encodings of the field ``hint``: a tooltip, and in pictures a title of the mark."""
    return {"tooltip": nominal("hint"), "description": nominal("hint")}


def log_domain(values: Iterable[float], least: float = 0.0) -> tuple[float, float]:
    """Ends 1, 2 or 5 times a power of ten around positive ``values``, which keep off them where they can; the
    lower is at least ``least``."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    low = max(min(positive, default=1.0), least)
    high = max(max(positive, default=10.0), low)
    return max(_round(low / _KEPT_OFF, down=True), least), _round(high * _KEPT_OFF, down=False)


def error_domain(errors: Sequence[float], more: Iterable[float] = ()) -> tuple[float, float]:
    """The ends of a log axis of errors and ``more`` values, with room for an error of nothing at its end."""
    low, high = log_domain([*errors, *more], LEAST_ERROR_PERCENT)
    return (LEAST_ERROR_PERCENT if any(error < low for error in errors) else low), high


def _round(value: float, *, down: bool) -> float:
    power = math.floor(math.log10(value))
    near = [float(f"{digit}e{power + more}") for more in (0, 1) for digit in (1, 2, 5)]
    if down:
        return max(each for each in near if each <= value * (1 + 1e-9))
    return min(each for each in near if each >= value * (1 - 1e-9))


def log_axis(field: str, title: str, domain: tuple[float, float]) -> View:
    """A positional encoding with a logarithmic scale and ticks at round numbers."""
    scale = {"type": "log", "domain": list(domain), "clamp": True, "nice": False}
    axis = {"values": log_ticks(domain), "format": ",~g" if domain[1] < 1e5 else "~s"}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis, "title": title}


def ratio_axis(field: str, title: str, values: Iterable[float]) -> View:
    """A logarithmic positional encoding close around ``values``, which may differ by little."""
    positive = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    room = max((max(positive) / min(positive)) ** 0.04, 1.02)
    low, high = min(positive) / room, max(positive) * room
    if high > 8 * low:
        return log_axis(field, title, log_domain(positive))
    scale = {"type": "log", "domain": [low, high], "nice": False}
    step = _round((high - low) / 7, down=False)
    ticks = [round(i * step, 9) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return {"field": field, "type": "quantitative", "scale": scale, "title": title,
            "axis": {"values": ticks, "format": ",~g"}}  # fmt: skip


def log_ticks(domain: tuple[float, float]) -> list[float]:
    """At most nine ticks: 1, 2 and 5 times powers of ten in a short domain, else powers of ten."""
    low, high = domain
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in fine if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    if len(inside) <= 7:
        return inside
    decades = [tick for tick in inside if abs(math.log10(tick) - round(math.log10(tick))) < 1e-9]
    return decades[:: -(-len(decades) // 8)]


def linear_axis(
    field: str, title: str, *, domain: Sequence[float] | None = None, zero: bool = True, ticks: int = 6
) -> View:
    """A positional encoding with a linear scale."""
    scale: View = {"zero": zero, "nice": domain is None}
    if domain is not None:
        scale["domain"] = list(domain)
    axis = {"tickCount": ticks}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis, "title": title}


def names_axis(field: str, shown: Sequence[str], *, title: str | None = None, grid: bool = False) -> View:
    """A positional encoding of names in the order of ``shown``."""
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(shown), "paddingInner": 0.25, "paddingOuter": 0.15},
        "axis": {"title": title, "grid": grid, "domain": False, "ticks": False, "labelLimit": 340},
    }


def offset(field: str, shown: Sequence[str]) -> View:
    """An encoding that sets the marks of a name side by side."""
    return {"field": field, "type": "nominal", "scale": {"domain": list(shown), "padding": 0.2}}


def points(**more: Any) -> View:
    """The mark of data points: filled, with a rim that keeps neighbours apart."""
    look = {"type": "point", "filled": True, "size": 80, "opacity": 1, "stroke": PAPER, "strokeWidth": 1}
    return look | more


def rule(**more: Any) -> View:
    """A quiet line behind the data."""
    return {"type": "rule", "color": QUIET, "strokeWidth": 1} | more
