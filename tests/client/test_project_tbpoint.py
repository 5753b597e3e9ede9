"""``assay project --rule tbpoint``: regions from traces, and what skipping blocks would have saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import InputError, ParameterError, RefusedError

Assay = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs"
BLOCKS, AT_ONCE, BLOCK_CYCLES, BLOCK_INSTRUCTIONS = 64, 8, 100, 10

HEADER = f"""-kernel name = _Z1kv
-kernel id = 3
-grid dim = ({BLOCKS},1,1)
-block dim = (32,1,1)
-shmem = 0
-nregs = 16
-binary version = 70
-cuda stream id = 0
-shmem base_addr = 0x00007f5c20000000
-local mem base_addr = 0x00007f5c1e000000
-nvbit version = 1.5.5
-accelsim tracer version = 5
-enable lineinfo = 0
"""


def trace_text(blocks: int = BLOCKS) -> str:
    """Each block is one warp of ten instructions, of which two load; 32 threads are active."""
    load = "0010 ffffffff 1 R6 LDG.E.SYS 1 R2 4 1 0x7f5c40000000 4 0"
    lines = [load, load, *["0000 ffffffff 1 R1 MOV 0 0 0 "] * (BLOCK_INSTRUCTIONS - 2)]
    body = "\n".join(["", "warp = 0", f"insts = {BLOCK_INSTRUCTIONS}", *lines, "", "#END_TB", ""])
    return HEADER + "".join(f"\n#BEGIN_TB\n\nthread block = {block},0,0\n{body}" for block in range(blocks))


def log_text(*, times: bool = True, ending: bool = True) -> str:
    """Eight blocks run together, each of them for 100 cycles; the launch takes 800."""
    lines = [
        "-gpgpu_n_clusters 2 # x", "-gpgpu_n_cores_per_cluster 1 # x", "-gpgpu_kernel_launch_latency 0 # x",
        *HEADER.splitlines(), "launching kernel name: _Z1kv uid: 1",
        "GPGPU-Sim uArch: CTA/core = 4, limited by: x",
    ]  # fmt: skip
    for wave in range(BLOCKS // AT_ONCE if times else 0):
        for place in range(AT_ONCE):
            core, slot, cycle = place % 2, place // 2, wave * BLOCK_CYCLES
            uarch = f"GPGPU-Sim Cycle {cycle}: LIVENESS - Core {core} - GPGPU-Sim uArch:"
            lines += [
                f"thread block = {wave * AT_ONCE + place},0,0",
                f"{uarch} cta:{slot:2}, start_tid: 0, end_tid: 32, initialized @({cycle},0), kernel_uid:1, "
                "kernel_name:_Z1kv",
            ]
        for place in range(AT_ONCE):
            core, slot, cycle = place % 2, place // 2, (wave + 1) * BLOCK_CYCLES
            lines.append(
                f"GPGPU-Sim Cycle {cycle}: LIVENESS - Core {core} - GPGPU-Sim uArch: "
                f"Finished CTA #{slot} ({cycle},0), 3 CTAs running"
            )
    executed = BLOCKS * BLOCK_INSTRUCTIONS * 32
    if ending:
        lines += [
            "kernel_name = _Z1kv ", "kernel_launch_uid = 1 ", "gpu_sim_cycle = 800",
            f"gpu_sim_insn = {executed}", f"gpu_tot_sim_insn = {executed}", f"gpu_tot_issued_cta = {BLOCKS}",
            "GPGPU-Sim: *** exit detected ***",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    (tmp_path / "kernel-3.traceg").write_text(trace_text())
    path = tmp_path / "kernelslist.g"
    path.write_text("MemcpyHtoD,0x7f5c40000000,1024\nkernel-3.traceg\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "out.txt"
    path.write_text(log_text())
    return path


GPU = ("-p", "sms=2", "-p", "compute_capability=7.0")


def test_a_run_says_what_skipping_would_have_saved(assay: Assay, log: Path, kernels: Path) -> None:
    ended = assay("project", log, "--rule", "tbpoint", "--traces", kernels, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    (launch,) = document["launches"]
    assert (launch["traced_id"], launch["wave_ctas"], launch["ctas_in_regions"]) == (3, 8, 64)
    (region,) = launch["regions"]
    assert (region["first_block"], region["last_block"]) == (0, 63)
    assert region["stall_probability"] == pytest.approx(0.2)
    # Two waves run until two units agree; the other six are projected from their IPC, which is that of all.
    assert (launch["skipped_ctas"], launch["skipped_instructions_percent"]) == (48, 75)
    assert (launch["block_cycles"], launch["simulated_cycles"]) == (800, 200)
    assert launch["projected_cycles"] == pytest.approx(800)
    assert document["summary"]["speedup"] == pytest.approx(4)
    assert document["summary"]["signed_error_percent"] == pytest.approx(0)
    shown = assay("project", log, "-p", "rule=tbpoint", "--traces", kernels).stdout
    for text in ("tbpoint, stall threshold 0.2", "1 of 1 launches", "4.00x", "_Z1kv"):
        assert text in shown


def test_the_interval_log_says_what_was_executed(
    assay: Assay, log: Path, kernels: Path, tmp_path: Path
) -> None:
    """The second wave executes half as fast as the first, so that only the third unit agrees with one."""
    done = {100: 2560, 200: 3840} | {100 * i: 3840 + 1280 * (i - 2) for i in range(3, 9)}
    intervals = tmp_path / "intervals.txt"
    intervals.write_text(
        "".join(
            f"ctas_completed: 8\nglobalcyclecount: {cycle}\nglobalinsncount: {instructions}\n"
            "globaltotinsncount: 0\n"
            for cycle, instructions in done.items()
        )
    )
    given = ("project", log, "--rule", "tbpoint", "--traces", kernels, "--intervals", intervals, "--json")
    (launch,) = json.loads(assay(*given).stdout)["launches"]
    assert (launch["simulated_cycles"], launch["skipped_ctas"]) == (300, 40)


def test_traces_alone_give_the_regions_on_a_gpu(assay: Assay, kernels: Path) -> None:
    given = ("project", kernels, "--rule", "tbpoint", *GPU)
    document = json.loads(assay(*given, "-p", "stall_cycles=100", "--json").stdout)
    (launch,) = document["launches"]
    # 32 blocks of one warp are resident on an SM of compute capability 7.0.
    assert (document["format"], launch["wave_ctas"]) == ("accel-sim-traces", 64)
    (region,) = launch["regions"]
    assert 95 < region["ipc_within_10_percent_share_percent"] <= 100
    assert "accel-sim-traces" not in assay(*given).stdout
    assert "0.200" in assay(*given).stdout


def test_a_launch_that_cannot_be_sampled_says_why(assay: Assay, tmp_path: Path, kernels: Path) -> None:
    (tmp_path / "kernel-4.traceg").write_text(trace_text().replace("kernel id = 3", "kernel id = 4"))
    (tmp_path / "out").write_text(log_text())
    given = ("project", tmp_path / "out", "--rule", "tbpoint", "--traces", tmp_path / "kernel-4.traceg")
    document = json.loads(assay(*given, "--json").stdout)
    assert document["launches"][0]["reason"] == "its trace was not given"
    assert document["summary"]["speedup"] is None
    assert "its trace was not given" in assay(*given).stdout


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["LOG", "--rule", "tbpoint"], ParameterError, "--traces kernelslist.g"),
        (["LIST", "--rule", "tbpoint"], ParameterError, "--param sms=VALUE"),
        (["LIST", "--rule", "tbpoint", *GPU[:3], "compute_capability=1.0"], ParameterError, "1.0"),
        (["LIST", "--rule", "tbpoint", *GPU, "--intervals", "LOG"], ParameterError, "--intervals"),
        (["LOG", "--rule", "tbpoint", "--traces", "LIST", *GPU], ParameterError, "compute_capability"),
        (["LOG", "--rule", "tbpoint", "-p", "rule=paper"], ParameterError, "says otherwise"),
        (["LOG", "--rule", "tbpoint", "-p", "s=1"], ParameterError, "there is no parameter 's'"),
        (["LOG", "--rule", "magic"], ParameterError, "magic"),
        (["BARE", "--rule", "tbpoint", "--traces", "LIST"], InputError, "-trace_components LIVENESS"),
        (["SHORT", "--rule", "tbpoint", "--traces", "LIST"], RefusedError, "its grid has 64"),
    ],
)
def test_what_is_missing_or_wrong_is_said_of_tbpoint(
    *, assay: Assay, log: Path, kernels: Path, tmp_path: Path, arguments: list[str], kind: Any, text: str
) -> None:
    (tmp_path / "bare.txt").write_text(log_text(times=False))
    lines = log_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("thread block"))
    last = max(i for i, line in enumerate(lines) if "Finished CTA" in line)
    whole_waves = lines[:first] + lines[first + 3 * AT_ONCE : last + 1] + lines[last + 1 :]
    (tmp_path / "short.txt").write_text("\n".join(whole_waves) + "\n")
    paths = {"LOG": log, "LIST": kernels, "BARE": tmp_path / "bare.txt", "SHORT": tmp_path / "short.txt"}
    ended = assay("project", *(paths.get(each, each) for each in arguments))
    assert (ended.code, ended.stdout) == (kind.exit_code, "")
    assert text in ended.stderr


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("Finished CTA #0 (100,0)", "Finished CTA #0 (x,0)", "the line is damaged"),
        (
            "Core 0 - GPGPU-Sim uArch: Finished",
            "Core 7 - GPGPU-Sim uArch: Finished",
            "ends that never started",
        ),
        ("thread block = 5,0,0\n", "", "starts that no earlier line names"),
    ],
)
def test_damaged_times_of_blocks_are_an_error_with_its_line(
    *, assay: Assay, tmp_path: Path, kernels: Path, old: str, new: str, text: str
) -> None:
    path = tmp_path / "damaged.txt"
    path.write_text(log_text().replace(old, new, 1))
    ended = assay("project", path, "--rule", "tbpoint", "--traces", kernels)
    assert ended.code == InputError.exit_code
    assert text in ended.stderr and f"{path}:" in ended.stderr


def test_every_key_of_tbpoint_is_documented(assay: Assay, log: Path, kernels: Path) -> None:
    text = (DOCS / "projection-format.md").read_text()
    run = json.loads(assay("project", log, "--rule", "tbpoint", "--traces", kernels, "--json").stdout)
    launch = run["launches"][0]
    keys = {*run, *launch, *launch["regions"][0], *run["summary"], *run["simulator"], *run["parameters"]}
    assert {key for key in keys if f"`{key}`" not in text} == set()
