"""``assay run -- COMMAND`` of a program with an NVTX range ``assay``: only launches in it count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

PROGRAM = Path(sys.executable).with_name("assay")
# 500 launches before the range, which would be most of the time; 90 in it, in three iterations; 200 after it.
RANGED = """\
workload = "ranged"
seed = 5
[kernels.prepare]
name = "void prepare<float>(float*, int)"
block = 256
instructions = 4000
global_loads = 4
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[[phases]]
nvtx = "warm-up"
repeat = 500
steps = [{ kernel = "prepare", grid = 4096 }]
[[phases]]
nvtx = "assay"
repeat = 3
[[phases.steps]]
nvtx = "step"
repeat = 30
steps = [{ kernel = "scale", grid = 64 }]
[[phases]]
repeat = 200
steps = [{ kernel = "prepare", grid = 1024 }]
"""


def assay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_window_is_the_range_and_slices_count_from_the_first_launch(tmp_path: Path) -> None:
    (tmp_path / "ranged.toml").write_text(RANGED)
    command = ["run", "--virtual", "V100", "--state", "state", "-o", "report", "--", "ranged.toml"]
    ran = assay(tmp_path, *command)
    assert ran.returncode == 0, ran.stderr
    assert "window: the NVTX range 'assay', with 90 of 790 launches" in ran.stdout
    assert "only the 90 of 790 launches in the NVTX range 'assay' count" in ran.stdout
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert {row["launches"] for row in report["rows"]} == {90}
    [chosen] = report["chosen_slices"]
    assert [(each["first_launch"], each["launches"]) for each in chosen["slices"]] == [(500, 90)]
    selection = json.loads((tmp_path / "report" / "selection.json").read_text())
    launches = [each["launch"] for group in selection["groups"] for each in group["representatives"]]
    assert launches and all(500 <= launch < 590 for launch in launches)
    # The same rule holds for the file of the light run.
    [light] = [line[11:] for line in ran.stdout.splitlines() if line.startswith("light run: ")]
    again = assay(tmp_path, "select", "stem", light, "--json")
    assert json.loads(again.stdout)["profile"]["launches"] == 90
