"""``assay run`` is killed, interrupted and terminated at random moments: nothing is measured twice.

Six moments, twenty by ``make kills``. Recordings that play in their own time, and a command on a virtual GPU
in slices that are chosen from its light run. Everything is synthetic.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.stopped_run import run_until
from tests.support.integration.kills import MANY_KILLS
from tests.support.integration.measured_once import lost_attempts
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

MOMENTS = 20 if MANY_KILLS else 6
WORKLOAD = """\
workload = "long"
seed = 5
[buffers]
x = "8 MiB"
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
reads = { x = 1.0 }
[[phases]]
repeat = 4000
steps = [{ kernel = "scale", grid = 64 }]
"""
LIVE = """\
  - {name: long, command: [long.toml]}
gpus: [V100]
detailed: {first: 4000, slice_launches: 500, sets: features}
"""


def test_a_run_that_is_stopped_at_many_moments_measures_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(WORKLOAD)
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(write_paced_recordings(tmp_path, runs=4, launches=40, seconds=1.0) + LIVE)
    state = tmp_path / "state"
    words = [campaign, "--virtual", "V100", "--state", state, "-o", tmp_path / "out"]
    chance = random.Random(27)
    numbers = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
    ended, stopped = 0, 0
    while stopped < MOMENTS:
        run = run_until(words, "chaos-", chance.choice(numbers), after_seconds=chance.uniform(0, 4))
        stopped += not run.ended
        if run.ended:
            assert run.code == 0, run.lines
            ended += 1
    last = run_until(words, None, signal.SIGINT)
    assert last.code == 0, last.lines
    known = subprocess.run(
        [Path(sys.executable).with_name("assay"), "report", "--state", state, f"chaos-{ended + 1}", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(known.stdout)
    lost = [lost_attempts(state, f"chaos-{number}") for number in range(1, ended + 2)]
    print(f"\n{stopped} moments, {ended + 1} campaigns, {lost} attempts lost")
    # Each moment costs at most what was being measured then: one recording, and one slice on the GPU.
    assert sum(lost) <= 2 * MOMENTS
