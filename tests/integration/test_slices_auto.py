"""Slices chosen from the light run, cycles measured apart, on a virtual GPU: end to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_client.api import Client
from assay_core.records.campaign import RunState
from assay_sampling.readers.opening import read_launches
from assay_server.campaigns.slicing.published import RECENT_SLICES, SliceCosts
from assay_server.store.model import Run, Slice
from assay_server.store.sqlite import SqliteStore
from tests.support.integration.harness import lab, wait_until

# One worker runs the whole module: what its tests look at is made once, and takes long.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("slices_auto"),
]

# Another grid after 250 launches, and another kernel after 5,000 of 6,000: a window of the first launches
# that ends when nothing new comes would never see it.
WORKLOAD = """\
workload = "late"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[kernels.reduce]
name = "void reduce<float>(float*, float*, int)"
block = 256
instructions = 9000
global_loads = 8
[[phases]]
repeat = 250
steps = [{ kernel = "scale", grid = 64 }]
[[phases]]
repeat = 4750
steps = [{ kernel = "scale", grid = 128 }]
[[phases]]
repeat = 1000
steps = [{ kernel = "reduce", grid = 96 }]
"""
CAMPAIGN = """\
campaign: auto
synthetic: true
gpus: [V100]
detailed: {first: auto, unseen_percent: 1, slice_launches: 200, sets: [cycles, features]}
conditions: [{cache: all}]
workloads: [{name: late, command: [late.toml]}]
analysis: {methods: [pks]}
"""


@pytest.fixture(scope="module")
def finished() -> Iterator[tuple[list[Run], dict[str, list[Slice]], dict[str, Any], Path]]:
    with lab(lease_ms=60_000, heartbeat_ms=1000) as laboratory:
        (laboratory.root / "late.toml").write_text(WORKLOAD)
        path = laboratory.root / "auto.yaml"
        path.write_text(CAMPAIGN)
        laboratory.start_server()
        laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")
        campaign_id = laboratory.submit(path)
        assert laboratory.wait_for(campaign_id, 300) == "done", laboratory.logs()
        report = laboratory.report(campaign_id)
        for name in list(laboratory.processes):
            assert laboratory.stop(name) == 0
        store = SqliteStore(laboratory.server_state / "metadata.sqlite")
        with store.snapshot() as read:
            runs = read.runs(campaign_id)
            slices = {run.run_id: read.slices(run.run_id) for run in runs}
            assert SliceCosts(read.slice_times(RECENT_SLICES)).of(runs[0]) != SliceCosts().of(runs[0])
        store.close()
        yield runs, slices, report, laboratory.server_state / "records"


def detailed(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.level == "detailed"]


def test_every_detailed_run_measures_the_slices_that_the_light_run_asks_for(finished: Any) -> None:
    runs, slices, _, _ = finished
    assert [(run.condition.cache, len(run.counters)) for run in detailed(runs)] == [
        ("none", 4),
        ("none", 15),
        ("all", 4),
    ]
    [light] = [run for run in runs if run.level == "light"]
    for run in detailed(runs):
        assert (run.state, run.flags) == (RunState.DONE, ())
        plan = run.plan
        assert plan is not None and plan.light_run == light.run_id
        assert [(piece.launch_skip, piece.launches) for piece in slices[run.run_id]] == [
            (piece.launch_skip, piece.launch_count) for piece in plan.slices
        ]
        # Most light time is in the second grid and in the kernel that comes late. A slice over the border
        # sees both and is worth 4,801 skipped launches; the first grid takes another slice.
        assert [(piece.launch_skip, piece.launch_count) for piece in plan.slices] == [(4801, 200), (0, 200)]
        assert (plan.ending, plan.unseen_percent) == ("unseen", 0.0)


def test_cycles_took_one_pass_and_features_three(finished: Any) -> None:
    runs, slices, _, records = finished
    passes = [
        set(read_launches(records / slices[run.run_id][0].file).column("replay_passes").tolist())
        for run in detailed(runs)
    ]
    assert passes == [{1.0}, {3.0}, {1.0}]


def test_the_report_rests_on_both_runs_and_compares_flushed_with_one_pass(finished: Any) -> None:
    runs, _, report, _ = finished
    [row] = report["rows"]
    assert row["status"] == "ok", row["reason"]
    assert set(row["runs"]) == {run.run_id for run in runs if run.condition.cache == "none"}
    assert row["unseen_time_percent"] == 0.0
    assert (row["window"]["slices"], row["window"]["launches"]) == (2, 400)
    assert row["flags"] == []
    assert row["error_percent"] < 20.0
    [chosen] = report["chosen_slices"]
    assert chosen["runs"] == [run.run_id for run in detailed(runs)]
    assert (chosen["ending"], chosen["unseen_time_percent"], chosen["launches"]) == ("unseen", 0.0, 6000)
    assert [(s["first_launch"], s["launches"], s["measured"]) for s in chosen["slices"]] == [
        (4801, 200, True),
        (0, 200, True),
    ]
    assert sum(s["new_time_percent"] for s in chosen["slices"]) == pytest.approx(100.0)
    [entry] = report["cold_start"]
    assert entry["status"] == "ok", entry["reason"]
    assert entry["launches"] == 400


def test_a_campaign_killed_between_slices_continues_with_the_same_slices(finished: Any) -> None:
    _, _, undisturbed, _ = finished
    with lab(lease_ms=5_000, heartbeat_ms=500) as laboratory:
        (laboratory.root / "late.toml").write_text(WORKLOAD)
        path = laboratory.root / "auto.yaml"
        path.write_text(CAMPAIGN)
        laboratory.start_server()
        laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")
        campaign_id = laboratory.submit(path)

        with Client(laboratory.address) as client:

            def a_slice_is_done() -> bool:
                runs = client.status(campaign_id)["runs"]
                return any(run["level"] == "detailed" and run["slices_done"] for run in runs)

            wait_until(a_slice_is_done, "the first slice", 120)
        laboratory.kill("server")
        laboratory.kill("agent")
        laboratory.start_server()
        laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")
        assert laboratory.wait_for(campaign_id, 300) == "done", laboratory.logs()
        report = laboratory.report(campaign_id)
    for part in ("chosen_slices", "rows", "cold_start"):
        assert report[part] == undisturbed[part]
