from __future__ import annotations

import filecmp
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from assay_client.demo_data import write_demo_data
from assay_client.demo_workloads import GPUS, WORKLOADS
from assay_sampling.alignment import align, align_window
from assay_sampling.counters import features_of, require_counters
from assay_sampling.launches import Launches
from assay_sampling.readers import read_launches

# Launches of each workload at seed 0: all of them, and the window with counters.
EXPECTED = {"training": (11782, 1500), "inference": (7700, 1200), "traversal": (12423, 2000)}


@pytest.fixture(scope="module")
def campaign_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_data(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def campaign(campaign_file: Path) -> dict[str, Any]:
    document = yaml.safe_load(campaign_file.read_text())
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def recordings(campaign_file: Path, campaign: dict[str, Any]) -> dict[tuple[str, str], dict[str, Launches]]:
    return {
        (workload["name"], entry["device"]): {
            level: read_launches(campaign_file.parent / entry[level]) for level in ("light", "detailed")
        }
        for workload in campaign["workloads"]
        for entry in workload["recordings"]
    }


def test_campaign_names_everything_that_was_written(campaign_file: Path, campaign: dict[str, Any]) -> None:
    assert campaign["synthetic"] is True
    assert [w["name"] for w in campaign["workloads"]] == list(EXPECTED)
    assert campaign["analysis"]["reference"] == "synthetic V100"
    named = {
        entry[level]
        for workload in campaign["workloads"]
        for entry in workload["recordings"]
        for level in ("light", "detailed")
    }
    assert named | {campaign_file.name} == {path.name for path in campaign_file.parent.iterdir()}
    assert len(named) == 2 * 3 * 3


def test_every_file_says_that_it_is_synthetic(campaign_file: Path) -> None:
    for path in campaign_file.parent.glob("*.csv"):
        assert "synthetic recording" in path.read_text().splitlines()[1]
    for path in campaign_file.parent.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as database:
            facts = dict(database.execute("SELECT name, value FROM EXPORT_META_DATA"))
            (device,) = database.execute("SELECT name FROM TARGET_INFO_GPU").fetchall()
        assert facts["ASSAY_SYNTHETIC"].startswith("synthetic recording")
        assert device[0].startswith("synthetic ")


def test_readers_find_every_launch(recordings: dict[tuple[str, str], dict[str, Launches]]) -> None:
    assert {gpu for _, gpu in recordings} == {gpu.label for gpu in GPUS}
    for (workload, gpu), levels in recordings.items():
        light, detailed = levels["light"], levels["detailed"]
        assert (len(light), len(detailed)) == EXPECTED[workload]
        assert light.metadata.level == "light"
        assert detailed.metadata.level == "detailed"
        assert light.metadata.synthetic and detailed.metadata.synthetic
        assert light.device_labels() == [gpu]
        require_counters(detailed.table, features_of("table2"), gpu)
        assert {"cycles_gpc_avg", "profiled_duration_ns"} <= set(detailed.counters)
        assert align_window(detailed, light).match_percent == 100.0
        np.testing.assert_array_equal(light.column("launch"), np.arange(len(light)))


def test_every_gpu_launches_the_same_in_its_own_time(
    recordings: dict[tuple[str, str], dict[str, Launches]],
) -> None:
    for workload in EXPECTED:
        lights = [recordings[workload, gpu.label]["light"] for gpu in GPUS]
        totals = [int(light.column("duration_ns").sum()) for light in lights]
        assert totals[0] > totals[1] > totals[2] > 0
        for light in lights[1:]:
            assert align(lights[0], light, "exact").match_percent == 100.0


def test_one_kernel_appears_only_after_the_window(
    recordings: dict[tuple[str, str], dict[str, Launches]],
) -> None:
    for workload, unknown in (("training", 1), ("inference", 0), ("traversal", 0)):
        levels = recordings[workload, GPUS[0].label]
        assert levels["light"].kernels() - levels["detailed"].kernels() == unknown


def test_launches_have_their_nvtx_path(recordings: dict[tuple[str, str], dict[str, Launches]]) -> None:
    light = recordings["training", GPUS[0].label]["light"]
    paths = {light.names[int(i)] for i in np.unique(light.column("nvtx_id"))}
    assert len(paths) == 4
    assert all("step" in path for path in paths)
    for phase in ("forward", "backward", "optimizer", "validation"):
        assert any(phase in path for path in paths)


def test_launches_do_not_overlap(recordings: dict[tuple[str, str], dict[str, Launches]]) -> None:
    light = recordings["traversal", GPUS[2].label]["light"]
    end_ns = light.column("start_ns") + light.column("duration_ns")
    assert (light.column("start_ns")[1:] >= end_ns[:-1]).all()


def test_first_launches_are_cold(recordings: dict[tuple[str, str], dict[str, Launches]]) -> None:
    detailed = recordings["training", GPUS[0].label]["detailed"]
    names = [detailed.names[int(i)] for i in detailed.column("kernel_id")]
    optimizer = np.array([name.startswith("void adam_step") for name in names])
    cycles = detailed.column("cycles_gpc_avg")[optimizer]
    assert len(cycles) > 100
    assert 1.06 < cycles[0] / np.median(cycles[1:]) < 1.12
    assert cycles[1:].std() / cycles[1:].mean() < 0.01


def test_same_seed_same_bytes(campaign_file: Path, tmp_path: Path) -> None:
    again = write_demo_data(tmp_path / "again")
    names = sorted(path.name for path in campaign_file.parent.iterdir())
    same, different, odd = filecmp.cmpfiles(campaign_file.parent, again.parent, names, shallow=False)
    assert (same, different, odd) == (names, [], [])
    other = write_demo_data(tmp_path / "other", seed=1)
    _, different, _ = filecmp.cmpfiles(campaign_file.parent, other.parent, names, shallow=False)
    assert different == names


def test_writing_again_replaces(tmp_path: Path) -> None:
    first = write_demo_data(tmp_path, seed=1).read_bytes()
    assert write_demo_data(tmp_path, seed=0).read_bytes() != first
    assert len(list(tmp_path.iterdir())) == 1 + 2 * len(GPUS) * len(WORKLOADS)
