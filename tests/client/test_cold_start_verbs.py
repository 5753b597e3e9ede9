"""``assay cold-start`` and ``assay reuse``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_core.files.launch_file import new_launch_file
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording
from assay_sampling.running.identity import Condition
from tests.support.client import hand_made

Assay = Callable[..., Any]

TRACE = """-kernel name = _Z4kernPf
-kernel id = {number}
-grid dim = (1,1,1)
-block dim = (32,1,1)
-shmem = 0
-nregs = 16
-binary version = 80
-cuda stream id = 0
-accelsim tracer version = 5
-enable lineinfo = 0

#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [mem_addresses] immediate

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = 3
0000 ffffffff 1 R1 MOV 0 0 0
0010 ffffffff 1 R6 LDG.E 1 R2 4 1 0x{address:x} 4 0
0020 ffffffff 0 EXIT 0 0 0

#END_TB
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Three launches; each touches one line, the second half of what the first does, the third another."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for number, address in ((1, 0), (2, 64), (3, 4096)):
        (folder / f"kernel-{number}.traceg").write_text(TRACE.format(number=number, address=address))
    path = folder / "kernelslist.g"
    path.write_text("MemcpyHtoD,0x0000000000000000,128\nkernel-1.traceg\nkernel-2.traceg\nkernel-3.traceg\n")
    return path


def test_reuse_of_a_list(assay: Assay, kernels: Path) -> None:
    document = json.loads(assay("reuse", kernels, "--json").stdout)
    assert [launch["launch"] for launch in document["launches"]] == [1, 2, 3]
    first, second, third = (launch["forward_reuse"] for launch in document["launches"])
    assert first == {"byte": 0.5, "sector": 0.5, "line": 1.0}
    assert second == {"byte": 0.0, "sector": 0.0, "line": 0.0}
    assert third == {"byte": None, "sector": None, "line": None}
    assert document["launches"][0]["footprint"] == {"byte": 32, "sector": 4, "line": 1}
    shown = assay("reuse", kernels)
    assert shown.code == 0
    assert "0.500" in shown.stdout
    alone = [kernels.with_name(f"kernel-{number}.traceg") for number in (2, 3)]
    assert len(json.loads(assay("reuse", *alone, "--json").stdout)["launches"]) == 2


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_warm_up_list_alone_is_shown_and_writes_nothing(assay: Assay, kernels: Path) -> None:
    before = contents(kernels.parent)
    document = json.loads(assay("reuse", kernels, "--warm-up", 3, "--json").stdout)
    assert document["warm_up"]["lines"] == ["kernel-mem-2.traceg", "kernel-3.traceg"]
    assert (document["warm_up"]["list"], document["warm_up"]["written_traces"]) == (None, [])
    shown = assay("reuse", kernels, "--warm-up", 3).stdout
    assert "not written" in shown and "--output" in shown
    assert contents(kernels.parent) == before


def test_a_warm_up_list_and_the_traces_that_it_names(assay: Assay, kernels: Path, tmp_path: Path) -> None:
    before = contents(kernels.parent)
    target = tmp_path / "warm" / "list.g"
    document = json.loads(assay("reuse", kernels, "--warm-up", 3, "-o", target, "--json").stdout)
    replay, link = target.with_name("kernel-mem-2.traceg"), target.with_name("kernel-3.traceg")
    assert document["warm_up"] == {
        "list": str(target),
        "lines": ["kernel-mem-2.traceg", "kernel-3.traceg"],
        "written_traces": [str(replay)],
        "linked_traces": [str(link)],
    }
    assert target.read_text() == "kernel-mem-2.traceg\nkernel-3.traceg\n"
    assert "insts = 2" in replay.read_text()
    assert "MOV" not in replay.read_text()
    assert link.is_symlink() and link.read_bytes() == kernels.with_name("kernel-3.traceg").read_bytes()
    # What the list names is where the simulator looks for it, and can be read as a trace.
    assert [launch["launch"] for launch in json.loads(assay("reuse", target, "--json").stdout)["launches"]]
    assert contents(kernels.parent) == before


def test_a_warm_up_list_replaces_nothing_unasked(assay: Assay, kernels: Path, tmp_path: Path) -> None:
    before = contents(kernels.parent)
    ended = assay("reuse", kernels, "--warm-up", 3, "-o", kernels.with_name("kernelslist.warm.g"))
    assert (ended.code, ended.stdout) == (2, "")
    assert "in the folder of the traces" in ended.stderr and "--force" in ended.stderr
    there = tmp_path / "there"
    there.mkdir()
    for name in ("list.g", "kernel-mem-2.traceg", "kernel-3.traceg"):
        mine = there / name
        mine.write_text("mine")
        ended = assay("reuse", kernels, "--warm-up", 3, "-o", there / "list.g")
        assert (ended.code, ended.stdout) == (8, "")
        assert f"{mine}: it exists already" in ended.stderr
        assert contents(there) == {name: b"mine"}
        mine.unlink()
    assert contents(kernels.parent) == before
    for target in (there / "list.g", kernels.with_name("kernelslist.warm.g")):
        target.write_text("mine")
        assert assay("reuse", kernels, "--warm-up", 3, "-o", target, "--force").code == 0
        assert target.read_text() == "kernel-mem-2.traceg\nkernel-3.traceg\n"
    added = contents(kernels.parent)
    assert {name: added[name] for name in before} == before
    ended = assay("reuse", kernels, "--warm-up", 3, "-o", kernels, "--force")
    assert ended.code == 2 and "list of the traces itself" in ended.stderr
    assert contents(kernels.parent) == added


