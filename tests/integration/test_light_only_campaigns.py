"""Campaigns of light runs alone (``detailed: none``): live where counters are refused, and recorded.

The live one is synthetic: virtual GPUs and the stand-ins of NVIDIA's tools.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.integration.harness import BIN, lab

WORKLOAD = """\
workload = "layers"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = [128, 1, 1]
instructions = 4000
global_loads = 4
[kernels.reduce]
name = "void reduce<float>(float*, int)"
block = [256, 1, 1]
instructions = 90000
global_loads = 20
[[phases]]
repeat = 150
steps = [{ kernel = "scale", grid = [4096, 1, 1] }, { kernel = "reduce", grid = [512, 1, 1] }]
"""
# Whatever asked for counters would end as it does where the driver refuses them.
LIVE = """\
campaign: cloud
synthetic: true
gpus: [V100, RTX 3070]
detailed: none
conditions: [{sm_percent: 50}]
bare: true
workloads:
  - {name: layers, command: [./layers.toml], environment: {ASSAY_VIRTUAL_FAULTS: permission}}
"""
RECORDED = """\
campaign: files
detailed: none
workloads:
  - name: training
    recordings:
      - {device: V100, light: DATA/v100_input_dims_9876_kernels.json.gz}
      - {device: V100 again, light: DATA/v100_input_dims_9876_kernels.json.gz}
  - name: alexnet
    recordings:
      - {device: A100, light: DATA/a100_alexnet_79_kernels.json.gz}
"""
METHODS = ["stem", "stratified", "random", "systematic"]
SAID = "Light runs only, without counters"


def facts(report: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(r["workload"], r["device"], r["method"], r["status"]) for r in report["rows"]]


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.campaigns
def test_a_live_campaign_where_counters_are_refused() -> None:
    with lab(lease_ms=60_000, heartbeat_ms=1000) as laboratory:
        (laboratory.root / "layers.toml").write_text(WORKLOAD)
        (laboratory.root / "cloud.yaml").write_text(LIVE)
        laboratory.start_server()
        laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100", "--virtual=RTX 3070")
        campaign_id = laboratory.submit(laboratory.root / "cloud.yaml")
        assert laboratory.wait_for(campaign_id, 200) == "done", laboratory.logs()
        report = laboratory.report(campaign_id)
        written = laboratory.root / "written"
        laboratory.assay("report", campaign_id, "-o", str(written))
        laboratory.assay("report", campaign_id, "--format", "markdown", "-o", str(written))
        shown = laboratory.assay("report", campaign_id).stdout
        pages = [shown, *((written / name).read_text() for name in ("report.html", "report.md"))]
    assert facts(report) == [
        ("layers", gpu, method, "ok") for gpu in ("V100", "RTX 3070") for method in METHODS
    ]
    assert {run["level"] for run in report["runs"]} == {"light", "bare"}
    assert report["failed_runs"] == []
    for row in report["rows"]:
        assert (row["cost"]["quantity"], row["selected_on"]["device"], row["launches"]) == (
            "duration_ns", "V100", 300,
        )  # fmt: skip
        assert row["error_percent"] is not None
    bound = next(row for row in report["rows"] if (row["method"], row["device"]) == ("stem", "V100"))
    assert bound["error_percent"] < 5
    # The selection of the V100 beside the other GPU, in every form of the report.
    assert [entry["method"] for entry in report["summary"]] == ["stem", "stem"]
    assert {entry["device"] for entry in report["sm_share"]} == {"V100", "RTX 3070"}
    for page in pages:
        assert SAID in page
        assert "no silicon produced" in page
        for word in (*METHODS, "V100", "RTX 3070"):
            assert word in page
        for word in ("not applicable", "ERR_NVGPUCTRPERM", "accuracy, chronological", "unknown launches"):
            assert word not in page


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_light_recordings_in_one_process(shared_data: Path, tmp_path: Path) -> None:
    campaign = tmp_path / "files.yaml"
    campaign.write_text(RECORDED.replace("DATA", str(shared_data / "kineto")))
    command = [str(BIN / "assay"), "run", str(campaign), "--state", str(tmp_path / "state"), "--json"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    report = document.get("report", document)
    # One file as the recording of two GPUs proves nothing.
    assert [fact for fact in facts(report) if fact[3] != "ok"] == [
        ("training", "V100 again", method, "refused") for method in METHODS
    ]
    assert len(report["rows"]) == 3 * len(METHODS)
    assert {run["level"] for run in report["runs"]} == {"light"}
    by = {(row["workload"], row["device"], row["method"]): row for row in report["rows"]}
    first, again = (by["training", device, "stem"] for device in ("V100", "V100 again"))
    assert first["launches"] == 9876
    assert first["error_percent"] < 5
    assert again["error_percent"] is None
    assert "one recording was given for both GPUs" in again["reason"]
    assert again["selected_on"]["device"] == "V100"
