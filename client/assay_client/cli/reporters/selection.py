"""Draws a selection: its scores, its groups by cost, and what only its method reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.evaluation import score_facts
from assay_client.cli.reporters.method_facts import method_facts, render_sweep
from assay_client.cli.reporters.tables import Table, origin_mark, print_facts
from assay_client.cli.reporters.text import (
    clipped,
    count,
    counted,
    percent,
    profile_text,
    shape,
    times,
    words_of,
)
from assay_client.cli.reporters.two_level import render_two_level
from assay_client.cli.reporters.verdict import render_verdict
from assay_report.texts import with_sign
from assay_sampling.notes.registry import note_text

_GROUPS_SHOWN = 20
_LINE = 160


def render_selection(
    document: Mapping[str, Any],
    written_to: Path | None,
    console: Console,
    *,
    tried: Sequence[str] = (),
) -> None:
    """Draw a selection's verdict and at most ten lines; ``tried``: the methods that it is the best of."""
    render_verdict(document, console)
    profile, weights = document["profile"], _weights(document["weights"])
    warnings = [("warning", each) for name in ("score_notes", "warnings") for each in document.get(name, ())]
    remarks = [*warnings, *(("note", each) for each in profile.get("notes", ()))]
    more = f" (and {len(remarks) - 1} more: --all)" if len(remarks) > 1 else ""
    chosen = sum(len(group["representatives"]) for group in document["groups"])
    pairs = [
        ("method", f"{_method(document)}{_of_tried(tried)}"),
        ("profile", clipped(profile_text(profile), _LINE)),
        ("selected", f"{_selected(document, chosen, len(document['groups']))}; weights {weights}"),
        ("error here", _errors(document)),
        *_expected(document),
        ("speedup", times(document["speedup"])),
        *[(kind, f"{clipped(note_text(remark), _LINE)}{more}") for kind, remark in remarks[:1]],
        *origin_mark(profile),
    ]
    print_facts(pairs, console)
    if written_to is not None:
        console.print(f"written to {written_to}", soft_wrap=True)
    console.print("groups and everything else: --all; what the numbers mean: assay docs concepts")


def _of_tried(tried: Sequence[str]) -> str:
    return f" (recommended, of {', '.join(tried)})" if tried else ""


def _errors(document: Mapping[str, Any]) -> str:
    signed = f"{with_sign(document['signed_error_percent'])} %"
    return f"{signed} of the total, {percent(document['group_error_percent'])} over groups"