def test_what_reuse_refuses(assay: Assay, kernels: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "list.g"
    for arguments, code, said in (
        ([kernels, "--warm-up", 4], 2, "holds 3 launches"),
        ([kernels, "-o", elsewhere], 2, "--warm-up"),
        ([kernels.with_name("kernel-1.traceg"), "--warm-up", 1], 2, "kernelslist.g"),
        ([tmp_path / "none.g"], 3, "no such file"),
        ([kernels, "--memory-limit", "100"], 7, "exceed the limit"),
    ):
        ended = assay("reuse", *arguments)
        assert ended.code == code, arguments
        assert said in ended.stderr


def test_cold_start_of_recordings(assay: Assay, tmp_path: Path) -> None:
    warm = hand_made.write_raw_page(tmp_path / "warm.csv", 40)
    # The first launch takes twice the cycles of 2,000.
    cold = hand_made.write_raw_page(tmp_path / "cold.csv", 40, replace=(0, "gpc__cycles_elapsed.avg", "4000"))
    document = json.loads(assay("cold-start", warm, cold, "--json").stdout)
    assert document["launches"] == 40
    differences = document["per_launch"]["ipc_difference_percent"]
    assert differences[0] == pytest.approx(-50.0)
    assert set(differences[1:]) == {0.0}
    total = sum(document["per_launch"]["instructions"])
    share = pytest.approx(100 * 1000 / total)
    assert document["weighted_shares_percent"] == {"5": share, "10": share, "15": share, "20": share}
    shown = assay("cold-start", warm, cold, "--synthetic")
    assert shown.code == 0
    assert "-50.00 %" in shown.stdout
    assert "synthetic" in shown.stdout


def test_cold_start_keeps_silicon_and_simulation_apart(assay: Assay, tmp_path: Path) -> None:
    page = hand_made.write_raw_page(tmp_path / "page.csv", 5)
    log = tmp_path / "log"
    log.write_text("GPGPU-Sim: something\n")
    ended = assay("cold-start", page, log)
    assert ended.code == 2
    assert "compare silicon with silicon" in ended.stderr
    assert assay("cold-start", page, page, "--active-cycles").code == 2
    assert assay("cold-start", page, tmp_path / "none").code == 3


@pytest.mark.shared_data
def test_cold_start_and_corrections_of_simulations(assay: Assay, shared_data: Path, kernels: Path) -> None:
    folder = shared_data / "accel_sim"
    runs = [folder / "reuse.base.out.gz", folder / "reuse.only3.out.gz"]
    document = json.loads(assay("cold-start", *runs, "--json").stdout)
    assert (document["per_launch"]["warm"], document["per_launch"]["flushed"]) == ([16541.0], [19263.0])
    assert document["weighted_total_ipc_difference_percent"] == pytest.approx(-14.13, abs=0.005)
    assert document["only_in_warm"] == 3
    other = assay("reuse", kernels, "--log", runs[1])
    assert (other.code, other.stdout) == (7, "")
    assert "launch 3 is of _Z9irregularPKiPKfPfi there, and of _Z4kernPf in the traces" in other.stderr
    for trace in kernels.parent.glob("*.traceg"):
        trace.write_text(trace.read_text().replace("_Z4kernPf", "_Z9irregularPKiPKfPfi"))
    shown = assay("reuse", kernels, "--log", runs[1])
    assert shown.code == 0
    assert "DRAM latency of 100 cycles is not above the L2's of 160" in shown.stdout


RECORDED = {"cache": None, "clock": None, "sm_percent": None}


def recorded(path: Path, source: Path, **condition: Any) -> Path:
    """A recording as a campaign stores it, with the condition that it was made under."""
    options = ReadOptions(condition=Condition(**{**RECORDED, **condition}))
    with open_recording(source, options) as recording, new_launch_file(path, recording.schema) as writer:
        for batch in recording.batches():
            writer.write(batch)
    return path


def test_recordings_that_are_swapped_are_refused(assay: Assay, tmp_path: Path) -> None:
    page = hand_made.write_raw_page(tmp_path / "warm.csv")
    other = hand_made.write_raw_page(tmp_path / "cold.csv", replace=(0, "gpc__cycles_elapsed.avg", "4000"))
    warm = recorded(tmp_path / "warm.parquet", page, cache="none", clock="base")
    cold = recorded(tmp_path / "cold.parquet", other, cache="all", clock="base")
    boost = recorded(tmp_path / "boost.parquet", other, cache="all", clock="boost")
    turing = hand_made.write_raw_page(tmp_path / "turing.csv", capability="7.5")
    assert assay("cold-start", warm, cold).code == 0
    for pair, said in (
        ((cold, warm), "is given as the warm run"),
        ((cold, page), "is given as the warm run"),
        ((page, warm), "is given as the flushed run"),
        ((warm, boost), "more than their caches"),
        ((warm, turing), "two kinds of GPU"),
        ((page, page), "the same recording"),
    ):
        ended = assay("cold-start", *pair)
        assert (ended.code, ended.stdout) == (7, ""), pair
        assert said in ended.stderr


@pytest.mark.parametrize(
    ("warm", "cold", "said"),
    [
        ("reuse.flushL1L2", "reuse.base", "flushed the caches between launches"),
        ("reuse.only3", "reuse.base", "simulated alone"),
        ("reuse.only3", "reuse.memwarm3", "simulated alone"),
        ("reuse.base", "reuse.base", "the same output"),
    ],
)
def test_simulations_that_are_swapped_are_refused(
    assay: Assay, shared_data: Path, warm: str, cold: str, said: str
) -> None:
    folder = shared_data / "accel_sim"
    ended = assay("cold-start", folder / f"{warm}.out.gz", folder / f"{cold}.out.gz")
    assert (ended.code, ended.stdout) == (7, "")
    assert said in ended.stderr
