"""A workload that traces itself, through a server and an agent: two levels joined, operators and all.

kineto_workload.py of tests/support makes the trace up, and a virtual GPU the counters: all of it is
synthetic.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from assay_sampling.readers.opening import read_launches
from assay_server.store.sqlite import SqliteStore
from tests.support.integration.harness import lab
from tests.support.integration.made_workload import one_kernel

SUPPORT = Path(__file__).parents[1] / "support" / "agent"
# The very launches of the trace, for the stand-in of Nsight Compute.
WORKLOAD = one_kernel("traced")
CAMPAIGN = """\
campaign: traced
synthetic: true
gpus: [V100]
detailed: {first: 20, sets: features}
workloads:
  - {name: traced, command: [./traced.py, traced.toml], kineto: out/traced.json}
  - {name: silent, command: [./traced.py, traced.toml, writes_nothing], kineto: silent.json}
analysis: {methods: [pks]}
"""


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_campaign_of_a_workload_that_traces_itself() -> None:
    with lab(lease_ms=60_000, heartbeat_ms=1000) as laboratory:
        root = laboratory.root
        (root / "traced.toml").write_text(WORKLOAD)
        (root / "traced.yaml").write_text(CAMPAIGN)
        script = root / "traced.py"
        script.write_text(f"#!{sys.executable}\n" + (SUPPORT / "kineto_workload.py").read_text())
        script.chmod(0o755)
        laboratory.start_server()
        laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")
        campaign_id = laboratory.submit(root / "traced.yaml")
        assert laboratory.wait_for(campaign_id, 200) == "failed", laboratory.logs()
        report = laboratory.report(campaign_id)
        for name in list(laboratory.processes):
            assert laboratory.stop(name) == 0
        store = SqliteStore(laboratory.server_state / "metadata.sqlite")
        with store.snapshot() as read:
            runs = read.runs(campaign_id)
            [piece] = read.slices(runs[1].run_id)
        store.close()
        light = read_launches(laboratory.server_state / "records" / piece.file)
    assert [(run.workload, run.level, run.profiler, str(run.state)) for run in runs] == [
        ("traced", "detailed", "nsight_compute", "done"),
        ("traced", "light", "kineto", "done"),
        ("silent", "detailed", "nsight_compute", "done"),
        ("silent", "light", "kineto", "failed"),
    ]
    operators = [light.names[key] for key in light.column("operator_id").tolist()]
    assert Counter(operators) == {"aten::mul": 30, "aten::mm": 30}
    assert {light.names[key] for key in light.column("input_shapes_id").tolist()} == {
        "[[8,16]]", "[[64,128],[128,256]]",
    }  # fmt: skip
    # The two levels match, and the light run's own nanoseconds are the truth.
    row = next(row for row in report["rows"] if row["workload"] == "traced")
    assert (row["status"], row["window"]["matched_launches"]) == ("ok", 20), row["reason"]
    assert row["cost"]["total"] == 30 * (4_000 + 20_000)
    # The other workload's failure says what to do.
    failure = runs[3].failure
    assert failure is not None and failure.failure_class == "nothing_profiled"
    assert "wrote no trace" in failure.cause and "export_chrome_trace" in failure.remedy
