"""Every verb that reads a file says what it reads where it is given nothing of the kind."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.recordings.analyses import select
from tests.support.client import hand_made

Assay = Callable[..., Any]

BAD = "BAD"
GOOD = ("good.csv", "selection.json", "table.csv", "simulation.txt")
RECORDING = r"recording|Nsight Compute|profiler wrote nothing"
SELECTION = r"assay select METHOD FILE -o selection\.json"
SIMULATION = r"standard output of Accel-Sim, its interval log, or a CSV with cycles,instructions,ctas"
TABLE = r"columns workload,size,size_unit,ipc,mpki,f_mem"
TRACES = r"kernelslist\.g"
CAMPAIGN = r"campaign"

SIMULATED = """-gpgpu_n_clusters 2 # x
-gpgpu_n_cores_per_cluster 1 # x
-kernel name = _Z1kv
-kernel id = 3
-grid dim = (320,1,1)
-block dim = (32,1,1)
launching kernel name: _Z1kv uid: 1
GPGPU-Sim uArch: CTA/core = 16, limited by: x
kernel_name = _Z1kv
kernel_launch_uid = 1
gpu_sim_cycle = 20400
gpu_sim_insn = 2040000
gpu_tot_sim_insn = 2040000
gpu_tot_issued_cta = 320
GPGPU-Sim: *** exit detected ***
"""

# What is given, and what each remedy must name: that which the verb reads there.
READERS = [
    (["inspect", BAD], RECORDING),
    (["select", "pks", BAD], RECORDING),
    (["select", "pks", "good.csv", "--light", BAD], RECORDING),
    (["compare", BAD], RECORDING),
    (["compare", "good.csv", "--light", BAD], RECORDING),
    (["classify", BAD, "--light", "good.csv"], RECORDING),
    (["classify", "good.csv", "--light", BAD], RECORDING),
    (["evaluate", BAD, "good.csv"], SELECTION),
    (["evaluate", "selection.json", BAD], RECORDING),
    (["evaluate", "selection.json", "good.csv", BAD], RECORDING),
    (["project", BAD], SIMULATION),
    (
        ["project", "simulation.txt", "--intervals", BAD],
        r"interval log|log that -visualizer_enabled 1 writes",
    ),
    (["scale-model", "evaluate", BAD], TABLE),
    (["scale-model", "predict", BAD], TABLE),
    (["scale-model", "predict", "table.csv", "--calibration", BAD], TABLE),
    (["scale-model", "miss-rates", BAD, "--capacity", "1MiB"], TRACES),
    (["cold-start", BAD, "good.csv"], r"recordings with counters, or two standard outputs of Accel-Sim"),
    (["cold-start", "good.csv", BAD], r"recordings with counters, or two standard outputs of Accel-Sim"),
    (["reuse", BAD], TRACES),
    (["import", BAD, "--workload", "w", "--device", "V100", "--state", "state"], RECORDING),
    (["import", "--light", BAD, "--workload", "w", "--device", "V100", "--state", "state"], RECORDING),
    (["plan", BAD], CAMPAIGN),
    (["run", BAD, "--state", "state"], CAMPAIGN),
    (["lab", "submit", BAD, "--server", "unix:/nowhere"], CAMPAIGN),
]


def make_empty(path: Path) -> None:
    path.touch()


def make_garbage(path: Path) -> None:
    # No text, no magic number, and line ends of every kind.
    path.write_bytes(bytes([0xD8, 0, 13, 7, 10]) * 400)


def make_missing(_path: Path) -> None:
    pass


def make_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def make_unreadable(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)


FAULTS = [make_empty, Path.mkdir, make_garbage, make_missing, make_link_to_itself, make_unreadable]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    hand_made.write_raw_page(folder / "good.csv", 40)
    selection = select("random", folder / "good.csv", parameters={"launches": 4})
    (folder / "selection.json").write_text(json.dumps(selection.document(labels=True).to_dict()))
    (folder / "table.csv").write_text(
        "workload,size,ipc,mpki,f_mem\n" + "w,8,10,5,0.1\nw,16,20,5,0.1\nw,32,,5,\n"
    )
    (folder / "simulation.txt").write_text(SIMULATED)
    return folder


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose mode refuses even the superuser, as it does everybody else."""
    path = tmp_path / "bad.file"

    def refused(file: object) -> bool:
        return file in (path, str(path)) and path.is_file() and not path.stat().st_mode & 0o777

    def opened(file: Any, *arguments: Any, **settings: Any) -> Any:
        if refused(file):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return plainly(file, *arguments, **settings)

    plainly, access = io.open, os.access
    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(os, "access", lambda file, mode, **s: not refused(file) and access(file, mode, **s))
    return path


@pytest.mark.parametrize("make", FAULTS, ids=lambda make: make.__name__.removeprefix("make_"))
@pytest.mark.parametrize("case", READERS, ids=lambda case: " ".join(case[0])[:40])
def test_the_remedy_names_what_the_verb_reads(
    assay: Assay,
    good: Path,
    bad: Path,
    case: tuple[list[str], str],
    make: Callable[[Path], None],
) -> None:
    make(bad)
    arguments, words = case
    places = {BAD: bad, **{name: good / name for name in GOOD}, "state": bad.with_name("state")}
    ended = assay(*(places.get(word, word) for word in arguments))
    assert (ended.code, ended.stdout) == (4 if words is CAMPAIGN else 3, "")
    assert ended.stderr.startswith(f"error: {bad}")
    remedy = ended.stderr.split("; ", 1)[1]
    assert re.search(words, remedy), ended.stderr
    if words is not RECORDING:
        # No profiler made these files.
        assert not re.search(r"the profiler|its log|record it again", remedy), ended.stderr
