"""No number of a campaign file makes a server hold more than 1 GiB, or think for more than ten seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.campaign_numbers import MEMORY_BYTES, settings

ROOT = Path(__file__).resolve().parents[2]
# What makes more is foreseen only, and of the pairs every fifth is walked; "make campaigns" plans
# all that stand alone, "make campaign-numbers" all pairs, which takes five minutes.
_ROWS_ALONE = 25_000
_ROWS_OF_A_PAIR = 10_000
_PARTS = 5
_EVERY_ROW = 1_000_000
# The baseline is not a condition, and one workload cannot wait for a hundred.
NEVER_ALONE = ["conditions.[].sm_percent=100", "workloads.[].after=100 entries"]


def walked(*arguments: object) -> dict[str, Any]:
    """What a walk in a process of its own saw, whose bounds hold for each case."""
    command = [sys.executable, "-m", "tests.support.server.campaign_numbers", *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen: dict[str, Any] = json.loads(ended.stdout)
    assert seen["peak_bytes"] < MEMORY_BYTES
    return seen


def test_the_numbers_come_from_the_schema() -> None:
    names = {".".join(each.path) for each in settings()}
    assert {"detailed.first", "repeat.at_most", "workloads.[].gang", "conditions.[].sm_percent"} <= names
    assert len(names) > 30


def test_every_number_alone() -> None:
    seen = walked("alone", _ROWS_ALONE)
    assert seen["planned"] > 4 * (seen["refused"] + seen["foreseen"])
    assert seen["foreseen"] > 0
    assert seen["always_refused"] == NEVER_ALONE


@pytest.mark.campaigns
def test_every_number_alone_is_planned() -> None:
    seen = walked("alone", _EVERY_ROW)
    assert seen["planned"] > seen["refused"]
    assert "foreseen" not in seen
    assert seen["always_refused"] == NEVER_ALONE


def test_pairs_of_numbers() -> None:
    seen = walked("pairs", _ROWS_OF_A_PAIR, 0, _PARTS)
    assert seen["planned"] > seen["refused"] > 0
    assert seen["foreseen"] > 0
    assert {*seen["always_refused"]} <= {*NEVER_ALONE}


@pytest.mark.campaigns
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    os.environ.get("ASSAY_CAMPAIGNS") != "full", reason="minutes of plans: 'make campaign-numbers' runs it"
)
@pytest.mark.parametrize("part", [0, 1])
def test_every_pair_of_numbers_is_planned(part: int) -> None:
    seen = walked("pairs", _EVERY_ROW, part, 2)
    assert "foreseen" not in seen
