"""Draws errors of the scale model's rules, and predictions with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import count, percent
from assay_sampling.notes.registry import note_text

_ERRORS = ("mean_error_percent", "max_error_percent")
_INTERVALS = ("coverage_percent", "half_width_percent")


def render_evaluation(document: Mapping[str, Any], console: Console) -> None:
    """Draw the mean and largest error of each rule at each target, as in the paper's figures."""
    unit = str(document["size_unit"])
    small, large = document["scale_models"]
    constants = sorted(set(document["deviation_growth"].values()))
    print_facts(
        [
            ("workloads", str(len(document["workloads"]))),
            ("scale models", f"{small} and {large} {unit}"),
            (
                "log_quadratic",
                f"p = {', '.join(f'{p:g}' for p in constants)} ({document['deviation_growth_chosen_by']})",
            ),
            *(("not predicted", note_text(line)) for line in document["refused"]),
        ],
        console,
    )
    sizes = list(next(iter(document["rules"].values())))
    columns = [f"{size} {unit}" for size in sizes]
    _pairs("error, % mean / max", columns, document["rules"], _ERRORS).print(console)
    title = f"intervals of level {document['level']:g}: workloads within, % / half width, %"
    _pairs(title, columns, document["intervals"], _INTERVALS).print(console)


def _pairs(
    title: str, columns: Sequence[str], rules: Mapping[str, Mapping[str, Any]], keys: tuple[str, str]
) -> Table:
    """Two numbers of each rule at each size."""
    table = Table(title, ("rule", *columns), right=columns)
    for rule, by_size in rules.items():
        table.add_row(rule, *(" / ".join(_number(cell[key]) for key in keys) for cell in by_size.values()))
    return table


def render_prediction(document: Mapping[str, Any], console: Console) -> None:
    """Draw what the prediction rests on, and one line per target."""
    unit = str(document["size_unit"])
    models = ", ".join(f"{m['size']} {unit}: {m['ipc']:,.2f}" for m in document["scale_models"])
    pairs = [
        ("workload", str(document["workload"])),
        ("rule", str(document["rule"])),
        ("scale models' IPC", models),
        ("correction", f"{document['correction']:.4f} of ideal scaling"),
        ("cliff", "none seen" if document["cliff_at"] is None else f"at {document['cliff_at']} {unit}"),
        ("intervals", f"from {document['calibration']}"),
        *(("note", note_text(note)) for note in document["notes"]),
    ]
    print_facts(pairs, console)
    right = ("IPC", "from", "to", "level")
    table = Table("predictions", (unit, *right, "region"), right=(unit, *right))
    for row in document["predictions"]:
        level = percent(None if row["level"] is None else 100.0 * row["level"], 0)
        where = row["region"] or ""
        table.add_row(
            str(row["size"]),
            _number(row["ipc"]),
            _number(row["lower"]),
            _number(row["upper"]),
            f"{level}, extrapolated" if row["extrapolated"] else level,
            where,
        )
    table.print(console)
    for row in document["predictions"]:
        if row["reason"]:
            console.print(f"{row['size']} {unit}: {note_text(row['reason'])}", soft_wrap=True)


def render_miss_rates(document: Mapping[str, Any], console: Console) -> None:
    """Draw the curve, and what it describes."""
    sampled = document["sampling_rate"]
    print_facts(
        [
            ("accesses", count(document["accesses"])),
            ("distinct", f"{document['first_touches']:,.0f}"),
            ("cache", f"lines of {document['line_bytes']} bytes, {document['sectors_per_line']} sectors"),
            ("resident blocks", count(document["resident_blocks"])),
            ("lines looked at", "all" if sampled == 1 else f"{100 * sampled:.3g} %, seed {document['seed']}"),
        ],
        console,
    )
    table = Table("miss-rate curve", ("bytes", "misses", "mpki"), right=("bytes", "misses", "mpki"))
    for row in document["curve"]:
        table.add_row(count(row["capacity_bytes"]), f"{row['misses']:,.0f}", f"{row['mpki']:,.4f}")
    table.print(console)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.2f}"
