"""A selection: its scores, its groups with the dearest first, and what only its method reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.evaluation import score_facts
from assay_client.cli.reporters.tables import facts, synthetic_mark, table
from assay_client.cli.reporters.text import clipped, count, percent, quantity, shape, times

_GROUPS_SHOWN = 20


def render_selection(
    document: Mapping[str, Any],
    projected_by_group: Sequence[float],
    written_to: Path | None,
    console: Console,
) -> None:
    """Draw a selection's document; ``projected_by_group`` orders the groups, in the unit of the cost."""
    profile = document["profile"]
    chosen = sum(len(group["representatives"]) for group in document["groups"])
    parameters = ", ".join(f"{name}={_value(v)}" for name, v in document["parameters"].items())
    pairs = [
        ("method", f"{document['method']} (seed {document['seed']}{', ' if parameters else ''}{parameters})"),
        (
            "profile",
            f"{count(profile['launches'])} launches of {count(profile['kernels'])} kernels on "
            f"{', '.join(profile['devices']) or 'an unnamed device'}",
        ),
        ("selected", f"{count(chosen)} launches in {count(len(document['groups']))} groups"),
        *score_facts(document),
        *synthetic_mark(bool(profile["synthetic"])),
        *[("note", clipped(str(note), 300)) for note in profile.get("notes", ())],
    ]
    console.print(facts(pairs))
    _render_groups(document, projected_by_group, console)
    _render_sweep(document, console)
    if document.get("two_level"):
        console.print("\nTwo levels")
        console.print(facts(_nested(document["two_level"])))
    if written_to is not None:
        console.print(f"\nwritten to {written_to}")


def _render_groups(document: Mapping[str, Any], projected: Sequence[float], console: Console) -> None:
    groups = document["groups"]
    order = sorted(range(len(groups)), key=lambda index: -projected[index])
    unit = document["cost"]["unit"]
    drawn = table(
        "",
        ["group", "launches", "projected", "instructions", "sim id", "grid", "block", "weight", "kernel"],
        right=["group", "launches", "projected", "instructions", "sim id", "weight"],
    )
    for index in order[:_GROUPS_SHOWN]:
        group = groups[index]
        share = group["instruction_share"]
        first = group["representatives"][0] if group["representatives"] else None
        more = len(group["representatives"]) - 1
        drawn.add_row(
            str(group["id"]),
            count(group["launches"]),
            quantity(projected[index], unit).split(" (")[0],
            "n/a" if share is None else percent(100 * share),
            "" if first is None else f"{first['sim_id']}{f' +{more}' if more else ''}",
            "" if first is None else shape(first["grid"]),
            "" if first is None else shape(first["block"]),
            "" if first is None else f"{first['weight']:,.6g}",
            "" if first is None else clipped(first["kernel"], 40),
        )
    console.print(drawn)
    if len(groups) > _GROUPS_SHOWN:
        console.print(f"{len(groups) - _GROUPS_SHOWN} cheaper groups are not shown; --json has them all")


def _render_sweep(document: Mapping[str, Any], console: Console) -> None:
    sweep = document.get("sweep")
    if not sweep:
        return
    drawn = table(
        "Sweep over the number of groups",
        ["k", "error", "speedup", "inertia"],
        right=["k", "error", "speedup", "inertia"],
    )
    for entry in sweep:
        inertia = entry["inertia"]
        drawn.add_row(
            str(entry["k"]),
            percent(entry["error_percent"]),
            times(entry["speedup"]),
            "n/a" if inertia is None else f"{inertia:,.4g}",
        )
    console.print(drawn)
    if document.get("pca_components") is not None:
        console.print(f"{document['pca_components']} principal components")


def _nested(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in document.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            pairs += _nested(value, f"{label}.")
        else:
            pairs.append((label, _value(value)))
    return pairs


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, list | tuple):
        return clipped(", ".join(map(_value, value)), 300)
    return clipped(str(value), 300)
