"""Scores of one selection on other recordings, by kind of weights: the documents of ``assay evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_report.figures.figure import Figure
from assay_report.figures.kinds.errors import Scored, allowed_percent, paired
from assay_report.figures.kinds.relative import TRUE, Ratio, ratios
from assay_report.figures.text import number
from assay_sampling.documents.selection import IntervalEntry

_WEIGHTS = {"launches": "launches", "instructions": "instructions", "light_time": "light time"}


def of_evaluation(document: Mapping[str, Any]) -> Figure:
    """Error and speedup on one recording, a mark for each kind of weights; the interval is that of the
    weights that the document was scored with."""
    line = _named(document)
    points = []
    for kind, scores in document["by_weights"].items():
        error = float(scores["error_percent"])
        used = kind == document["weights"]
        allowed = _allowed(document) if used else None
        hint = (
            f"{line}, weights by {_WEIGHTS[kind]}: error {error:.4g} %, speedup {number(document['speedup'])}"
        )
        if allowed is not None:
            hint += f"; the interval allows {allowed:.3g} %"
        points.append(Scored(line, _WEIGHTS[kind], error, document["speedup"], allowed, hint))
    title = (
        f"Error and speedup of {document['method']}, selected on {_selected_on(document)}{_mark(document)}"
    )
    return paired("evaluation", title, points, "weights by")


def of_speedup(document: Mapping[str, Any]) -> Figure:
    """How many times the cost of the second recording the first one has: as measured, and as projected."""
    first, second = document["first"], document["second"]
    line = f"{_named(first)} over {_named(second)}"
    true = float(document["speedup_true"])
    speedups = [Ratio(line, TRUE, true, f"{line}: measured {true:.4g}")]
    for kind, scores in document["by_weights"].items():
        predicted, weights = float(scores["speedup_predicted"]), f"weights by {_WEIGHTS[kind]}"
        if predicted > 0:
            hint = f"{line}: {weights} predict {predicted:.4g}, measured {true:.4g}"
            speedups.append(Ratio(line, weights, predicted, hint))
    caption = "Cost of the first recording / cost of the second: as measured, and as projected."
    return ratios("speedup", f"Speedup by {document['method']}{_mark(first)}", caption, speedups)


def _allowed(document: Mapping[str, Any]) -> float | None:
    interval, cost = document.get("interval"), document["cost"]
    held = None if interval is None else IntervalEntry.model_validate(interval)
    return allowed_percent(held, cost["total"], cost["projected"])


def _named(document: Mapping[str, Any]) -> str:
    on = document["evaluated_on"]
    return ", ".join(on["devices"]) or ", ".join(on["sources"]) or "the recording"


def _selected_on(document: Mapping[str, Any]) -> str:
    made_on = document["selected_on"]
    return ", ".join(made_on["devices"]) or ", ".join(made_on["sources"]) or "another recording"


def _mark(document: Mapping[str, Any]) -> str:
    return " (synthetic)" if document["evaluated_on"]["synthetic"] else ""
