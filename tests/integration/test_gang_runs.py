"""A run over several virtual GPUs of one box, from the campaign file to the report; one of its GPUs is lost.

Everything is synthetic.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay_agent.health.quarantine import Quarantine
from assay_client.local import run_campaign
from assay_core.records.campaign import AttemptState
from assay_sampling.launches.table import table_metadata
from assay_server.store.sqlite import SqliteStore

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

WORKLOAD = """\
workload = "small"
seed = 1
[kernels.one]
name = "one"
block = 256
instructions = 100
[[phases]]
repeat = 12
steps = [{ kernel = "one", grid = 40 }]
"""
CAMPAIGN = """\
campaign: ranks
synthetic: true
gpus: [V100]
detailed: none
workloads:
  - name: pair
    command: [small.toml]
    gang: 2
    environment: {ASSAY_VIRTUAL_FAULTS: "gpu_lost:GPU-virtual-V100-0"}
  - {name: three, command: [small.toml], gang: 3, after: [pair]}
analysis: {methods: [random]}
"""


def test_a_gang_is_measured_whole_and_goes_on_without_a_gpu_that_it_lost(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    (tmp_path / "ranks.yaml").write_text(CAMPAIGN)
    outcome = run_campaign(tmp_path / "ranks.yaml", tmp_path / "s", virtual_gpus=["V100:4"])
    assert outcome.status["state"] == "done"
    [lost] = Quarantine(tmp_path / "s" / "agent").entries()
    assert lost.gpu.startswith("GPU-virtual-V100-0")
    store = SqliteStore(tmp_path / "s" / "server" / "metadata.sqlite")
    with store.snapshot() as read:
        tries, [three] = (read.attempts(f"ranks-1.000{number}") for number in range(2))
    store.close()
    # Whichever slot leads: the other GPU of a pair is the first of the box, or the pair's leader is.
    failed = [attempt for attempt in tries if attempt.state is AttemptState.FAILED]
    assert len(failed) == 1 and lost.gpu in failed[0].slots
    assert failed[0].failure is not None and failed[0].failure.failure_class == "gpu_lost"
    assert not {lost.gpu} & {*tries[-1].slots, *three.slots}
    assert tries[-1].state is three.state is AttemptState.PUBLISHED
    visible = three.log.environment["CUDA_VISIBLE_DEVICES"].split(",")
    assert set(visible) == set(three.slots) and visible == sorted(visible)
    table = pq.read_table(tmp_path / "s" / "server" / "records" / "ranks-1.0001" / "slice-00000.parquet")
    assert [device.uuid for device in table_metadata(table.schema).devices] == visible
    ranks = zip(table["process"].to_pylist(), table["device"].to_pylist(), strict=True)
    assert sorted(set(ranks)) == [(0, 0), (1, 1), (2, 2)] and table.num_rows == 36
    assert [each["gpu"] for each in json.loads(three.log.telemetry_json)["gang"]] == [
        uuid for uuid in visible if uuid != three.slot_id
    ]
