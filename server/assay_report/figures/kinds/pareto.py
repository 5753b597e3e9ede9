"""Error against speedup, with the Pareto front (the trade-off of PKA's Table 4 and Sieve's Fig. 10)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, number
from assay_report.figures.theme import QUIET, WIDTH_PX
from assay_report.model.scores import Row
from assay_report.texts import method_names
from assay_sampling.notes.base import part_of

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
    indices: list[int] = []
    least = math.inf
    for i in order:
        if points[i][0] < least:
            indices.append(i)
            least = points[i][0]
    return indices[::-1]


def of_rows(rows: Sequence[Row], mark: str) -> Figure:
    """A small point per score, and a large one per method: mean error and geometric mean speedup."""
    points: list[Traded] = []
    by_method: dict[str, list[Row]] = {}
    for row, method in zip(rows, method_names(rows), strict=True):
        if _drawable(row.error_percent, row.speedup):
            by_method.setdefault(method, []).append(row)
    for method, those in by_method.items():
        errors = [row.error_percent or 0.0 for row in those]
        speedups = [row.speedup or 1.0 for row in those]
        mean, middle = statistics.fmean(errors), statistics.geometric_mean(speedups)
        description = f"{method}, {len(those):,} scores: mean error {mean:.4g} %, "
        description += f"geometric mean speedup {number(middle)}"
        points.append(Traded(method, mean, middle, True, description))
        if sum(map(len, by_method.values())) <= MOST_POINTS:
            points += [
                Traded(method, error, speedup, False,
                       f"{row.workload} on {row.device}, {method}: error {error:.4g} %, "
                       f"speedup {number(speedup)}")
                for row, error, speedup in zip(those, errors, speedups, strict=True)
            ]  # fmt: skip
    caption = (
        "Large marks: a method's arithmetic mean error and geometric mean speedup over all its scores; small "
        "ones: single scores. The dashed line joins the methods that no other beats in both means."
    )
    return traded("error-against-speedup", f"Error against speedup{mark}", caption, points)


def of_comparison(document: Mapping[str, Any]) -> Figure:
    """The document of ``assay compare``: fair error against fair speedup of each method; where other GPUs
    were scored, the errors there, by which stars are given."""
    if document.get("at_speedup") is not None:
        return _on_targets(document)
    points = []
    for entry in document["methods"]:
        fair = entry.get("fair") or {}
        error, speedup = fair.get("error_percent", math.nan), fair.get("speedup") or 0.0
        if entry["status"] == "ok" and _drawable(error, speedup):
            description = f"{entry['method']}: fair error {error:.4g} %, fair speedup {number(speedup)}"
            description += f" ({fair.get('basis')}, {fair.get('trials'):,} tries)"
            points.append(Traded(entry["method"], error, speedup, True, description))
    synthetic = " (synthetic)" if document["profile"].get("synthetic") else ""
    caption = (
        "Fair error: root mean square over tries that did not choose the launches that they are scored on. "
        "The dashed line joins the methods that no other beats in both."
    )
    return traded("error-against-speedup", f"Error against speedup by method{synthetic}", caption, points)


def _on_targets(document: Mapping[str, Any]) -> Figure:
    """The worst error of the total against the worst by kernel and grid, of each method and weights."""
    there, parted = document["at_speedup"], part_of(document.get("unit", "launch"))
    rows: list[dict[str, Any]] = []
    for row in there["rows"]:
        total, part = row["worst_error_percent"], row["worst_part_error_percent"]
        if row["status"] != "ok" or not (_drawable(total, 1.0) and _drawable(part, 1.0)):
            continue
        description = (
            f"{row['method']} by {row['weights'].replace('_', ' ')}: at most {total:.4g} % off in total "
        )
        description += f"and {part:.4g} % by {parted}, speedup {number(row['speedup'])}"
        rows.append({
            "method": row["method"], "weights": row["weights"].replace("_", " "),
            "error_percent": total, "part_error_percent": part, "star": row["star"], "hint": description,
        })  # fmt: skip
    synthetic = " (synthetic)" if document["profile"].get("synthetic") else ""
    name, title = "errors-on-other-gpus", f"Errors on other GPUs by method{synthetic}"
    if not rows:
        return without_data(name, title, "No method has both errors on the other GPUs.")
    named = labels(list(dict.fromkeys(row["method"] for row in rows)))
    axes = {}
    for key in ("error_percent", "part_error_percent"):
        axes[key] = parts.error_domain([row[key] for row in rows])
        for row in rows:
            row[f"{key}_drawn"] = max(row[key], axes[key][0])
    for row in rows:
        row["method"], row["hint"] = named[row["method"]], hint(row["hint"])
    place = {
        "x": parts.log_axis(
            "part_error_percent_drawn", f"worst error by {parted} / %", axes["part_error_percent"]
        ),
        "y": parts.log_axis("error_percent_drawn", "worst error of the total / %", axes["error_percent"]),
    }
    keys = ("error_percent_drawn", "part_error_percent_drawn")
    starred = sorted((row for row in rows if row["star"]), key=lambda row: row["part_error_percent"])
    caption = (
        f"At a speedup of {there['speedup']:,.4g}; worst of {len(there['targets']):,} other GPUs. Large "
        "marks and the dashed line: stars, which no other beats in both. Below and to the left is better."
    )
    others = [row for row in rows if not row["star"]]
    line = [{key: row[key] for key in keys} for row in starred]
    view = _scatter(line, others, starred, place, list(named), small_size=50)
    return made(name, title, caption, view, described="; ".join(row["hint"] for row in rows))


def traded(name: str, title: str, caption: str, points: Sequence[Traded]) -> Figure:
    """Points of error (logarithmic, up) over speedup (logarithmic, across), and the front of large ones."""
    if not points:
        return without_data(name, title, "No method has both an error and a speedup.")
    errors = [each.error_percent for each in points]
    up = parts.error_domain(errors)
    across = parts.log_domain([each.speedup for each in points])
    named = labels(list(dict.fromkeys(each.series for each in points)))
    rows: list[dict[str, Any]] = [
        {"method": named[each.series], "error_percent": each.error_percent,
         "error_drawn": max(each.error_percent, up[0]), "speedup": each.speedup, "large": each.large,
         "hint": hint(each.hint)}
        for each in points
    ]  # fmt: skip
    large = [row for row in rows if row["large"]]
    best = [large[i] for i in front([(row["error_percent"], row["speedup"]) for row in large])]
    place = {
        "x": parts.log_axis("speedup", "speedup (total / representatives' cost)", across),
        "y": parts.log_axis("error_drawn", "error / %", up),
    }
    line = [{key: row[key] for key in ("speedup", "error_drawn")} for row in best]
    small = [row for row in rows if not row["large"]]
    low = f" Errors below {up[0]:g} % are drawn at {up[0]:g} %." if min(errors) < up[0] else ""
    return made(
        name,
        title,
        f"{caption} Below and to the right is better.{low}",
        _scatter(line, small, large, place, list(named), small_size=36),
        described="; ".join(row["hint"] for row in large),
    )


def _scatter(
    line: list[dict[str, Any]], small: list[dict[str, Any]], large: list[dict[str, Any]], place: parts.View,
    methods: list[str], *, small_size: int,
) -> parts.View:  # fmt: skip
    """A dashed line, and small and large marks by method."""
    look = {"type": "line", "color": QUIET, "strokeDash": [5, 4], "strokeWidth": 1.5}
    series = parts.series(methods, "method", "method", columns=6)
    marks = {**place, **series, **parts.hinted()}
    layers = [
        parts.layer(look, place, line),
        parts.layer(parts.points(size=small_size, opacity=0.75), marks, small),
        parts.layer(parts.points(size=150, opacity=1), marks, large),
    ]
    return {"width": WIDTH_PX - 40, "height": _HEIGHT_PX, "layer": layers}


def _drawable(error: Any, speedup: Any) -> bool:
    return error is not None and speedup is not None and math.isfinite(error) and 0 < speedup < math.inf
