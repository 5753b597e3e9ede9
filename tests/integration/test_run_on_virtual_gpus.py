"""``assay run --virtual``: ``detailed.first: auto`` as a user runs it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay_sampling.errors import ParameterError

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

PROGRAM = Path(sys.executable).with_name("assay")
# Three grids, 400 launches of each: a slice sees two of them at most.
LATE = """\
workload = "late"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[[phases]]
repeat = 400
steps = [{ kernel = "scale", grid = 1024 }]
[[phases]]
repeat = 400
steps = [{ kernel = "scale", grid = 2048 }]
[[phases]]
repeat = 400
steps = [{ kernel = "scale", grid = 4096 }]
"""
EVEN = LATE.replace("late", "even").replace("1024", "4096").replace("2048", "4096")
# The budget is so small that a workload gets its first slice alone.
CAMPAIGN = """\
campaign: auto
synthetic: true
gpus: [V100]
detailed: {first: auto, unseen_percent: 0.1, slice_launches: 100, time_budget_s: 1}
workloads:
  - {name: late, command: [late.toml]}
  - {name: even, command: [even.toml]}
analysis: {methods: [pks]}
"""


def assay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def write_campaign(folder: Path) -> None:
    (folder / "late.toml").write_text(LATE)
    (folder / "even.toml").write_text(EVEN)
    (folder / "auto.yaml").write_text(CAMPAIGN)


def test_the_report_says_which_slices_and_why_and_what_stays_unseen(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    ran = assay(tmp_path, "run", "auto.yaml", "--virtual", "V100", "--state", "state", "-o", "report")
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    chosen = {each["workload"]: each for each in report["chosen_slices"]}
    # The budget is spent after the first slice; that of "even" sees all.
    assert {name: each["ending"] for name, each in chosen.items()} == {"late": "budget", "even": "unseen"}
    [only] = chosen["even"]["slices"]
    assert (only["first_launch"], only["launches"], only["unseen_time_percent"]) == (0, 100, 0.0)
    [first] = chosen["late"]["slices"]
    # It sees the last two grids, and does not skip more launches than that takes.
    assert (first["first_launch"], first["launches"], first["measured"]) == (701, 100, True)
    assert first["new_time_percent"] + first["unseen_time_percent"] == pytest.approx(100.0)
    assert chosen["late"]["unseen_time_percent"] > chosen["late"]["most_unseen_time_percent"] == 0.1
    [late] = [row for row in report["rows"] if row["workload"] == "late"]
    assert late["unseen_time_percent"] == pytest.approx(chosen["late"]["unseen_time_percent"])
    page = (tmp_path / "report" / "report.html").read_text()
    for said in ("Slices chosen for late on V100", "the time budget is spent", "little enough is unseen"):
        assert said in page
    assert "Slices chosen from the light run" in ran.stdout
    assert "flagged window_cut: " in ran.stdout


def test_without_virtual_the_refusal_says_how_to_offer_them(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    ran = assay(tmp_path, "run", "auto.yaml", "--state", "state", "--json")
    assert ran.returncode == 10
    error = json.loads(ran.stderr.splitlines()[-1] if not ran.stdout else ran.stdout)["error"]
    assert "no agent offers a synthetic V100" in error["cause"]
    assert "assay run --virtual KIND" in error["remedy"]


def test_a_kind_of_virtual_gpu_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    ran = assay(tmp_path, "run", "auto.yaml", "--virtual", "V101", "--state", "state")
    assert ran.returncode == ParameterError.exit_code
    assert "there is no kind 'V101'" in ran.stderr


@pytest.mark.parametrize(
    ("fault", "said", "stays"),
    [
        ("permission", "ERR_NVGPUCTRPERM", True),
        ("application_failed:3", "the last words of its output: assay-virtual: the workload failed", False),
    ],
)
def test_a_command_that_cannot_be_measured_says_why_and_what_was_measured_stays(
    fault: str, said: str, stays: bool, tmp_path: Path
) -> None:
    (tmp_path / "late.toml").write_text(LATE)
    options = ("--virtual", "V100", "--state", "state", "-o", "report", "-e", f"ASSAY_VIRTUAL_FAULTS={fault}")
    ran = assay(tmp_path, "run", *options, "--", "late.toml")
    assert ran.returncode == 6 and said in ran.stderr.splitlines()[-1]
    assert ("The kernels with the most time, of 1,200 launches" in ran.stdout) is stays
    assert ("\nlight run: " in ran.stdout) is stays
    assert (tmp_path / "report" / "selection.json").exists() is stays
