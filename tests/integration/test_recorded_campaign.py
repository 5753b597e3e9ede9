"""Real recordings through server and agent as separate processes; kills at any moment change nothing.

Four moments, ten by ``make kills``.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.readers.opening import read_launches
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.kills import MANY_KILLS

pytestmark = pytest.mark.processes

# Tenths of the time that an undisturbed campaign takes.
MOMENTS = range(10) if MANY_KILLS else (0, 3, 6, 9)

CAMPAIGN = """\
campaign: real-recordings
seed: 7
workloads:
  - name: training
    recordings:
      - {{device: V100, light: {data}/kineto/v100_training_19370_kernels.json.gz}}
  - name: input-dims
    recordings:
      - {{device: V100, light: {data}/kineto/v100_input_dims_9876_kernels.json.gz}}
      - {{device: A100, light: {data}/kineto/a100_input_dims_8568_kernels.json.gz}}
  - name: alexnet
    recordings:
      - {{device: A100, light: {data}/kineto/a100_alexnet_79_kernels.json.gz}}
  - name: nerf
    recordings:
      - {{device: A100, light: {data}/nsys/a100_nerf_1106_kernels.sqlite}}
"""
RUNS = [
    ("training", "V100", 19370),
    ("input-dims", "V100", 9876),
    ("input-dims", "A100", 8568),
    ("alexnet", "A100", 79),
    ("nerf", "A100", 1106),
]

SMALL_CAMPAIGN = """\
campaign: small
seed: 7
workloads:
  - name: alexnet
    recordings:
      - {{device: A100, light: {data}/kineto/a100_alexnet_79_kernels.json.gz}}
  - name: input-dims
    recordings:
      - {{device: V100, light: {data}/kineto/v100_input_dims_9876_kernels.json.gz}}
  - name: nerf
    recordings:
      - {{device: A100, light: {data}/nsys/a100_nerf_1106_kernels.sqlite}}
