"""Methods side by side on other GPUs: at one speedup, GPU by GPU, and their selections as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import UnitWords, profile_text, words_of
from assay_report.texts import percent, ratio
from assay_sampling.visible import visible

_SPARE = ("launches", "operations", "mean error %", "mean by kernel %", "mean by stratum %")


def render(document: Mapping[str, Any], console: Console) -> None:
    """Draw what a comparison knows of other GPUs; nothing where none were given."""
    if not document.get("on"):
        return
    console.print("\nOther GPUs")
    print_facts(list(_targets(document)), console)
    there = document.get("at_speedup")
    if there is None:
        return
    words = words_of(document)
    _at_speedup(there, words, console)
    _by_target(document, console)
    _as_they_are(document, console)
    refused = [
        (f"{row['method']} by {_weights(row)}", row["reason"])
        for row in there["rows"]
        if row["status"] != "ok"
    ]
    if refused:
        console.print("\nNot scored there")
        print_facts(refused, console)


def _targets(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for number, target in enumerate(document["on"], 1):
        if target["status"] != "ok":
            yield f"GPU {number}", f"{target['name']}: not scored: {target['reason']}"
            continue
        operations = target["operations"]
        if operations is None:
            matched = f"{target['match_percent']:.2f} % of the launches match"
        else:
            matched = f"operations with {operations['recording_time_percent']:.2f} % of its time match"
            if target["differences"]:
                matched += f"; first difference: {visible(target['differences'][0])}"
        yield f"GPU {number}", f"{profile_text(target['profile'])}; {matched}"


def _scored(document: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Number of each GPU that was scored, and its column."""
    numbers = [number for number, each in enumerate(document["on"], 1) if each["status"] == "ok"]
    return [(number, f"GPU {number}") for number in numbers]


def at_speedup_table(there: Mapping[str, Any], words: UnitWords) -> Table:
    """A line for each method and kind of weights that reaches the speedup."""
    columns = [
        "speedup", "worst error %", f"worst by {words.kind} %", "mean error %", f"mean by {words.kind} %",
        words.several,
    ]  # fmt: skip
    drawn = Table(
        f"On other GPUs at a speedup of {there['speedup']:,.4g} (*: no other has less error, of the total "
        f"and by {words.part})",
        ["method", "weights", "", *columns, "with"],
        right=columns,
        spare=[name for name in _SPARE if name in columns],
    )
    for row in there["rows"]:
        if row["status"] == "ok":
            drawn.add_row(
                row["method"],
                _weights(row),
                "*" if row["star"] else "",
                ratio(row["speedup"]),
                percent(row["worst_error_percent"]),
                percent(row["worst_part_error_percent"]),
                percent(row["mean_error_percent"]),
                percent(row["mean_part_error_percent"]),
                f"{row['launches_to_simulate']:,.0f}",
                _parameters(row["parameters"]),
            )
    return drawn


def _at_speedup(there: Mapping[str, Any], words: UnitWords, console: Console) -> None:
    at_speedup_table(there, words).print(console)
    console.print(
        f"root mean squares over {there['draws']} draws of each method that draws; worst and mean over the "
        "GPUs",
        soft_wrap=True,
    )


def _by_target(document: Mapping[str, Any], console: Console) -> None:
    """The numbers behind worst and mean, where there is more than one GPU."""
    scored = _scored(document)
    if len(scored) < 2:
        return
    columns = [
        f"{name} {what} %" for _, name in scored for what in ("error", f"by {words_of(document).kind}")
    ]
    drawn = Table("GPU by GPU", ["method", "weights", *columns], right=columns)
    for row in document["at_speedup"]["rows"]:
        if row["status"] == "ok":
            numbers = [
                percent(each[key])
                for each in row["targets"]
                for key in ("error_percent", "part_error_percent")
            ]
            drawn.add_row(row["method"], _weights(row), *numbers)
    drawn.print(console)


def _as_they_are(document: Mapping[str, Any], console: Console) -> None:
    """The selections that ``assay select METHOD`` makes, scored there."""
    scored = _scored(document)
    whats = ("signed error", f"by {words_of(document).kind}")
    columns = [f"{name} {what} %" for _, name in scored for what in whats]
    drawn = Table(
        "Selections as they are, with their own parameters",
        ["method", "weights", "speedup", *columns],
        right=["speedup", *columns],
    )
    for entry in document["methods"]:
        scores = [entry["on"][number - 1] for number, _ in scored] if "on" in entry else []
        if not any(each["status"] == "ok" for each in scores):
            continue
        numbers = [
            percent(each[key], signed=key == "signed_error_percent")
            for each in scores
            for key in ("signed_error_percent", "part_error_percent")
        ]
        weights = next(each["weights"] for each in scores if each["status"] == "ok")
        drawn.add_row(entry["method"], weights.replace("_", " "), ratio(entry["speedup"]), *numbers)
    drawn.print(console)


def _weights(row: Mapping[str, Any]) -> str:
    return str(row["weights"] or "its own").replace("_", " ")


def _parameters(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items() if name != "weights")
