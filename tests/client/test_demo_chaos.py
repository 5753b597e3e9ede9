"""The long form of the kill tests: the whole demo, killed at many moments (``make chaos``)."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.client.demo_kills import MARKS, Demo, kill_one, progress, wait_until_gone

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("ASSAY_CHAOS" not in os.environ, reason="minutes long; run it with: make chaos"),
]

RUNS = 162
LONGEST_WAIT_SECONDS = 0.5


def test_the_whole_demo_ends_in_the_same_report_however_often_it_is_killed(tmp_path: Path) -> None:
    kills = int(os.environ.get("ASSAY_CHAOS_KILLS", "40"))
    seed = int(os.environ.get("ASSAY_CHAOS_SEED") or time.time_ns() % 2**32)
    print(f"seed {seed}, {kills} kills; again with: make chaos ASSAY_CHAOS_SEED={seed}")
    Demo(tmp_path / "undisturbed").end()
    choice = random.Random(seed)
    out, demo = tmp_path / "killed", Demo(tmp_path / "killed")
    # The last moment is in the analysis, in which there are no tools any more.
    moments = [*sorted(choice.choices(range(RUNS - 10), k=kills - 1)), 1_000_000]
    for moment in moments:
        victim = choice.choice([*MARKS, "demo"] if moment < RUNS else ["server", "demo"])
        if not demo.wait(lambda line, moment=moment: progress(line) >= moment):  # type: ignore[misc]
            pytest.fail("it ended too early: " + "".join(demo.lines[-20:]))
        time.sleep(choice.uniform(0.0, LONGEST_WAIT_SECONDS))
        if victim == "demo":
            demo.kill()
            assert wait_until_gone(out) == []
            demo = Demo(out)
        else:
            assert kill_one(out, victim), f"no {victim} came at {moment}"
    demo.end()
    for form in ("json", "html", "md"):
        left, right = (tmp_path / name / f"report.{form}" for name in ("undisturbed", "killed"))
        assert left.read_bytes() == right.read_bytes(), form
    assert wait_until_gone(out) == []
