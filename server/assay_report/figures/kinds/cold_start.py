"""What cold caches cost: the weighted difference of each workload (the measure of the cold-start study)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, shortened
from assay_report.figures.theme import INK
from assay_report.model.compared import ColdStartEntry
from assay_report.texts import cell_names

MOST_LINES = 40
_WIDTH_PX = 460
_LINE_PX, _MARK_PX = 14, 16


def of_entries(entries: Sequence[ColdStartEntry], mark: str) -> Figure | None:
    """Bars of the weighted difference, and marks of what each selection shows of it."""
    if not entries:
        return None
    title = f"Caches flushed between launches{mark}"
    gpus = cell_names(entries)
    known = [
        (entry, gpu, entry.weighted_difference_percent)
        for entry, gpu in zip(entries, gpus, strict=True)
        if entry.weighted_difference_percent is not None
    ]
    if not known:
        return without_data("flushed-caches", title, f"No pair of runs was compared: {entries[0].reason}")
    largest: dict[str, float] = {}
    for entry, _, value in known:
        largest[entry.workload] = max(largest.get(entry.workload, 0.0), value)
    every = list(largest)
    kept = set(sorted(every, key=lambda name: -largest[name])[:MOST_LINES])
    workloads = labels([name for name in every if name in kept])
    cells = labels(list(dict.fromkeys(gpu for _, gpu, _ in known)))
    bars: list[dict[str, Any]] = [
        {"workload": workloads[entry.workload], "gpu": cells[gpu], "difference_percent": value,
         "hint": hint(f"{entry.workload} on {gpu}: {value:.4g} %")}
        for entry, gpu, value in known
        if entry.workload in workloads
    ]  # fmt: skip
    marks = [row for entry, gpu, _ in known if entry.workload in workloads
             for row in _of_selections(entry, gpu, workloads, cells)]  # fmt: skip
    methods = list(dict.fromkeys(row["method"] for row in marks))
    shown, names = list(workloads.values()), list(cells.values())
    place = {"y": parts.names_axis("workload", shown), "yOffset": parts.offset("gpu", names)}
    across = parts.linear_axis("difference_percent", "weighted |flushed - warm| / %")
    colour = parts.series(names, "gpu", "GPU")["color"]
    layers: list[parts.View] = [
        {
            "data": parts.data(bars),
            "mark": {"type": "bar", "opacity": 0.75},
            "encoding": {**place, "x": across, "color": colour, **parts.hinted()},
        }
    ]
    if marks:
        shape = parts.series(methods, "method", "by the selection of", always=True)["shape"]
        layers.append(
            {
                "data": parts.data(marks),
                "mark": parts.points(color=INK, size=60),
                "encoding": {**place, "x": across, "shape": shape, **parts.hinted()},
            }
        )
    more = (
        f" The {len(kept)} of {len(every):,} with the largest differences." if len(kept) < len(every) else ""
    )
    missing = len(entries) - len(known)
    refused = f" {missing:,} of {len(entries):,} were refused; the table says why." if missing else ""
    return made(
        "flushed-caches",
        title,
        "Bars: 100 x the sum of |flushed - warm| over all launches / the sum of warm; marks: the same by the "
        f"representatives of a selection, with their weights.{more}{refused}",
        {
            "width": _WIDTH_PX,
            "height": len(shown) * (_LINE_PX + _MARK_PX * len(names)),
            "layer": layers,
            "resolve": {"scale": {"color": "independent", "shape": "independent"}},
        },
        described="; ".join(row["hint"] for row in bars[:60]),
    )


def _of_selections(
    entry: ColdStartEntry, gpu: str, workloads: Mapping[str, str], cells: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for each in entry.selections:
        value = each.weighted_difference_percent
        if value is not None:
            said = f"{entry.workload} on {gpu}, the representatives of {each.method}: {value:.4g} %"
            yield {
                "workload": workloads[entry.workload], "gpu": cells[gpu], "method": shortened(each.method),
                "difference_percent": value, "hint": hint(said),
            }  # fmt: skip
