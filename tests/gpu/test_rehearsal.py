"""The proof on a GPU, rehearsed on a virtual one by our tracer, and each claim where it must fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.tool_version import ToolBox
from assay_agent.gpus.inventory import read_inventory
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_agent.profilers.cupti import CuptiProfiler
from assay_agent.tracer.build import find_tracer
from assay_agent.tracer.demangle import demangled
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE
from assay_sampling.readers.opening import open_recording
from assay_virtual.gpu_models import MODELS
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.workloads.loading import load_workload
from tests.gpu import build, plan
from tests.gpu.claims import Claim, Measured, agreement, claims_of, own_line
from tests.gpu.pack import pack_recordings
from tests.gpu.rehearsal.cuda_program import SYMBOLS
from tests.gpu.rehearsal.traced import program_with
from tests.support.server.campaign_files import load_campaign
from tests.support.tracer.traced_runs import BuiltTracer

pytest_plugins = ["tests.tracer.conftest"]

ROOT = Path(__file__).resolve().parents[2]

PROOF = (sys.executable, "-m", "tests.gpu")


def prove(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROOF, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def light_alone(part: str) -> list[str]:
    claims = (
        "runs complete, flags",
        "kernels traced = launches issued",
        "tracer overhead against a bare run",
    )
    return [f"[holds] {part}: {claim}" for claim in claims]


def both_levels(part: str) -> list[str]:
    claims = (
        "ncu cost per launch by set",
        "alignment between levels",
        "effective SMs at 50 %",
        "speedup of 100 % over 50 % of the SMs",
        "flushed against warm IPC",
        "PKS, two levels",
    )
    unrepeated = f"[not shown] {part}: noise over repeats - no light run was repeated"
    return [*light_alone(part), *(f"[holds] {part}: {claim}" for claim in claims), unrepeated]


@pytest.mark.processes
@pytest.mark.campaigns
def test_the_whole_proof_is_rehearsed_on_a_virtual_gpu(tmp_path: Path) -> None:
    done = prove("--virtual", "V100", "--out", str(tmp_path), "--repeats", "1", "--first", "20")
    # Without repeats there is no noise to show; everything else is shown, and holds.
    assert done.returncode == 4, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("SYNTHETIC (virtual GPU): ") for line in lines)
    said = [line.removeprefix("SYNTHETIC (virtual GPU): ") for line in lines]
    judged = [line for line in said if line.startswith("[")]
    traced = find_tracer() is not None
    assert judged == [
        *both_levels("cuda"),
        *both_levels("torch"),
        *light_alone("launches"),
        *(light_alone("kineto") if traced else ()),
        *(["[holds] kineto: two tracers agree launch for launch"] if traced else ()),
        "[holds] box: no MPS daemon is left behind",
    ]
    assert f"light runs by {'cupti' if traced else 'nsys'}" in "".join(said[:2])
    assert "    graph_loop: 100.00 % (exact)" in said
    assert "    chain: 40 of 80 SMs" in said
    assert "    short_kernels at 100 % repeat 0: 5,000 traced of 5,000 issued, 0 lost" in said
    if traced:
        assert "    lstm: 450 and 450 launches, the same; GPU time +0.00 %" in said
        assert said[-1] == "28 claims: 26 holds, 2 not shown"
    (folder,) = tmp_path.iterdir()
    claims = json.loads((folder / "claims.json").read_text())
    assert (claims["synthetic"], claims["gpu"]) == (True, "virtual V100")
    with tarfile.open(folder / "recordings.tar.gz") as archive:
        # Python 3.11 knows filters from 3.11.4 on.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "packed", **safely)
    manifest = json.loads((tmp_path / "packed" / "manifest.json").read_text())
    assert manifest["synthetic"] is True
    light = next(run for run in manifest["runs"] if run["level"] == "light" and run["workload"] == "chain")
    with open_recording(tmp_path / "packed" / light["files"][0]) as recording:
        assert sum(batch.records.num_rows for batch in recording.batches()) == 180


def test_kernels_have_the_symbols_that_are_demangled_to_their_names() -> None:
    kernels = {
        kernel.name
        for part in plan.rehearsed_parts()
        for workload in plan.rehearsal_part(part)
        for kernel in load_workload(workload.command[0]).kernels.values()
    }
    assert kernels == set(SYMBOLS)
    assert {name: demangled(symbol.decode()) for name, symbol in SYMBOLS.items()} == {k: k for k in kernels}


@pytest.mark.tracer
@pytest.mark.processes
def test_the_tracer_gives_the_launches_of_the_virtual_gpu(tracer: BuiltTracer, tmp_path: Path) -> None:
    workload = plan.REHEARSAL / "cuda" / "graph_loop.toml"
    modelled = MODELS.gpu("V100", 0)
    gpu = MeasuredGPU(
        modelled.device,
        path=os.defpath,
        variables=modelled.variables,
        scope=str(tmp_path),
        model=modelled.model,
    )
    work = Work(
        key=AttemptKey("c.0000", 0, 1, 1), campaign_id="c", workload="w", device_kind="V100", level="light",
        condition=BASELINE, profiler="cupti", synthetic=True,
        command=CommandSource((*program_with(tracer.fake), str(workload)), {}, str(tmp_path), 60.0),
    )  # fmt: skip
    names: dict[int, str] = {}
    with CuptiProfiler(gpu, ToolBox(), tmp_path).run(work, threading.Event()) as run:
        batches = [(names.update(batch.new_names), batch.records)[1] for batch in run.batches()]
    table = pa.Table.from_batches(batches)
    [launches] = VirtualGPU("V100").execute(load_workload(workload), level="light")
    assert table["duration_ns"].to_pylist() == launches.duration_ns.tolist()
    assert table["grid_x"].to_pylist() == launches.grid[:, 0].tolist()
    assert [names[i] for i in table["kernel_id"].to_pylist()] == [
        launches.kernels[i].name for i in launches.kernel
    ]


@pytest.mark.processes
def test_without_a_gpu_it_says_so_and_ends_with_its_own_status(tmp_path: Path) -> None:
    if read_inventory().devices:
        pytest.skip("this box has a GPU")
    done = prove("--out", str(tmp_path / "out"))
    assert done.returncode == 77
    assert re.match(r"nothing to run on: no GPU: .+\n", done.stdout)
    assert "python -m tests.gpu --virtual V100" in done.stdout
    assert not (tmp_path / "out").exists()
    assert prove("--part", "cuda,none").returncode == 2


@pytest.mark.processes
@pytest.mark.timeout(3600)
def test_the_proof_holds_on_this_box(tmp_path: Path) -> None:
    if not read_inventory().devices:
        pytest.skip(f"this needs a GPU: {read_inventory().no_device_reason}")
    if os.environ.get("ASSAY_GPU_TEST") != "1":
        pytest.skip("it takes long: ASSAY_GPU_TEST=1, or make gpu-test")
    assert prove("--out", str(tmp_path)).returncode in (0, 4)


def test_every_cuda_workload_is_in_the_plan() -> None:
    programs = {name: Path("/cache") / name for name in build.names()}
    used = [w.command[0] for w in (*plan.cuda_part(programs), *plan.launches_part(programs))]
    assert {Path(program).name for program in used} == set(build.names())
    assert len(build.names()) >= 11
    named = {workload.command[2] for workload in plan.torch_part("/usr/bin/python3")}
    script = plan.TORCH_SCRIPT.read_text()
    assert all(f'"{name}": {name},' in script for name in named)


def test_the_stand_ins_have_the_names_of_what_they_stand_for() -> None:
    programs = {name: Path("/cache") / name for name in build.names()}
    real = {"cuda": plan.cuda_part(programs), "launches": plan.launches_part(programs)}
    real |= dict.fromkeys(plan.OF_PYTORCH, plan.torch_part("/usr/bin/python3"))
    for part in plan.rehearsed_parts():
        stand_ins = {w.name for w in plan.rehearsal_part(part)}
        assert stand_ins <= {w.name for w in real[part]}
        for workload in plan.rehearsal_part(part):
            assert tomllib.loads(Path(workload.command[0]).read_text())["workload"] == workload.name


@pytest.mark.parametrize("part", plan.PARTS)
@pytest.mark.parametrize("shares", [True, False])
def test_the_campaigns_of_a_real_gpu_are_valid(tmp_path: Path, part: str, shares: bool) -> None:
    programs = {name: tmp_path / name for name in build.names()}
    made = {
        "cuda": plan.cuda_part(programs),
        "launches": plan.launches_part(programs),
        "tracers": plan.cuda_part(programs),
        "torch": plan.torch_part("/usr/bin/python3"),
        "kineto": plan.torch_part("/usr/bin/python3"),
    }[part]
    box = plan.Box("NVIDIA H100 80GB HBM3", synthetic=False, light=("nsys", "cupti"), shares=shares)
    path = plan.write_campaign(tmp_path / "c.yaml", plan.campaign(part, made, box, first=120, repeats=2))
    campaign = load_campaign(path.read_text(), str(path))
    alone = part in ("launches", "tracers", "kineto")
    assert campaign.light == {"launches": "cupti", "tracers": "cupti", "kineto": "auto"}.get(part, "nsys")
    assert campaign.bare is True
    asked = [c.sm_percent for c in campaign.conditions if not c.flushed]
    assert asked == ([50] if shares and not alone else [])


def test_the_policy_allows_the_workloads_word_by_word(tmp_path: Path) -> None:
    workloads = plan.torch_part("/usr/bin/python3")
    gate = Gate(read_policy(plan.write_policy(tmp_path / "p.toml", workloads, tmp_path)), server_is_ours=True)
    for workload in workloads:
        assert gate.decide(CommandSource(workload.command, {}, str(tmp_path))).allowed
    assert not gate.decide(CommandSource((*workloads[0].command, "--device"), {}, str(tmp_path))).allowed
    assert not gate.decide(CommandSource(("/usr/bin/python3", "-c", "1"), {}, str(tmp_path))).allowed


# Claims, of runs made up for it.

CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100.0}


def run(number: int, level: str, launches: int, log: str = "", **more: Any) -> dict[str, Any]:
    attempt = {"state": "published", "launches": launches, "wall_seconds": 2.0, "log": log}
    return {
        "run_id": f"c-1.{number:04d}", "workload": "w", "device_kind": "V100", "level": level,
        "condition": CONDITION, "repeat": 0, "state": "done", "launches": launches, "flags": [],
        "failure": None, "files": [], "attempts": [attempt], **more,
    }  # fmt: skip


def said(launches: int) -> str:
    return f'noise\n{{"assay_workload": "w", "launches": {launches}, "gpu_seconds": 1.0}}\nmore'


def claim(name: str, measured: Measured) -> Claim:
    return next(found for found in claims_of(measured) if found.name == name)


def measured(*runs: Mapping[str, Any], part: str = "cuda", least: int = 0, **report: Any) -> Measured:
    return Measured(part, report, runs, Path("/nowhere"), least)


def test_a_lost_launch_fails_the_claim_and_a_silent_workload_shows_nothing() -> None:
    name = "kernels traced = launches issued"
    whole = claim(name, measured(run(0, "light", 7, said(7))))
    assert (whole.state, whole.lines) == ("holds", ["w at 100 % repeat 0: 7 traced of 7 issued, 0 lost"])
    lost = claim(name, measured(run(0, "light", 6, said(7)), run(1, "light", 7, said(7))))
    assert (lost.state, lost.why) == ("fails", "w at 100 % repeat 0 lost 1")
    assert claim(name, measured(run(0, "light", 7))).state == "not shown"
    cut = run(0, "light", 7, said(7), state="failed", failure={"failure_class": "hang"})
    assert claim(name, measured(cut)).state == "not shown"


@pytest.mark.parametrize(
    "flaw",
    [
        {"flags": [{"name": "launches_dropped"}]},
        {"state": "failed", "failure": {"failure_class": "dropped_events"}},
    ],
)
def test_claims_that_rest_on_lost_launches_never_hold(flaw: dict[str, Any], tmp_path: Path) -> None:
    """With dropped events in every light run "PKS, two levels" held, and "kernels traced" was not shown."""
    light = run(0, "light", 7, said(7), files=[light_table(tmp_path / "a", [1, 2], 9.0)], **flaw)
    detailed = run(1, "detailed", 7)
    resting = row(100.0, runs=["c-1.0000", "c-1.0001"])
    share = {"workload": "w", "status": "ok", "reason": "", "effective_sms": 66, "all_sms": 132,
             "speedup_true": 1.9, "runs": ["c-1.0000"]}  # fmt: skip
    overhead = {"workload": "w", "level": "light", "under_mps": False, "status": "ok", "wall_seconds": 2.0,
                "bare_wall_seconds": 1.5, "overhead_percent": 33.3, "runs": ["c-1.0000"]}  # fmt: skip
    found = Measured(
        "cuda", {"rows": [resting], "sm_share": [share], "overhead": [overhead]}, (light, detailed), tmp_path
    )
    states = {each.name: each.state for each in claims_of(found)}
    assert {name for name, state in states.items() if state == "holds"} <= {"runs complete, flags"}
    for name in ("kernels traced = launches issued", "PKS, two levels", "alignment between levels",
                 "tracer overhead against a bare run", "speedup of 100 % over 50 % of the SMs"):  # fmt: skip
        assert states[name] == "fails", name
    assert "w rests on c-1.0000 (light), " in claim("PKS, two levels", found).why
    assert states["noise over repeats"] == "not shown"
    assert agreement(found, found).state == "not shown"


def test_what_is_no_number_never_holds() -> None:
    alone = claim("PKS, two levels", measured(rows=[row(100.0, window=None)]))
    assert (alone.state, alone.why) == ("fails", "w has one level alone: no light run could be used")
    for nothing in (float("nan"), float("inf")):
        found = claim("PKS, two levels", measured(rows=[row(100.0, error_percent=nothing)]))
        assert (found.state, found.why) == ("fails", "w error_percent is no number")
        entry = {"workload": "w", "status": "ok", "reason": "", "effective_sms": 66, "all_sms": 132}
        share = measured(sm_share=[{**entry, "speedup_true": nothing}])
        assert claim("speedup of 100 % over 50 % of the SMs", share).state == "fails"


def test_a_million_launches_are_asked_for() -> None:
    name = "kernels traced = launches issued"
    few = measured(run(0, "light", 7, said(7)), part="launches", least=1_000_000)
    assert claim(name, few).why == "the longest run has 7 launches, not 1,000,000"
    many = measured(run(0, "light", 10**6, said(10**6)), part="launches", least=1_000_000)
    assert claim(name, many).state == "holds"


def test_a_failed_run_fails_and_flags_are_named() -> None:
    name = "runs complete, flags"
    flagged = claim(name, measured(run(0, "light", 7, flags=[{"name": "clock_varied"}])))
    assert flagged.state == "holds"
    assert flagged.lines == ["1 of 1 runs done", "c-1.0000 w light: clock_varied"]
    failed = run(0, "light", 0, state="failed", failure={"failure_class": "permission"})
    assert claim(name, measured(failed)).why == "c-1.0000 (w, light) permission"


@pytest.mark.parametrize(
    ("effective", "state"), [(66, "holds"), (64, "holds"), (68, "holds"), (132, "fails"), (None, "fails")]
)
def test_half_of_the_sms_is_half(effective: int | None, state: str) -> None:
    entry = {"workload": "w", "status": "ok", "reason": "", "effective_sms": effective, "all_sms": 132}
    found = claim("effective SMs at 50 %", measured(sm_share=[{**entry, "speedup_true": 1.9}]))
    assert found.state == state


@pytest.mark.parametrize(
    ("speedup", "state"), [(1.0, "holds"), (1.99, "holds"), (0.5, "fails"), (4.0, "fails"), (None, "fails")]
)
def test_half_of_the_sms_cannot_be_faster_nor_four_times_as_slow(speedup: float | None, state: str) -> None:
    entry = {"workload": "w", "status": "ok", "reason": "", "effective_sms": 66, "all_sms": 132}
    found = claim(
        "speedup of 100 % over 50 % of the SMs", measured(sm_share=[{**entry, "speedup_true": speedup}])
    )
    assert found.state == state


def row(percent: float, **more: Any) -> dict[str, Any]:
    return {
        "method": "pks", "condition": CONDITION, "workload": "w", "status": "ok", "reason": "", "launches": 9,
        "groups": 2, "error_percent": 1.5, "speedup": 4.0, "window": {"error_percent": 1.0},
        "match": {"between": "levels", "percent": percent, "kind": "exact"}, **more,
    }  # fmt: skip


def test_levels_that_do_not_align_and_refused_selections_fail() -> None:
    name = "alignment between levels"
    assert claim(name, measured(rows=[row(99.5)])).lines == ["w: 99.50 % (exact)"]
    assert claim(name, measured(rows=[row(98.9)])).why == "w aligns at 98.90 %"
    refused = row(0, status="refused", reason="it does not align", match=None)
    assert claim(name, measured(rows=[refused])).why == "w is refused: it does not align"
    assert claim("PKS, two levels", measured(rows=[refused])).state == "fails"
    assert claim("PKS, two levels", measured(rows=[row(100)])).lines == [
        "w: 9 launches, 2 groups, error 1.50 %, speedup 4.0 (window: error 1.00 %)"
    ]


def test_overhead_and_cost_are_those_of_bare_runs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"replay_passes": [3.0, 3.0]}), tmp_path / "a.parquet")
    detailed = run(1, "detailed", 2, files=["a.parquet"])
    bare = run(0, "bare", 0, said(7))
    bare["attempts"][0]["wall_seconds"] = 1.5
    traced = run(2, "light", 7, said(7).replace('"gpu_seconds": 1.0', '"gpu_seconds": 1.25'))
    entry = {"workload": "w", "level": "light", "under_mps": False, "status": "ok", "wall_seconds": 2.0,
             "bare_wall_seconds": 1.5, "overhead_percent": 33.333}  # fmt: skip
    found = Measured("cuda", {"overhead": [entry]}, (bare, detailed, traced), tmp_path)
    assert claim("ncu cost per launch by set", found).lines == [
        "3 passes, warm caches: median 250.00 ms a launch (250.00 to 250.00, 1 runs)"
    ]
    assert claim("tracer overhead against a bare run", found).lines == [
        "w: wall 1.500 s bare, 2.000 s traced (+33.3 %); gpu_seconds 1.000 s bare, 1.250 s traced (+25.0 %)"
    ]


def test_flushed_and_warm_ipc_are_of_all_launches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"instructions": [10.0, 30.0], "c": [10.0, 10.0]}), tmp_path / "warm")
    pq.write_table(pa.table({"instructions": [10.0, 30.0], "c": [20.0, 20.0]}), tmp_path / "cold")
    runs = (
        run(0, "detailed", 2, files=["warm"]),
        run(1, "detailed", 2, files=["cold"], condition={**CONDITION, "cache": "all"}),
    )
    entry = {"workload": "w", "status": "ok", "reason": "", "runs": ["c-1.0000", "c-1.0001"], "quantity": "c",
             "median_difference_percent": 50.0, "weighted_difference_percent": 50.0}  # fmt: skip
    found = Measured("launches", {"cold_start": [entry]}, runs, tmp_path)
    from tests.gpu.claims import _flushed  # noqa: PLC0415 - without the other claims, which need other columns

    shown = _flushed(found)
    assert (shown.state, shown.lines) == (
        "holds",
        ["w: IPC 2.000 warm, 1.000 flushed; launches differ by 50.00 % (median), 50.00 % (weighted)"],
    )
    pq.write_table(pa.table({"instructions": [10.0, 30.0], "c": [5.0, 5.0]}), tmp_path / "cold")
    assert _flushed(found).why == "w: IPC 4.000 with flushed caches, 2.000 with warm"


def light_table(path: Path, grids: list[int], duration: float) -> str:
    shape = {name: [1] * len(grids) for name in ("grid_y", "grid_z", "block_x", "block_y", "block_z")}
    launches = list(range(len(grids)))
    columns = {"launch": launches, "kernel_id": launches, "grid_x": grids, **shape}
    pq.write_table(pa.table({**columns, "duration_ns": [duration] * len(grids)}), path)
    return path.name


def test_two_tracers_agree_launch_for_launch_or_not(tmp_path: Path) -> None:
    nsys = run(0, "light", 2, files=[light_table(tmp_path / "a", [1, 2], 100.0)])
    same = run(0, "light", 2, files=[light_table(tmp_path / "b", [1, 2], 101.0)])
    other = run(0, "light", 2, files=[light_table(tmp_path / "c", [1, 3], 100.0)])
    first = Measured("cuda", {}, (nsys,), tmp_path)
    agreed = agreement(first, Measured("tracers", {}, (same,), tmp_path))
    assert (agreed.state, agreed.lines) == ("holds", ["w: 2 and 2 launches, the same; GPU time +1.00 %"])
    assert agreement(first, Measured("tracers", {}, (other,), tmp_path)).why == "w differs"


def test_a_claim_that_cannot_be_computed_fails_alone() -> None:
    found = claims_of(measured(rows=[{"method": "pks"}], sm_share=[{"workload": "w"}]))
    broken = [c for c in found if "cannot be computed: KeyError" in c.why]
    assert [c.name for c in broken] == ["alignment", "share speedup", "two level"]
    assert all(c.state == "fails" for c in broken)


def test_the_last_line_of_a_workload_counts() -> None:
    assert own_line(run(0, "light", 0, said(1) + "\n" + said(2)))["launches"] == 2
    virtual = "assay virtual x: process 0 made 5 launches\nassay virtual x: process 1 made 6 launches"
    assert own_line(run(0, "light", 0, virtual)) == {"launches": 11}
    assert own_line(run(0, "light", 0, attempts=[])) == {}


def test_the_archive_keeps_its_size_and_names_what_it_left_out(tmp_path: Path) -> None:
    small, large = os.urandom(10_000), os.urandom(90_000)
    (tmp_path / "small.parquet").write_bytes(small)
    (tmp_path / "large.parquet").write_bytes(large)
    runs = (run(0, "light", 1, files=["large.parquet"]), run(1, "light", 1, files=["small.parquet"]))
    part = Measured("cuda", {"rows": []}, runs, tmp_path)
    archive = tmp_path / "r.tar.gz"
    manifest = pack_recordings(archive, [part], {"gpu": "x", "synthetic": False}, most_bytes=50_000)
    assert archive.stat().st_size == manifest["bytes"] <= 50_000
    assert [run["run_id"] for run in manifest["runs"]] == ["c-1.0001"]
    assert manifest["left_out"] == [{"run_id": "c-1.0000", "workload": "w", "bytes": 90_000}]
    with tarfile.open(archive) as packed:
        assert packed.getnames() == ["manifest.json", "cuda.report.json", "small.parquet"]
    assert len(pack_recordings(archive, [part], {}, most_bytes=5_000_000)["runs"]) == 2
