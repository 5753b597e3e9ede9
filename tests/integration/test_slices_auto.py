"""A window that ends when nothing new comes, its cycles measured apart, on a virtual GPU: end to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.campaign import RunState
from assay_sampling.readers import read_launches
from assay_server.campaigns.slicing.learned import RECENT_SLICES, SliceCosts
from assay_server.store.model import Run, Slice
from assay_server.store.sqlite import SqliteStore
from tests.support.integration.harness import lab

# One worker runs the whole module: what its tests look at is made once, and takes long.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("slices_auto"),
]

# Another kind of launch in the third hundred; 6,000 launches in all, of which few need to be profiled.
WORKLOAD = """\
workload = "long"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[[phases]]
repeat = 250
steps = [{ kernel = "scale", grid = 64 }]
[[phases]]
repeat = 5750
steps = [{ kernel = "scale", grid = 128 }]
"""
CAMPAIGN = """\
campaign: auto
synthetic: true
gpus: [V100]
detailed: {first: auto, slice_launches: 200, sets: [cycles, features]}
conditions: [{cache: all}]
workloads: [{name: long, command: [long.toml]}]
analysis: {methods: [pks]}
"""


@pytest.fixture(scope="module")
def finished() -> Iterator[tuple[list[Run], dict[str, list[Slice]], dict[str, Any], Path]]:
    with lab(lease_ms=60_000, heartbeat_ms=1000) as laboratory:
        (laboratory.root / "long.toml").write_text(WORKLOAD)
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
            assert SliceCosts(read.slice_times(RECENT_SLICES)).measured(runs[0]) is not None
        store.close()
        yield runs, slices, report, laboratory.server_state / "records"


def test_each_detailed_run_ends_two_slices_behind_the_last_new_kind(finished: Any) -> None:
    runs, slices, _, _ = finished
    detailed = [run for run in runs if run.level == "detailed"]
    assert [(run.condition.cache, len(run.counters)) for run in detailed] == [
        ("none", 4),
        ("none", 15),
        ("all", 4),
    ]
    for run in detailed:
        assert run.state is RunState.DONE
        # The second slice has the last new kind, the next two have none, and one more may have begun.
        assert [piece.launches for piece in slices[run.run_id]] in ([200] * 4, [200] * 5)
        [flag] = [flag for flag in run.flags if flag.name == "window_cut"]
        assert "brought no new kind" in flag.detail


def test_cycles_took_one_pass_and_features_three(finished: Any) -> None:
    runs, slices, _, records = finished
    passes = [
        set(read_launches(records / slices[run.run_id][0].file).column("replay_passes").tolist())
        for run in runs
        if run.level == "detailed"
    ]
    assert passes == [{1.0}, {3.0}, {1.0}]


def test_the_report_rests_on_both_runs_and_compares_flushed_with_one_pass(finished: Any) -> None:
    runs, _, report, _ = finished
    [row] = report["rows"]
    assert row["status"] == "ok", row["reason"]
    assert set(row["runs"]) == {run.run_id for run in runs if run.condition.cache == "none"}
    [entry] = report["cold_start"]
    assert entry["status"] == "ok", entry["reason"]
    assert entry["launches"] in (800, 1000)
    assert {flag["name"] for flag in row["flags"]} == {"window_cut"}
