"""Error against speedup, with the Pareto front (the trade-off of PKA's Table 4 and Sieve's Fig. 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, number
from assay_report.figures.theme import QUIET, WIDTH_PX
from assay_report.model.scores import Row
from assay_report.texts import method_names

# Points of a page's figure; above it, only the means are drawn.
MOST_POINTS = 400
_HEIGHT_PX = 300


@dataclass(frozen=True)
class Traded:
    """A point: its series, and what it trades. ``large`` points take part in the front."""

    series: str
    error_percent: float
    speedup: float
    large: bool
    hint: str


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of (error, speedup) that no other point beats in both, by growing speedup."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][1], points[i][0]))
    kept: list[int] = []
    least = math.inf
    for i in order:
        if points[i][0] < least:
            kept.append(i)
            least = points[i][0]
    return kept[::-1]


def of_rows(rows: Sequence[Row], mark: str) -> Figure:
    """A small point per score, and a large one per method: mean error and geometric mean speedup."""
    found: list[Traded] = []
    by_method: dict[str, list[Row]] = {}
    for row, method in zip(rows, method_names(rows), strict=True):
        if _drawable(row.error_percent, row.speedup):
            by_method.setdefault(method, []).append(row)
    for method, those in by_method.items():
        errors = [row.error_percent or 0.0 for row in those]
        speedups = [row.speedup or 1.0 for row in those]
        mean = math.fsum(errors) / len(errors)
        middle = math.exp(math.fsum(map(math.log, speedups)) / len(speedups))
        said = f"{method}, {len(those):,} scores: mean error {mean:.4g} %, "
        said += f"geometric mean speedup {number(middle)}"
        found.append(Traded(method, mean, middle, True, said))
        if sum(map(len, by_method.values())) <= MOST_POINTS:
            found += [
                Traded(method, error, speedup, False,
                       f"{row.workload} on {row.device}, {method}: error {error:.4g} %, "
                       f"speedup {number(speedup)}")
                for row, error, speedup in zip(those, errors, speedups, strict=True)
            ]  # fmt: skip
    caption = (
        "Large marks: a method's arithmetic mean error and geometric mean speedup over all its scores; small "
        "ones: single scores. The dashed line joins the methods that no other beats in both means."
    )
    return traded("error-against-speedup", f"Error against speedup{mark}", caption, found)


def of_comparison(document: Mapping[str, Any]) -> Figure:
    """The document of ``assay compare``: fair error against fair speedup of each method."""
    found = []
    for entry in document["methods"]:
        fair = entry.get("fair") or {}
        error, speedup = fair.get("error_percent", math.nan), fair.get("speedup") or 0.0
        if entry["status"] == "ok" and _drawable(error, speedup):
            said = f"{entry['method']}: fair error {error:.4g} %, fair speedup {number(speedup)}"
            said += f" ({fair.get('basis')}, {fair.get('trials'):,} tries)"
            found.append(Traded(entry["method"], error, speedup, True, said))
    synthetic = " (synthetic)" if document["profile"].get("synthetic") else ""
    caption = (
        "Fair error: root mean square over tries that did not choose the launches that they are scored on. "
        "The dashed line joins the methods that no other beats in both."
    )
    return traded("error-against-speedup", f"Error against speedup by method{synthetic}", caption, found)


def traded(name: str, title: str, caption: str, found: Sequence[Traded]) -> Figure:
    """Points of error (logarithmic, up) over speedup (logarithmic, across), and the front of large ones."""
    if not found:
        return without_data(name, title, "No method has both an error and a speedup.")
    errors = [each.error_percent for each in found]
    up = parts.log_domain(errors, parts.LEAST_ERROR_PERCENT)
    if min(errors) < up[0]:  # an error of nothing has no place on a log axis
        up = (parts.LEAST_ERROR_PERCENT, up[1])
    across = parts.log_domain([each.speedup for each in found])
    named = labels(list(dict.fromkeys(each.series for each in found)))
    rows: list[dict[str, Any]] = [
        {"method": named[each.series], "error_percent": each.error_percent,
         "error_drawn": max(each.error_percent, up[0]), "speedup": each.speedup, "large": each.large,
         "hint": hint(each.hint)}
        for each in found
    ]  # fmt: skip
    large = [row for row in rows if row["large"]]
    best = [large[i] for i in front([(row["error_percent"], row["speedup"]) for row in large])]
    place = {
        "x": parts.log_axis("speedup", "speedup (total / representatives' cost)", across),
        "y": parts.log_axis("error_drawn", "error / %", up),
    }
    series = parts.series(list(named), "method", "method", columns=6)
    line = {
        "data": parts.data({key: row[key] for key in ("speedup", "error_drawn")} for row in best),
        "mark": {"type": "line", "color": QUIET, "strokeDash": [5, 4], "strokeWidth": 1.5},
        "encoding": place,
    }
    small_ones = _marks([row for row in rows if not row["large"]], place, series, size=36, opacity=0.75)
    large_ones = _marks(large, place, series, size=150, opacity=1)
    low = f" Errors below {up[0]:g} % are drawn at {up[0]:g} %." if min(errors) < up[0] else ""
    return made(
        name,
        title,
        f"{caption} Below and to the right is better.{low}",
        {"width": WIDTH_PX - 40, "height": _HEIGHT_PX, "layer": [line, small_ones, large_ones]},
        described="; ".join(row["hint"] for row in large),
    )


def _marks(rows: Sequence[dict[str, Any]], place: parts.View, series: parts.View, **look: Any) -> parts.View:
    return {
        "data": parts.data(rows),
        "mark": parts.points(**look),
        "encoding": {**place, **series, **parts.hinted()},
    }


def _drawable(error: Any, speedup: Any) -> bool:
    return error is not None and speedup is not None and math.isfinite(error) and 0 < speedup < math.inf
