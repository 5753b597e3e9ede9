"""Tables on terminals that are too narrow for them, and in pipes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.report import render_report
from assay_client.cli.reporters.tables import Table
from assay_report.model.report import REPORT_VERSION
from assay_report.reading import read_report


def drawn(table: Table, width: int, *, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    table.print(Console(file=stream, width=width, force_terminal=terminal, no_color=True, highlight=False))
    plain = stream.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return [line.rstrip() for line in plain.splitlines()]


def wide() -> Table:
    numbers = [f"number{index}" for index in range(6)]
    table = Table("Title, cost ns", ["workload", "device", *numbers], right=numbers)
    table.add_row("stencil", "V100", *[str(index) * 6 for index in range(6)])
    return table


def test_a_table_that_is_too_wide_goes_on_below_with_its_leading_columns_again() -> None:
    lines = drawn(wide(), 50)
    assert max(map(len, lines)) <= 50
    assert [line for line in lines if line.startswith("stencil")] == [
        "stencil   V100     000000   111111   222222",
        "stencil   V100     333333   444444   555555",
    ]
    assert [line for line in lines if "Title" in line] == [
        "Title, cost ns",
        "Title (continued)",
    ]
    assert [line for line in lines if "number" in line] == [
        "workload  device  number0  number1  number2",
        "workload  device  number3  number4  number5",
    ]


def test_a_wide_terminal_and_a_pipe_have_one_table() -> None:
    for lines in (drawn(wide(), 120), drawn(wide(), 50, terminal=False)):
        assert [line for line in lines if line.startswith("stencil")] == [
            "stencil   V100     000000   111111   222222   333333   444444   555555"
        ]


def test_leading_columns_that_take_most_of_the_width_are_not_all_repeated() -> None:
    table = Table("Runs", ["run", "workload", "condition", "state"])
    table.add_row("first-1.0000", "stencil", "cache=none clock=none sm=100%", "waiting")
    lines = drawn(table, 40)
    assert max(map(len, lines)) <= 48  # the run and its condition alone are that wide
    assert [line for line in lines if line.startswith("first-1.0000")] == [
        "first-1.0000  stencil",
        "first-1.0000  cache=none clock=none sm=100%",
        "first-1.0000  waiting",
    ]


def test_names_stay_readable_in_a_pipe_that_is_too_narrow_anyway() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, int>"
    table = Table("Groups", ["grid", "weight", "kernel"], right=["weight"], clip=["kernel"])
    table.add_row("25088x1x1", "261", name)
    # With a name of 12 characters the row would fit into 40 columns, but not into 20.
    assert max(map(len, drawn(table, 40, terminal=False))) <= 40
    (row,) = [line for line in drawn(table, 20, terminal=False) if line.startswith("25088")]
    assert len(row.partition("261")[2].strip()) == 40
    assert all(part in row for part in ("void at::native::vector", "kernel<4, int>"[-13:]))


def test_a_text_in_the_last_column_is_broken_between_words() -> None:
    table = Table("Assumptions", ["name", "value", "meaning"], right=["value"])
    table.add_row("launches", "100", "launches a workload makes in one run of its program")
    assert drawn(table, 44)[-3:] == [
        "-" * 44,
        "launches    100  launches a workload makes",
        "                 in one run of its program",
    ]


def entry(device: str, status: str) -> dict[str, Any]:
    ok = status == "ok"
    numbers = [
        "error_percent", "group_error_percent", "speedup", "match_percent", "grouped_accuracy_percent",
        "chronological_accuracy_percent", "chronological_balanced_accuracy_percent", "unknown_launches",
        "grouped_balanced_accuracy_percent",
    ]  # fmt: skip
    return {
        "workload": "w", "device": device, "method": "pks", "status": status, "launches": 5,
        "condition": {"cache": "none", "clock": "none", "sm_percent": 100.0}, "flags": [],
        "cost_quantity": "duration_ns" if ok else None, **dict.fromkeys(numbers), "reason": "",
    }  # fmt: skip


def test_a_refused_row_does_not_make_the_cost_of_all_a_column() -> None:
    report = {
        "format_version": REPORT_VERSION,
        "campaign": {"id": "c-1", "seed": 0, "synthetic": False},
        "summary": [entry("V100", "ok"), entry("A100", "refused")],
        "rows": [],
        "failed_runs": [],
    }
    stream = io.StringIO()
    render_report(read_report(report), Console(file=stream, width=200, no_color=True))
    assert "Workload x GPU, condition cache=none clock=none sm=100%, cost duration_ns" in stream.getvalue()


def test_groups_of_a_light_recording_have_no_column_of_instructions(shared_data: Path, assay: Any) -> None:
    shown = assay("select", "stem", shared_data / "nsys" / "rtx3060_graphs_as_a_whole.sqlite.gz").stdout
    assert "3 launches of 1 kernel on" in shown
    assert "weight" in shown
    assert "instructions" not in shown
