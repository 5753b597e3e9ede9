"""``assay project``: documents and pages of a log and of a CSV, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import InputError, ParameterError

Assay = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """An IPC of 100 from cycle 0 on, 8 blocks an interval: a wave of 32 after four samples."""
    rows = [f"{500 * i},{50_000 * i},8" for i in range(1, 41)]
    path = tmp_path / "series.csv"
    path.write_text("\n".join(["cycles,instructions,ctas", *rows]) + "\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "out.txt"
    path.write_text(
        "-gpgpu_n_clusters 2 # x\n-gpgpu_n_cores_per_cluster 1 # x\n-gpgpu_kernel_launch_latency 0 # x\n"
        "-kernel name = _Z1kv\n-kernel id = 3\n-grid dim = (320,1,1)\n-block dim = (32,1,1)\n"
        "launching kernel name: _Z1kv uid: 1\nGPGPU-Sim uArch: CTA/core = 16, limited by: x\n"
        "kernel_name = _Z1kv \nkernel_launch_uid = 1 \ngpu_sim_cycle = 20400\ngpu_sim_insn = 2040000\n"
        "gpu_tot_sim_insn = 2040000\ngpu_tot_issued_cta = 320\nGPGPU-Sim: *** exit detected ***\n"
    )
    return path


@pytest.fixture
def intervals(tmp_path: Path) -> Path:
    path = tmp_path / "intervals.txt"
    path.write_text(
        "".join(
            f"ctas_completed: 8\nglobalcyclecount: {500 * i}\nglobalinsncount: {50_000 * i}\n"
            f"globaltotinsncount: 0\n"
            for i in range(1, 41)
        )
    )
    return path


BLOCKS = ("--param", "wave_ctas=32", "--param", "total_ctas=320")


def test_a_csv_gives_one_projection(assay: Assay, series: Path) -> None:
    ended = assay("project", series, *BLOCKS, "-p", "total_instructions=2040000", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    # Waves of 32 blocks end every 2,000 cycles; by blocks it has 20,000 cycles, by instructions 20,400.
    assert (document["rule"], document["stop_cycles"], document["stop_sample_index"]) == ("waves", 7000, 13)
    # The last tenth takes a fifth longer.
    assert document["projected_cycles"] == pytest.approx(20_400 * 1.02)
    assert (document["reason"], document["would_stop"]) == (None, [])
    known = (*BLOCKS, "-p", "total_instructions=2040000", "--json")
    by_instructions = json.loads(assay("project", series, *known, "--rule", "instructions").stdout)
    assert (by_instructions["stop_cycles"], by_instructions["projected_cycles"]) == (3000, 20_400)
    as_before = json.loads(assay("project", series, *known, "-p", "s=0.25").stdout)
    assert as_before["rule"] == "instructions"
    paper = json.loads(assay("project", series, *BLOCKS, "--json").stdout)
    assert (paper["rule"], paper["stop_cycles"], paper["projected_cycles"]) == ("paper", 4000, 20_000)
    artifact = json.loads(assay("project", series, *BLOCKS, "-p", "rule=artifact", "--json").stdout)
    assert artifact["projected_cycles"] == pytest.approx(3000 * 320 / 33)


def test_without_a_stop_the_document_says_null_and_why(assay: Assay, series: Path) -> None:
    document = json.loads(assay("project", series, *BLOCKS, "-p", "window_cycles=90000", "--json").stdout)
    assert (document["stop_cycles"], document["projected_cycles"]) == (None, 20_000)
    assert document["reason"]["text"] == "of 40 samples 40 are in use, fewer than a window of 180"
    shown = assay("project", series, *BLOCKS, "-p", "window_cycles=90000").stdout
    assert "none: of 40 samples" in shown and "; would stop: none" in shown
    two_waves = ("-p", "wave_ctas=80", "-p", "total_ctas=160", "-p", "total_instructions=2040000")
    few = json.loads(assay("project", series, *two_waves, "--json").stdout)
    assert few["reason"]["code"] == "too_few_waves"
    assert [(each["rule"], each["parameter"], each["value"]) for each in few["would_stop"]] == [
        ("instructions", "s", 0.25),
        ("paper", "s", 0.25),
        ("artifact", "s", 0.25),
    ]
    shown = assay("project", series, *two_waves).stdout
    assert "waves, tolerance 12 %" in shown and "would stop: instructions s 0.25, paper s 0.25" in shown


def test_a_run_gives_an_entry_a_launch(assay: Assay, log: Path, intervals: Path) -> None:
    document = json.loads(assay("project", log, "--intervals", intervals, "--json").stdout)
    (launch,) = document["launches"]
    assert (launch["traced_id"], launch["stop_cycles"], launch["true_cycles"]) == (3, 7000, 20_400)
    assert launch["projected_cycles"] == pytest.approx(20_400 * 1.02)
    summary = document["summary"]
    assert summary["speedup"] == pytest.approx(20_400 / 7000)
    assert summary["saved_percent"] == summary["active_saved_percent"] == pytest.approx(100 * 134 / 204)
    shown = assay("project", log, "--intervals", intervals).stdout
    for text in ("_Z1kv", "1 of 1 launches", "2 SMs, launch latency 0 cycles", "2.91x", "saved 65.69 % of"):
        assert text in shown
    alone = json.loads(assay("project", log, "--json").stdout)
    assert alone["launches"][0]["reason"]["code"] == "intervals_missing"
    told = assay("project", log).stdout
    assert "give --intervals FILE" in told
    assert "Launches that do not stop" not in told
    strict = assay("project", log, "--intervals", intervals, "-p", "tolerance_percent=1").stdout
    assert "why the rule does not, and which rules would" in strict
    assert "would stop: waves tolerance 2.01 (+2.0 %), instructions s 0.25 (0.0 %)" in strict


def test_for_people_a_csv_is_a_list_of_facts(assay: Assay, series: Path) -> None:
    shown = assay("project", series, *BLOCKS, "-p", "rule=artifact").stdout
    assert "artifact, window 3,000 cycles, s 0.25" in shown
    assert "at cycle 3,000, 32 blocks finished" in shown


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ([], ParameterError, "give it with: --param wave_ctas=NUMBER"),
        (["-p", "window=3"], ParameterError, "there is no parameter 'window'"),
        ([*BLOCKS, "-p", "rule=instructions"], ParameterError, "give total_instructions"),
        ([*BLOCKS, "--intervals", "x.log"], ParameterError, "--intervals"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    assay: Assay, series: Path, arguments: list[str], kind: type[ParameterError], text: str
) -> None:
    ended = assay("project", series, *arguments)
    assert (ended.code, ended.stdout) == (kind.exit_code, "")
    assert text in ended.stderr


def test_other_files_are_refused(assay: Assay, tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text('"ID","Kernel Name"\n"0","k"\n')
    ended = assay("project", path)
    assert ended.code == InputError.exit_code
    assert "it is a recording, which 'assay inspect FILE'" in ended.stderr


def test_every_key_is_documented(assay: Assay, series: Path, log: Path, intervals: Path) -> None:
    text = (DOCS / "projection-format.md").read_text()
    run = json.loads(assay("project", log, "--intervals", intervals, "--json").stdout)
    one = json.loads(assay("project", series, *BLOCKS, "--json").stdout)
    strict = ("-p", "tolerance_percent=1", "--json")
    (unstopped,) = json.loads(assay("project", log, "--intervals", intervals, *strict).stdout)["launches"]
    keys = {*run, *run["launches"][0], *run["summary"], *run["simulator"], *run["parameters"], *one}
    keys |= {*unstopped["would_stop"][0]}
    assert {key for key in keys if f"`{key}`" not in text} == set()
