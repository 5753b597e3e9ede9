"""A saved selection scored on a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import print_facts, synthetic_mark
from assay_client.cli.reporters.text import condition, count, percent, quantity, times


def render_evaluation(document: Mapping[str, Any], console: Console) -> None:
    """Where it was selected, where it was scored, and the scores."""
    selected, evaluated = document.get("selected_on") or {}, document["evaluated_on"]
    pairs = [
        ("method", f"{document['method']} (seed {document['seed']})"),
        ("selected on", _profile(selected)),
        ("scored on", _profile(evaluated)),
        *score_facts(document),
        *synthetic_mark(bool(evaluated.get("synthetic"))),
    ]
    match = document.get("match") or {}
    if match:
        shown = ", ".join(f"{kind} {percent(value)}" for kind, value in match.items())
        pairs.append(("launches matched", shown))
    pairs += [("note", str(note)) for note in document.get("notes") or ()]
    print_facts(pairs, console)


def score_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Cost, errors and speedup of a selection or evaluation document."""
    cost = document["cost"]
    return [
        ("cost", f"{cost['quantity']}, {condition(cost['condition'])}"),
        ("true total", quantity(cost["total"], cost["unit"])),
        ("projected", quantity(cost["projected"], cost["unit"])),
        ("error", f"{percent(document['error_percent'])} ({_signed(document['signed_error_percent'])})"),
        ("group error", percent(document["group_error_percent"])),
        ("speedup", times(document["speedup"])),
    ]


def _signed(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+,.2f} %"


def _profile(profile: Mapping[str, Any]) -> str:
    devices = ", ".join(map(str, profile.get("devices") or ())) or "unknown device"
    sources = ", ".join(map(str, profile.get("sources") or ()))
    counts = f"{count(profile.get('launches'))} launches of {count(profile.get('kernels'))} kernels"
    return f"{counts}, {devices}" + (f" ({sources})" if sources else "")
