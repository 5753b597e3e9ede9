"""IPC by the size of the GPU: as known, as predicted, with intervals (scale model, Figs. 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.kinds.errors import Scored, paired
from assay_report.figures.text import hint
from assay_report.figures.theme import INK, SERIES

_WIDTH_PX, _HEIGHT_PX = 520, 320


def of_prediction(
    document: Mapping[str, Any],
    known: Mapping[int, float],
    other_rules: Mapping[str, Mapping[int, float]] | None = None,
) -> Figure:
    """The curve of ``assay scale-model predict``.

    Args:
        document: what the verb prints.
        known: IPC by size, as far as the table has it.
        other_rules: the predictions of other rules, IPC by size.
    """
    name, title = "scaling", f"IPC by size, {document['workload']}: prediction and interval"
    predictions = [each for each in document["predictions"] if each["ipc"] is not None]
    if not predictions:
        return without_data(name, title, "There is no prediction: the document says why for each size.")
    unit = _unit(document["size_unit"])
    rule = document["rule"]
    models = {each["size"]: each["ipc"] for each in document["scale_models"]}
    largest = max(models)
    curves = {rule: {largest: models[largest], **{each["size"]: each["ipc"] for each in predictions}}}
    curves |= {
        key: {largest: models[largest], **ipc_by_size} for key, ipc_by_size in (other_rules or {}).items()
    }
    lines = [
        {"size": size, "ipc": ipc, "rule": key, "hint": hint(f"{key}: {ipc:,.4g} at {size} {unit}")}
        for key, curve in curves.items()
        for size, ipc in sorted(curve.items())
    ]
    values = [row["ipc"] for row in lines] + list(known.values()) + list(models.values())
    bounds = [each[end] for each in predictions for end in ("lower", "upper") if each[end] is not None]
    sizes = sorted({*models, *known, *(row["size"] for row in lines)})
    across = parts.log_axis("size", unit, (sizes[0] * 0.9, sizes[-1] * 1.1))
    across["axis"] = {"values": sizes, "format": "d", "labelOverlap": True}
    up = parts.log_axis("ipc", "IPC (instructions / cycle)", parts.log_domain([*values, *bounds]))
    band = [
        {"size": each["size"], "lower": each["lower"], "upper": each["upper"],
         "hint": f"{100 * each['level']:g} % interval at {each['size']} {unit}: "
                 f"{each['lower']:,.4g} to {each['upper']:,.4g}"}
        for each in predictions
        if each["lower"] is not None and each["upper"] is not None
    ]  # fmt: skip
    model_dots = [
        {"size": s, "ipc": i, "hint": f"scale model: {i:,.4g} at {s} {unit}"} for s, i in models.items()
    ]
    known_dots = [{"size": s, "ipc": i, "hint": f"known: {i:,.4g} at {s} {unit}"}
                  for s, i in known.items() if s not in models]  # fmt: skip
    ends = {"x": across, "y": {**up, "field": "lower"}, "y2": {"field": "upper"}, **parts.hinted()}
    rules = parts.lines(list(curves), "rule", "predicted by", always=True)
    layers = [
        parts.layer({"type": "rule", "strokeWidth": 7, "opacity": 0.35, "color": SERIES[0]}, ends, band),
        parts.layer({"type": "line", "strokeWidth": 1.75}, {"x": across, "y": up, **rules}, lines),
        _dots(model_dots, across, up, color=INK, shape="circle"),
        _dots(known_dots, across, up, color=SERIES[1], shape="diamond"),
    ]
    level = f"{100 * document['level']:g} %"
    caption = (
        f"Lines: predictions from the scale models of {' and '.join(map(str, sorted(models)))} {unit}; "
        f"bars: {level} intervals of {rule}; "
        "dots: the scale models; diamonds: what the table knows. Both axes are logarithmic."
    )
    if document.get("cliff_at"):
        caption += f" The misses fall off a cliff at {document['cliff_at']} {unit}."
    view = {"width": _WIDTH_PX, "height": _HEIGHT_PX, "layer": layers}
    marks = [*model_dots, *known_dots, *band]
    return made(name, title, caption, view, described="; ".join(row["hint"] for row in marks))


def _dots(rows: list[dict[str, Any]], across: parts.View, up: parts.View, **look: str) -> parts.View:
    return parts.layer(parts.points(size=90, **look), {"x": across, "y": up, **parts.hinted()}, rows)


def of_evaluation(document: Mapping[str, Any]) -> Figure:
    """The errors of ``assay scale-model evaluate``: every workload by every rule, at the largest size."""
    scores: list[Scored] = []
    size = max((int(each) for by_rule in document["rules"].values() for each in by_rule), default=0)
    for workload, by_rule in document["workloads"].items():
        for rule, errors in by_rule.items():
            error = errors.get(str(size), errors.get(size))
            outcome = "no prediction" if error is None else f"error {error:.4g} %"
            scores.append(Scored(workload, rule, error, None, None, f"{workload}, {rule}: {outcome}"))
    title = f"Error of predictions for {size} {_unit(document['size_unit'])} by workload and rule"
    return paired("scaling-errors", title, scores, "rule", with_speedup=False)


def of_miss_rates(document: Mapping[str, Any]) -> Figure:
    """The curve of ``assay scale-model miss-rates``."""
    name, title = "miss-rates", "Misses by the size of the last-level cache"
    rows = [
        {
            **each,
            "hint": f"{each['capacity_bytes']:,} bytes: {each['mpki']:.4g} misses per 1,000 instructions",
        }
        for each in document["curve"]
        if each["mpki"] is not None
    ]
    if not rows:
        return without_data(name, title, "No capacity was given.")
    sizes = sorted(row["capacity_bytes"] for row in rows)
    across = parts.log_axis("capacity_bytes", "capacity / bytes", (sizes[0] / 1.2, sizes[-1] * 1.2))
    across["axis"] = {"values": sizes, "format": "~s", "labelOverlap": True}
    place = {"x": across, "y": parts.linear_axis("mpki", "misses / 1,000 thread instructions")}
    view = {
        "width": _WIDTH_PX,
        "height": 240,
        "data": parts.data(rows),
        "layer": [
            parts.layer({"type": "line", "color": SERIES[0]}, place),
            parts.layer(parts.points(color=SERIES[0]), {**place, **parts.hinted()}),
        ],
    }
    caption = "The cache is fully associative and LRU, and stays warm from launch to launch."
    return made(name, title, caption, view, described="; ".join(row["hint"] for row in rows))


def _unit(size_unit: str) -> str:
    return "SMs" if size_unit == "sm" else f"{size_unit}s"