def _expected(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to expect on another GPU."""
    expected = document.get("expected_elsewhere")
    if not expected:
        return []
    words = words_of(document)
    text = (
        f"about {percent(expected['error_percent'])} of the total, "
        f"{percent(expected['group_error_percent'])} over {words.sizes}; "
        f"{percent(expected['not_vouched_percent'])} of the time is in groups with one {words.one} selected"
    )
    return [("elsewhere", text)]


def render_whole_selection(
    document: Mapping[str, Any],
    projected_by_group: Sequence[float],
    written_to: Path | None,
    console: Console,
    *,
    tried: Sequence[str] = (),
) -> None:
    """Draw all of a selection; ``projected_by_group`` orders the groups, in the unit of the cost."""
    render_verdict(document, console)
    profile = document["profile"]
    chosen = sum(len(group["representatives"]) for group in document["groups"])
    groups = len(document["groups"])
    parameters = [f"{name}={v}" for name, v in document["parameters"].items() if v is not None]
    pairs = [
        ("method", ", ".join([f"{_method(document)}{_of_tried(tried)}", *parameters])),
        ("profile", profile_text(profile)),
        ("selected", _selected(document, chosen, groups)),
        *score_facts(document),
        *_expected(document),
        ("weights", _weights(document["weights"])),
        *method_facts(document),
        *origin_mark(profile),
        *[("warning", note_text(warning)) for warning in document.get("warnings", ())],
        *[("warning", note_text(note)) for note in document.get("score_notes", ())],
        *[("note", clipped(note_text(note), 300)) for note in profile.get("notes", ())],
    ]
    print_facts(pairs, console)
    _render_groups(document, projected_by_group, console)
    render_sweep(document, console)
    _render_chance(document, console)
    if document.get("two_level"):
        render_two_level(document["two_level"], console, words_of(document))
    if written_to is not None:
        console.print(f"written to {written_to}", soft_wrap=True)
    console.print("what the numbers mean: assay docs concepts")


def _method(document: Mapping[str, Any]) -> str:
    return f"{document['method']}, seed {document['seed']}"


def _selected(document: Mapping[str, Any], chosen: int, groups: int) -> str:
    in_groups = f"in {counted(groups, 'group', 'groups')}"
    operations = document.get("operations")
    if operations is None:
        return f"{counted(chosen, 'launch', 'launches')} {in_groups}"
    launches = sum(
        len(each["operation"]["launches"])
        for group in document["groups"]
        for each in group["representatives"]
    )
    return (
        f"{counted(chosen, 'operation', 'operations')} of {count(operations['calls'])} {in_groups}, "
        f"with {counted(launches, 'launch', 'launches')} of {count(operations['launches'])}"
    )


def _weights(weights: Mapping[str, Any]) -> str:
    here, elsewhere = (weights[where].replace("_", " ") for where in ("here", "elsewhere"))
    return f"by {here}" if here == elsewhere else f"by {here} here, by {elsewhere} on other GPUs"


def _render_chance(document: Mapping[str, Any], console: Console) -> None:
    """Draw how far the error depends on the seed, if the method was asked to try other seeds."""
    again = document.get("repetitions")
    if again:
        console.print(
            f"{count(again['count'])} further samples: mean error {percent(again['mean_error_percent'])}, "
            f"95 % of them between {with_sign(again['low_signed_error_percent'])} % and "
            f"{with_sign(again['high_signed_error_percent'])} %",
            soft_wrap=True,
        )
    seeds = document.get("seeds")
    if seeds:
        columns = ["seed", "k", "error", "group error", "speedup"]
        drawn = Table("Other seeds", columns, right=columns)
        for entry in seeds:
            drawn.add_row(
                str(entry["seed"]),
                str(entry["k"]),
                percent(entry["error_percent"]),
                percent(entry["group_error_percent"]),
                times(entry["speedup"]),
            )
        drawn.print(console)


def _render_groups(document: Mapping[str, Any], projected: Sequence[float], console: Console) -> None:
    groups = document["groups"]
    order = sorted(range(len(groups)), key=lambda index: -projected[index])
    cost = f"projected {document['cost']['unit']}s".replace("nss", "ns")
    # Light recordings have no instructions: their column would push the kernels' names off the line.
    shares = ["instructions %"] if any(group["instruction_share"] is not None for group in groups) else []
    by_operation = document.get("unit") == "operation"
    if by_operation:
        numbers = ["group", "operations", cost, *shares, "sim id", "launches", "weight"]
        columns = [*numbers, "operation"]
    else:
        numbers = ["group", "launches", cost, *shares, "sim id", "weight"]
        columns = [*numbers[:-1], "grid", "block", "weight", "kernel"]
    drawn = Table("Groups", columns, right=numbers, clip=columns[-1:])
    for index in order[:_GROUPS_SHOWN]:
        group = groups[index]
        share = group["instruction_share"]
        row = [
            str(group["id"]),
            count(group["launches"]),
            f"{projected[index]:,.0f}",
            *(["-" if share is None else f"{100 * share:,.2f}"] if shares else []),
        ]
        cells = _operation if by_operation else _representative
        drawn.add_row(*row, *cells(group["representatives"]))
    drawn.print(console)
    if len(groups) > _GROUPS_SHOWN:
        console.print(f"{len(groups) - _GROUPS_SHOWN} cheaper groups are not shown; --json has them all")


def _representative(representatives: Sequence[Mapping[str, Any]]) -> list[str]:
    if not representatives:
        return ["-"] * 5
    first, more = representatives[0], len(representatives) - 1
    return [
        f"{first['sim_id']}{f' +{more}' if more else ''}",
        shape(first["grid"]),
        shape(first["block"]),
        f"{first['weight']:,.6g}",
        clipped(first["kernel"], 60),
    ]


def _operation(representatives: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first operation that stands for a group, with the launches that it consists of."""
    if not representatives:
        return ["-"] * 4
    first, more = representatives[0], len(representatives) - 1
    of = first["operation"]
    return [
        f"{first['sim_id']}{f' +{more}' if more else ''}",
        count(len(of["launches"])),
        f"{first['weight']:,.6g}",
        clipped(f"{of['name']} {of['shapes']}".strip(), 60),
    ]
