"""``assay cold-start`` and ``assay reuse``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hand_made
import pytest

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
    for number, address in ((1, 0), (2, 64), (3, 4096)):
        (tmp_path / f"kernel-{number}.traceg").write_text(TRACE.format(number=number, address=address))
    path = tmp_path / "kernelslist.g"
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


def test_a_warm_up_list_and_the_traces_that_it_names(assay: Assay, kernels: Path) -> None:
    document = json.loads(assay("reuse", kernels, "--warm-up", 3, "--json").stdout)
    assert document["warm_up"]["lines"] == ["kernel-mem-2.traceg", "kernel-3.traceg"]
    target = kernels.with_name("kernelslist.warm.g")
    assert target.read_text() == "kernel-mem-2.traceg\nkernel-3.traceg\n"
    replay = kernels.with_name("kernel-mem-2.traceg").read_text()
    assert "insts = 2" in replay
    assert "MOV" not in replay
    again = json.loads(assay("reuse", kernels, "--warm-up", 3, "--preceding", 2, "--json").stdout)
    assert again["warm_up"]["written_traces"] == [str(kernels.with_name("kernel-mem-1.traceg"))]


def test_what_reuse_refuses(assay: Assay, kernels: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "list.g"
    for arguments, code, said in (
        ([kernels, "--warm-up", 3, "-o", elsewhere], 2, "not beside the traces"),
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
