"""``assay run`` where another program holds the counters: two runs find it out, and all else is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300), pytest.mark.campaigns]

PROGRAM = Path(sys.executable).with_name("assay")
WORKLOAD = """\
workload = "small"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[[phases]]
repeat = 20
steps = [{ kernel = "scale", grid = 1024 }]
"""
CAMPAIGN = """\
campaign: held
synthetic: true
gpus: [V100]
detailed: {first: 10, sets: cycles}
workloads:
  - {name: one, command: [small.toml], environment: {ASSAY_VIRTUAL_FAULTS: counter_busy}}
  - {name: two, command: [small.toml], environment: {ASSAY_VIRTUAL_FAULTS: counter_busy}}
  - {name: three, command: [small.toml], environment: {ASSAY_VIRTUAL_FAULTS: counter_busy}}
analysis: {methods: [systematic]}
"""


def test_two_runs_find_the_counters_held_and_light_runs_go_on(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    (tmp_path / "held.yaml").write_text(CAMPAIGN)
    command = [PROGRAM, "run", "held.yaml", "--virtual", "V100", "--state", "state", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 6, ended.stderr
    runs = json.loads(ended.stdout)["campaign"]["runs"]
    assert {run["state"] for run in runs if run["level"] == "light"} == {"done"}
    detailed = [run for run in runs if run["level"] == "detailed"]
    assert [run["state"] for run in detailed] == ["failed"] * 3
    assert {run["failure"]["failure_class"] for run in detailed} == {"counter_busy"}
    assert all("given up for an hour" in run["failure"]["cause"] for run in detailed)
