"""Needs attention, on a campaign's page: failures first, then invalid runs, then the rest, all counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.campaign import RunState
from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_server.app import Server
from assay_server.store.sqlite import SqliteStore
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.web_lab import WebLab, web_lab

_RUNS = 210  # three of each workload
CAMPAIGN = """\
campaign: large
synthetic: true
gpus: [V100]
workloads:
""" + "".join(f"  - {{name: w{i:03}, command: [w.toml]}}\n" for i in range(_RUNS // 3))
CAPPED = ValidityFlag("power_capped", "sw_power_cap in 3 of 40 samples")
THROTTLED = ValidityFlag("throttled_thermal", "sw_thermal in 9 of 40 samples", True)
LOST = Failure("device_lost", "GPU 0", "the GPU fell off the bus", "look at the log of the kernel")


@pytest.fixture
def lab(make_server: Callable[..., Server], short_path: Path) -> WebLab:
    lab = web_lab(make_server, short_path)
    with PlayingAgent(lab.server.addresses[-1]) as owner:
        owner.submit(CAMPAIGN)
    store = SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as write:
        runs = write.runs("large-1")
        assert len(runs) == _RUNS
        for number, run in enumerate(runs):
            flags = (CAPPED, THROTTLED) if number in (206, 207) else (CAPPED,)
            write.save_run(replace(run, flags=flags))
        write.save_run(replace(runs[208], state=RunState.FAILED, failure=LOST, flags=()))
        write.save_run(replace(runs[209], flags=()))
    store.close()
    return lab


def attention(html: str) -> list[tuple[str, str, str]]:
    """Of each entry: its class, its name, and how many runs it says it is about."""
    section = html.partition('<section aria-labelledby="h-noted">')[2].partition("</section>")[0]
    entries = re.findall(
        r'<li class="([^"]*)">\s*<p class="why"><strong>([^<]+)</strong>.*?([\d,]+) runs?:',
        section,
        re.DOTALL,
    )
    return [(kind, name, runs) for kind, name, runs in entries]


def test_a_failure_behind_two_hundred_flags_is_shown_first_and_all_runs_are_counted(lab: WebLab) -> None:
    with closing(lab.browser("owner")) as browser:
        html = browser.get("/campaigns/large-1").text
    assert attention(html) == [
        ("bad", "device_lost", "1"),
        ("bad", "throttled_thermal", "2"),
        ("", "power_capped", "208"),
    ]
    assert 'href="/runs/large-1.0208"' in html
    assert "Needs attention" in html


def test_many_kinds_of_failures_are_cut_after_the_most_frequent_ones_and_the_rest_is_counted(
    lab: WebLab,
) -> None:
    store = SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as write:
        for number, run in enumerate(write.runs("large-1")):
            why = replace(LOST, cause=f"error number {number if number < 200 else 200}")
            write.save_run(replace(run, state=RunState.FAILED, failure=why, flags=()))
    store.close()
    with closing(lab.browser("owner")) as browser:
        html = browser.get("/campaigns/large-1").text
    entries = attention(html)
    assert len(entries) == 50
    assert entries[0] == ("bad", "device_lost", "10")
    assert "error number 200" in html
    assert "151 more kinds of failures and flags, on 151 runs" in html
