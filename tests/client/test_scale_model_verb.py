"""``assay scale-model``: the table of errors, predictions with intervals, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Assay = Callable[..., Any]

TABLE = """workload,size,size_unit,ipc,mpki,f_mem
flat,8,sm,100,5,
flat,16,sm,160,5,
flat,32,sm,240,5,
falls,8,sm,100,5,
falls,16,sm,160,5,
falls,32,sm,500,1,
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def test_evaluate_gives_each_rule_and_size(assay: Assay, table: Path) -> None:
    document = json.loads(assay("scale-model", "evaluate", table, "--json").stdout)
    assert list(document["rules"]) == [
        "tool", "printed", "log_quadratic", "proportional", "linear", "power_law", "logarithmic",
    ]  # fmt: skip
    # The tool says 160 x 2 x 0.75 = 240 for the flat one, and does not say anything of the other.
    assert document["rules"]["tool"] == {
        "32": {"mean_error_percent": 0.0, "max_error_percent": 0.0, "workloads": 1}
    }
    assert document["rules"]["proportional"]["32"]["max_error_percent"] == pytest.approx(100 * 160 / 240)
    assert document["scale_models"] == [8, 16]
    assert "tool: falls at 32: mpki falls by more than 2x at 32" in document["refused"][0]["text"]
    shown = assay("scale-model", "evaluate", table)
    assert shown.code == 0
    assert "0.00 / 0.00" in shown.stdout
    assert "cannot be applied" in shown.stdout


def test_weak_scaling_knows_no_cliff(assay: Assay, table: Path) -> None:
    document = json.loads(assay("scale-model", "evaluate", table, "--weak-scaling", "--json").stdout)
    assert document["refused"] == []
    assert document["rules"]["tool"]["32"]["workloads"] == 2


def test_predict_gives_an_interval_to_each_target(assay: Assay, table: Path) -> None:
    arguments = ["scale-model", "predict", table, "-w", "flat", "-t", 32, "--rule", "log_quadratic"]
    document = json.loads(assay(*arguments, "--json").stdout)
    (row,) = document["predictions"]
    assert row["ipc"] == pytest.approx(256.0)
    assert row["lower"] < 256.0 < row["upper"]
    assert row["level"] == 0.9
    shown = assay(*arguments)
    assert shown.code == 0
    assert "256.00" in shown.stdout
    assert "pre-cliff" in shown.stdout


def test_predict_takes_intervals_from_other_workloads(assay: Assay, table: Path) -> None:
    arguments = ["scale-model", "predict", table, "-w", "flat", "-t", 32, "--rule", "linear", "--json"]
    assert json.loads(assay(*arguments).stdout)["predictions"][0]["lower"] is None
    document = json.loads(assay(*arguments, "--calibration", table).stdout)
    assert document["calibration"] == str(table)
    assert document["predictions"][0]["level"] == pytest.approx(2 / 3)


def test_a_cliff_without_f_mem_is_refused_with_the_reason(assay: Assay, table: Path) -> None:
    ended = assay("scale-model", "predict", table, "-w", "falls")
    assert ended.code == 7
    assert "without f_mem at 16 the cliff factor 1 / (1 - f_mem) cannot be applied" in ended.stderr
    partly = assay("scale-model", "predict", table, "-w", "falls", "--rule", "power_law")
    assert partly.code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict"], "several workloads"),
        (["predict", "-w", "none"], "no workload 'none'"),
        (["predict", "-w", "flat", "--models", "8"], "not two sizes"),
        (["predict", "-w", "flat", "--rule", "guess"], "log_quadratic"),
        (["predict", "-w", "flat", "--level", "1.5"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    assay: Assay, table: Path, arguments: list[str], said: str
) -> None:
    ended = assay("scale-model", arguments[0], table, *arguments[1:])
    assert ended.code == 2
    assert said in ended.stderr


def test_miss_rates_of_traces(assay: Assay, tmp_path: Path) -> None:
    """Three lines in turn, twice: a cache of two lines never hits, one of three the second time."""
    loads = [f"0010 00000001 1 R6 LDG.E 1 R2 4 2 0x{128 * line:x} 0" for line in (0, 1, 2, 0, 1, 2)]
    trace = tmp_path / "kernel-1.traceg"
    trace.write_text(
        "-kernel name = k\n-kernel id = 1\n-grid dim = (1,1,1)\n-block dim = (32,1,1)\n-shmem = 0\n"
        "-nregs = 8\n-binary version = 80\n-accelsim tracer version = 5\n#traces format\n"
        "#BEGIN_TB\nthread block = 0,0,0\n"
        f"warp = 0\ninsts = {len(loads)}\n" + "\n".join(loads) + "\n#END_TB\n"
    )
    arguments = ["scale-model", "miss-rates", trace, "--capacity", 256, "--capacity", 384]
    document = json.loads(assay(*arguments, "--json").stdout)
    assert [(row["capacity_bytes"], row["misses"], row["mpki"]) for row in document["curve"]] == [
        (256, 6.0, 1000.0),
        (384, 3.0, 500.0),
    ]
    assert (document["accesses"], document["first_touches"]) == (6, 3.0)
    shown = assay(*arguments)
    assert shown.code == 0
    assert "500.0000" in shown.stdout
    for wrong, said in (
        (["--capacity", "much"], "--capacity: 'much' is not a number of bytes"),
        (["--capacity", "64"], "below a line"),
        (["--capacity", "256", "--sectors", "3"], "do not divide"),
        (["--capacity", "256", "--sampling-rate", "0"], "sampling rate"),
    ):
        ended = assay("scale-model", "miss-rates", trace, *wrong)
        assert ended.code == 2
        assert said in ended.stderr


@pytest.mark.shared_data
def test_the_published_table_is_printed(assay: Assay, shared_data: Path) -> None:
    path = shared_data / "scale_model" / "strong_scaling.csv"
    document = json.loads(assay("scale-model", "evaluate", path, "--json").stdout)
    cells = document["rules"]["tool"]
    assert [round(cells[size]["mean_error_percent"], 2) for size in ("64", "128")] == [3.50, 4.06]
    assert [round(cells[size]["max_error_percent"], 2) for size in ("64", "128")] == [13.94, 17.02]
    ours = document["rules"]["log_quadratic"]["128"]
    assert ours["mean_error_percent"] <= 3.6
    assert ours["max_error_percent"] <= 10.0
    assert "4.06 / 17.02" in assay("scale-model", "evaluate", path).stdout
