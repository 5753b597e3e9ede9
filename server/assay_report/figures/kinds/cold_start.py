"""What cold caches cost: the weighted difference of each workload (the measure of the cold-start study)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay_report.figures import parts
from assay_report.figures.figure import Figure, made, without_data
from assay_report.figures.text import hint, labels, shortened
from assay_report.figures.theme import INK, SERIES
from assay_report.model.compared import ColdStartEntry
from assay_report.texts import cell_names

MOST_LINES = 40
LAUNCHES_SHOWN = 400
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
    workloads = labels(parts.largest(largest, largest.__getitem__, MOST_LINES))
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
    encoding = {**place, "x": across, "color": colour, **parts.hinted()}
    layers = [parts.layer({"type": "bar", "opacity": 0.75}, encoding, bars)]
    if marks:
        shape = parts.series(methods, "method", "by the selection of", always=True)["shape"]
        shape["legend"] = {**shape["legend"], "orient": "bottom", "direction": "horizontal"}
        encoding = {**place, "x": across, "shape": shape, **parts.hinted()}
        layers.append(parts.layer(parts.points(color=INK, size=60), encoding, marks))
    more = parts.of_more(len(workloads), len(largest), "differences")
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


def of_comparison(document: Mapping[str, Any]) -> Figure:
    """The document of ``assay cold-start``: how much of the work changes, and each launch's change."""
    synthetic = " (synthetic)" if document.get("synthetic") else ""
    name, title = "cold-start", f"IPC with cold caches against warm ones{synthetic}"
    each = document["per_launch"]
    launches = [
        (launch, difference, kernel)
        for launch, difference, kernel in zip(
            each["launch"], each["ipc_difference_percent"], each["kernel"], strict=True
        )
        if difference is not None
    ]
    if not launches:
        return without_data(name, title, "No launch was matched between the two runs.")
    largest = sorted(launches, key=lambda launch: -abs(launch[1]))[:LAUNCHES_SHOWN]
    points = [
        {"launch": launch, "difference_percent": difference,
         "hint": hint(f"launch {launch}, {kernel}: {difference:+.4g} %")}
        for launch, difference, kernel in sorted(largest)
    ]  # fmt: skip
    shares = [
        {"least": f"{float(least):g} %", "share_percent": share,
         "hint": f"{share or 0:.4g} % of the instructions, which differ by {float(least):g} % or more"}
        for least, share in document["weighted_shares_percent"].items()
    ]  # fmt: skip
    bars = {
        "width": _WIDTH_PX,
        "height": 20 * max(len(shares), 1),
        "data": parts.data(shares),
        "encoding": {
            "y": parts.names_axis("least", [row["least"] for row in shares], title="differ by at least"),
            "x": parts.linear_axis("share_percent", "share of the instructions / %", domain=(0, 100)),
        },
        "layer": [
            parts.layer({"type": "bar", "color": SERIES[0]}, parts.hinted()),
            parts.layer(
                {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
                {"text": {"field": "share_percent", "type": "quantitative", "format": ".3~g"}},
            ),
        ],
    }
    across = parts.linear_axis("launch", "launch", zero=False)
    across["axis"] = {"tickMinStep": 1, "format": "d", "grid": False}
    up = parts.linear_axis("difference_percent", "IPC difference / %")
    marks = parts.layer(
        parts.points(size=50, color=SERIES[1]), {"x": across, "y": up, **parts.hinted()}, points
    )
    scatter = {"width": _WIDTH_PX, "height": 200, **marks}
    few = f" The {len(points)} that differ most of {len(launches):,}." if len(points) < len(launches) else ""
    return made(
        name,
        title,
        f"Above: how much of the work is in launches whose IPC changes by so much; below: each launch.{few}",
        {"vconcat": [bars, scatter], "spacing": 22},
        described="; ".join(row["hint"] for row in shares),
    )


def _of_selections(
    entry: ColdStartEntry, gpu: str, workloads: Mapping[str, str], cells: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for each in entry.selections:
        value = each.weighted_difference_percent
        if value is not None:
            description = f"{entry.workload} on {gpu}, the representatives of {each.method}: {value:.4g} %"
            yield {
                "workload": workloads[entry.workload], "gpu": cells[gpu], "method": shortened(each.method),
                "difference_percent": value, "hint": hint(description),
            }  # fmt: skip
