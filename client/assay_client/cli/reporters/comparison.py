"""Selection methods side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters import on_targets
from assay_client.cli.reporters.report import render_table
from assay_client.cli.reporters.tables import Table, origin_mark, print_facts
from assay_client.cli.reporters.text import count, profile_text, quantity, words_of
from assay_client.cli.reporters.verdict import render_verdict
from assay_report.tables.decomposition import Decomposed, decomposition_table
from assay_report.texts import percent, ratio
from assay_sampling.documents.common import ErrorDecomposition
from assay_sampling.notes.registry import note_text

_NONE = "-"
_NUMBERS = (
    "groups", "launches to simulate", "fair error %", "fair speedup", "held %", "error %", "group error %",
    "expected error %", "speedup", "by instructions", "by launches",
)  # fmt: skip
_BY_OPERATION = {"launches to simulate": "operations to simulate", "by launches": "by operations"}
_SPARE = ("by launches", "by operations", "by instructions", "expected error %", "speedup", "group error %")
_BASES = {
    "draws": "{trials} draws",
    "split_halves": "{trials} halves",
    "as_scored": "fixed rule",
    "in_sample": "in sample",
    "by_construction": "0 by construction",
}


def render_comparison(document: Mapping[str, Any], console: Console) -> None:
    """Draw one line for each method that applies; below, those that do not, with the reason."""
    render_verdict(document, console)
    profile, entries = document["profile"], document["methods"]
    scored = [entry for entry in entries if entry["status"] == "ok"]
    pairs = [
        ("profile", profile_text(profile)),
        *_unit_facts(document),
        ("seed", str(document["seed"])),
        *[(f"cost {name}", text) for name, text in _costs(scored).items()],
        *origin_mark(profile),
        *[("warning", f"{e['method']}: {note_text(note)}") for e in scored for note in e["warnings"]],
        *[("note", note_text(note)) for note in profile.get("notes", ())],
    ]
    print_facts(pairs, console)
    methods_table(document).print(console)
    console.print(f"fair scores: {'; '.join(_bases(scored))}", soft_wrap=True)
    _render_parts(scored, console)
    on_targets.render(document, console)
    others = [entry for entry in entries if entry["status"] != "ok"]
    if others:
        console.print("\nNot applicable")
        print_facts([(entry["method"], _reason(entry)) for entry in others], console)
    starless = [(entry["method"], note_text(entry["no_star"])) for entry in scored if entry["no_star"]]
    if starless:
        console.print("\nNo star")
        print_facts(starless, console)
    recommendation = document["recommendation"]
    for note in recommendation.get("notes", ()):
        console.print(f"\n{note_text(note)}", soft_wrap=True)
    console.print(f"\nrecommended: {note_text(recommendation['reason'])}", soft_wrap=True)
    if recommendation.get("parameters"):
        options = " ".join(f"-p {name}={value}" for name, value in recommendation["parameters"].items())
        console.print(f"  assay select {recommendation['method']} FILE {options}", soft_wrap=True)


def methods_table(document: Mapping[str, Any]) -> Table:
    """A line for each method that applies."""
    scored = [entry for entry in document["methods"] if entry["status"] == "ok"]
    # A cost that all share is above the table already.
    several = len({entry["cost"]["quantity"] for entry in scored}) > 1
    heads = _BY_OPERATION if document.get("unit") == "operation" else {}
    numbers = [heads.get(name, name) for name in _NUMBERS]
    there = document.get("at_speedup")
    drawn = Table(
        "Methods (*: no other has less fair error and more fair speedup)"
        if there is None
        else "Methods on this recording (*: by the other GPUs, below)",
        ["method", "", *numbers, *(["cost"] if several else []), "interval holds"],
        right=numbers,
        spare=[name for name in _SPARE if name in numbers],
    )
    for entry in scored:
        drawn.add_row(*_row(entry, with_cost=several))
    return drawn


def tables_for_papers(document: Mapping[str, Any]) -> dict[str, Table]:
    """By name: every method here, and on other GPUs at one speedup where there are some."""
    there = document.get("at_speedup")
    tables = {"methods": methods_table(document)}
    if there is not None:
        tables["other_gpus"] = on_targets.at_speedup_table(there, words_of(document))
    return tables


def _unit_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """By operation, how many there are, and how those of another recording match."""
    if document.get("unit") != "operation":
        return []
    return [("unit", f"{count(document['operations'])} operations")]


def _render_parts(scored: list[Mapping[str, Any]], console: Console) -> None:
    """Draw where each error comes from, where it is more than the representatives."""
    parts = [
        Decomposed(
            entry["method"],
            entry["signed_error_percent"],
            ErrorDecomposition.model_validate(entry["decomposition"]),
        )
        for entry in scored
        if entry["decomposition"] is not None
    ]
    if any(set(each.parts.model_dump(exclude_defaults=True)) - {"representatives"} for each in parts):
        render_table(decomposition_table(parts), console)
    elif parts:
        console.print("all errors are of representatives: no group was predicted", soft_wrap=True)


def _bases(scored: list[Mapping[str, Any]]) -> list[str]:
    """The basis of fair scores, each with its methods."""
    methods_by_basis: dict[str, list[str]] = {}
    for entry in scored:
        fair = entry["fair"]
        basis = _BASES.get(fair["basis"], fair["basis"]).format(trials=fair["trials"])
        methods_by_basis.setdefault(basis, []).append(entry["method"])
    return [f"{basis} ({', '.join(methods)})" for basis, methods in methods_by_basis.items()]


def _costs(scored: list[Mapping[str, Any]]) -> dict[str, str]:
    """The true total in each cost that a method was scored in."""
    return {
        entry["cost"]["quantity"]: quantity(entry["cost"]["total"], entry["cost"]["unit"]) for entry in scored
    }


def _row(entry: Mapping[str, Any], *, with_cost: bool) -> list[str]:
    interval, fair = entry["interval"], entry["fair"]
    return [
        entry["method"],
        "*" if entry["pareto"] else "",
        count(entry["groups"]),
        count(entry["launches_to_simulate"]),
        percent(fair["error_percent"]),
        ratio(fair["speedup"]),
        _NONE if fair["coverage_percent"] is None else f"{fair['coverage_percent']:,.0f}",
        percent(entry["error_percent"]),
        percent(entry["group_error_percent"]),
        _NONE if interval is None else percent(interval["expected_error_percent"]),
        ratio(entry["speedup"]),
        ratio(entry["speedup_instructions"]),
        ratio(entry["speedup_launches"]),
        *([entry["cost"]["quantity"]] if with_cost else []),
        _NONE if interval is None else _holds(interval, entry["cost"]["total"]),
    ]


def _holds(interval: Mapping[str, float], total: float) -> str:
    return "yes" if interval["low"] <= total <= interval["high"] else "no"


def _reason(entry: Mapping[str, Any]) -> str:
    return str(entry["reason"]) if entry["status"] == "refused" else f"failed: {entry['reason']}"