"""


def write_campaign(root: Path, text: str, data: Path) -> Path:
    path = root / "campaign.yaml"
    path.write_text(text.format(data=data))
    return path


def kineto_expected(path: Path) -> list[tuple[str, int]]:
    """Kernel names and durations in API order, by an independent reading of the whole document."""
    with gzip.open(path) as stream:
        events = json.load(stream, parse_float=Decimal)["traceEvents"]
    called = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") == "cuda_runtime" and "correlation" in e.get("args", {})
    }
    kernels = [e for e in events if e.get("cat") == "kernel" and e["ph"] == "X"]
    kernels.sort(
        key=lambda e: (
            called.get(e["args"]["correlation"], e["ts"]),
            e["args"]["correlation"],
            e["ts"],
        )
    )
    return [(e["name"], int(Decimal(e["dur"]) * 1000)) for e in kernels]


def nsys_expected(path: Path) -> list[tuple[str, int]]:
    query = """
        SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.demangledName
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
        ORDER BY r.start, k.start"""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query).fetchall()


def stored(laboratory: Lab, run_id: str) -> list[tuple[str, int]]:
    launches = read_launches(laboratory.server_state / "records" / run_id / "slice-00000.parquet")
    names = [launches.names[i] for i in launches.column("kernel_id").tolist()]
    assert launches.column("launch").tolist() == list(range(len(launches)))
    return list(zip(names, launches.column("duration_ns").tolist(), strict=True))


@pytest.mark.parametrize("listen", ["unix", pytest.param("tcp", marks=pytest.mark.campaigns)])
def test_store_and_report_hold_exactly_the_launches_of_the_files(shared_data: Path, listen: str) -> None:
    with lab(listen) as laboratory:
        laboratory.start_server()
        laboratory.start_agent()
        campaign = write_campaign(laboratory.root, CAMPAIGN, shared_data)
        campaign_id = laboratory.submit(campaign)
        assert laboratory.wait_for(campaign_id) == "done"
        files = re.findall(r"light: ([^}]+)}", campaign.read_text())
        assert len(files) == len(RUNS)
        for index, path in enumerate(map(Path, files)):
            expected = nsys_expected(path) if path.suffix == ".sqlite" else kineto_expected(path)
            assert stored(laboratory, f"{campaign_id}.{index:04d}") == expected, path.name
        check_report(laboratory.report(campaign_id))
        assert laboratory.stop("agent") == 0
        assert laboratory.stop("server") == 0


def check_report(report: dict[str, Any]) -> None:
    assert [(r["workload"], r["device"], r["launches"]) for r in report["runs"]] == RUNS
    for workload, device, launches in RUNS:
        rows = {r["method"]: r for r in report["rows"] if (r["workload"], r["device"]) == (workload, device)}
        assert rows["pks"]["status"] == "not applicable"
        assert rows["pks"]["reason"] == "PKS not applicable: no counters"
        for method in ("random", "systematic"):
            row = rows[method]
            if row["status"] == "refused":
                # Two GPUs that ran other launches cannot share a selection: said, not scored.
                assert row["selected_on"] != device
                continue
            assert row["status"] == "ok"
            assert row["launches"] == launches
            assert row["cost"]["unit"] == "ns"
            cost = row["cost"]
            error = 100 * abs(cost["projected"] - cost["total"]) / cost["total"]
            assert np.isclose(row["error_percent"], error)


@pytest.fixture(scope="module")
def undisturbed(shared_data: Path) -> tuple[dict[str, str], dict[str, Any], float]:
    """Store and report of a campaign that nobody disturbs, and the seconds it took."""
    with lab() as laboratory:
        laboratory.start_server()
        laboratory.start_agent()
        began = time.monotonic()
        campaign_id = laboratory.submit(write_campaign(laboratory.root, SMALL_CAMPAIGN, shared_data))
        assert laboratory.wait_for(campaign_id) == "done"
        return laboratory.store_digest(), laboratory.report(campaign_id), time.monotonic() - began


@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_nine_of_agent_then_server_at_any_moment_changes_nothing(
    shared_data: Path, undisturbed: tuple[dict[str, str], dict[str, Any], float], moment: int
) -> None:
    store, report, seconds = undisturbed
    with lab() as laboratory:
        laboratory.start_server()
        laboratory.start_agent()
        campaign_id = laboratory.submit(write_campaign(laboratory.root, SMALL_CAMPAIGN, shared_data))
        time.sleep(seconds * moment / 10)
        laboratory.kill("agent")
        laboratory.start_agent()
        # Never at the same moment of the campaign as the agent, also where both are early.
        time.sleep(seconds * ((3 * moment + 1) % 10) / 10)
        laboratory.kill("server")
        laboratory.start_server()
        assert laboratory.wait_for(campaign_id) == "done"
        assert laboratory.store_digest() == store
        assert laboratory.report(campaign_id) == report


def test_a_campaign_waits_for_its_first_agent(shared_data: Path) -> None:
    with lab() as laboratory:
        laboratory.start_server()
        campaign_id = laboratory.submit(write_campaign(laboratory.root, SMALL_CAMPAIGN, shared_data))
        assert laboratory.state(campaign_id) == "running"
        laboratory.start_agent()
        assert laboratory.wait_for(campaign_id) == "done"


def test_a_recording_that_cannot_be_read_fails_its_run_alone(shared_data: Path) -> None:
    with lab() as laboratory:
        whole = (shared_data / "kineto" / "a100_alexnet_79_kernels.json.gz").read_bytes()
        (laboratory.root / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
        text = SMALL_CAMPAIGN.replace(
            "{data}/kineto/v100_input_dims_9876_kernels.json.gz", f"{laboratory.root}/cut.json.gz"
        )
        laboratory.start_server()
        laboratory.start_agent()
        campaign_id = laboratory.submit(write_campaign(laboratory.root, text, shared_data))
        assert laboratory.wait_for(campaign_id) == "failed"
        status = json.loads(laboratory.assay("lab", "status", campaign_id, "--json").stdout)
        states = {r["run_id"].rsplit(".", 1)[1]: r["state"] for r in status["runs"]}
        assert states == {"0000": "done", "0001": "failed", "0002": "done"}
        failure = next(r["failure"] for r in status["runs"] if r["state"] == "failed")
        assert failure["failure_class"] == "input_unreadable"
        assert "cut.json.gz" in failure["subject"] + failure["cause"]
        assert failure["remedy"]
        report = laboratory.report(campaign_id)
        assert {r["workload"] for r in report["rows"] if r["status"] == "ok"} >= {"alexnet", "nerf"}


def test_cancel_ends_a_campaign(shared_data: Path) -> None:
    with lab() as laboratory:
        laboratory.start_server()
        campaign_id = laboratory.submit(write_campaign(laboratory.root, SMALL_CAMPAIGN, shared_data))
        laboratory.assay("lab", "cancel", campaign_id)
        wait_until(lambda: laboratory.state(campaign_id) == "cancelled", "the cancellation")
        assert laboratory.store_digest() == {}
