"""The course of the proof: time limit, what is written as it goes, its end by signals, and what it finds."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import build, plan
from tests.gpu.__main__ import _parsed, _run_part, main
from tests.gpu.box import with_tool_folders
from tests.gpu.claims import Measured
from tests.gpu.pack import pack_logs
from tests.gpu.proof import Proof, Results, TimeLimit, merged
from tests.support.server.campaign_files import load_campaign

ROOT = Path(__file__).resolve().parents[2]


class LabDouble:
    """Ends campaigns as it is told, each after ten seconds of a clock that the test owns."""

    def __init__(self, state: Path, endings: dict[str, str]) -> None:
        self.state, self.now, self._endings = state, 0.0, endings
        self.limits: list[float] = []

    def run(self, path: Path, say: Any, most_seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        self.limits.append(most_seconds)
        self.now += 10
        name = path.stem.removeprefix("cuda-")
        ended = self._endings.get(name, "done")
        run = {"run_id": name, "state": "done", "workload": name}
        report = {"rows": [name], "name": name} if ended == "done" else {}
        return {"state": ended, "runs": [run, {**run, "run_id": f"{name}.1", "state": ended}]}, report

    def runs(self, status: dict[str, Any]) -> list[dict[str, Any]]:
        more = {"level": "light", "flags": [], "failure": None, "files": [], "attempts": [], "launches": 0,
                "condition": {"sm_percent": 100.0}, "repeat": 0}  # fmt: skip
        return [{**run, **more} for run in status["runs"]]


def course(tmp_path: Path, seconds: float, **endings: str) -> tuple[Proof, LabDouble]:
    lab = LabDouble(tmp_path, endings)
    results = Results(tmp_path, tmp_path, {"gpu": "made up"})
    limit = TimeLimit(seconds, lambda: lab.now)
    proof = Proof(lab, results, limit, 0, lambda text: None)  # type: ignore[arg-type]
    workloads = [plan.Workload(name, (name,)) for name in ("a", "b", "c")]
    proof.run_part("cuda", workloads, lambda workload: {"campaign": workload.name})
    return proof, lab


def written(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "claims.json").read_text())
    return document


def test_without_a_limit_every_workload_is_run(tmp_path: Path) -> None:
    proof, lab = course(tmp_path, 0)
    assert lab.limits == [math.inf] * 3
    assert [run["run_id"] for run in proof.measured["cuda"].runs] == ["a", "a.1", "b", "b.1", "c", "c.1"]
    assert proof.measured["cuda"].report["rows"] == ["a", "b", "c"]
    assert not [claim for claim in proof.claims if claim.name == "cuda: every workload"]
    assert written(tmp_path)["ended"] is False


def test_what_there_is_no_time_for_is_named_and_fails_nothing(tmp_path: Path) -> None:
    # 40 seconds are kept for the end, and no workload is begun for less than 15.
    proof, lab = course(tmp_path, 74.0)
    assert lab.limits == [34.0, 24.0]
    (last,) = [claim for claim in proof.claims if claim.name == "cuda: every workload"]
    assert (last.state, last.why) == ("not shown", "the time was over before: c")
    assert written(tmp_path)["claims"][-1]["why"] == last.why


def test_where_nothing_was_run_nothing_holds(tmp_path: Path) -> None:
    proof, lab = course(tmp_path, 50.0)
    assert lab.limits == []
    assert {claim.state for claim in proof.claims} == {"not shown"}
    assert proof.claims[-1].why == "the time was over before: a, b, c"


def test_a_campaign_that_was_cut_counts_only_with_what_it_finished(tmp_path: Path) -> None:
    proof, _ = course(tmp_path, 0, b="cancelled")
    assert [run["run_id"] for run in proof.measured["cuda"].runs] == ["a", "a.1", "b", "c", "c.1"]
    assert proof.measured["cuda"].report["rows"] == ["a", "c"]
    complete = next(claim for claim in proof.claims if claim.name == "cuda: runs complete, flags")
    assert (complete.state, complete.values) == ("holds", {"runs": 5, "done": 5})
    assert proof.claims[-1].why == "the time was over before: b"


def test_a_failed_campaign_is_not_taken_for_one_that_was_cut(tmp_path: Path) -> None:
    proof, _ = course(tmp_path, 0, b="failed")
    complete = next(claim for claim in proof.claims if claim.name == "cuda: runs complete, flags")
    assert (complete.state, complete.why) == ("fails", "b.1 (b, light) failed")
    last = proof.claims[-1]
    assert (last.name, last.state) == ("cuda: every campaign ends with a report", "fails")
    assert last.why == "there is none of b"


def test_reports_are_joined() -> None:
    assert merged([{"rows": [1], "format": "x"}, {"rows": [2], "overhead": [3]}, {}]) == {
        "rows": [1, 2], "format": "x", "overhead": [3],
    }  # fmt: skip
    assert merged([]) == {}


def test_the_logs_come_along_cut_in_front(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_bytes(b"x" * 5000 + b"the end")
    run = {"run_id": "a", "attempts": [{"log": "said"}], "workload": "w", "files": []}
    pack_logs(tmp_path / "l.tar.gz", tmp_path, [Measured("cuda", {}, [run], tmp_path)], most_bytes=1000)
    with tarfile.open(tmp_path / "l.tar.gz") as archive:
        assert archive.getnames() == ["agent.log", "cuda.runs.json"]
        log, runs = (archive.extractfile(name) for name in archive.getnames())
        assert log is not None and runs is not None
        assert log.read() == b"x" * 93 + b"the end"
        assert json.load(runs)[0]["attempts"] == [{"log": "said"}]


@pytest.mark.parametrize(("time_limit", "seconds"), [(0.0, 1800.0), (560.0, 560 / 3), (36000.0, 1800.0)])
def test_a_run_that_hangs_does_not_take_all_the_time(
    tmp_path: Path, time_limit: float, seconds: float
) -> None:
    made: list[dict[str, Any]] = []

    class ProofDouble:
        def run_part(self, part: str, workloads: list[plan.Workload], campaign: Any) -> None:
            made.extend(campaign(workload) for workload in workloads)

    options = _parsed(["--time-limit", str(time_limit), "--slices", "3", "--first", "100"])
    workloads = [plan.Workload("a", ("a",)), plan.Workload("b", ("b",))]
    box = plan.Box("H100", synthetic=False, light=("cupti",))
    _run_part(ProofDouble(), "cuda", workloads, options, box)  # type: ignore[arg-type]
    assert [[w["name"] for w in document["workloads"]] for document in made] == [["a"], ["b"]]
    assert made[0]["workloads"][0]["timeout_s"] == pytest.approx(seconds)
    assert made[0]["detailed"]["slice_launches"] == 34
    path = plan.write_campaign(tmp_path / "c.yaml", made[0])
    assert load_campaign(path.read_text(), str(path)).light == "cupti"


# What is found on a box.


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder


def test_tools_outside_the_path_are_found_the_newest_first(tmp_path: Path) -> None:
    program(tmp_path / "nsight-compute" / "2025.9.1", "ncu")
    newest = program(tmp_path / "nsight-compute" / "2025.10.0", "ncu")
    own = program(tmp_path / "own", "nvcc")
    program(tmp_path / "cuda" / "bin", "nvcc")
    folders = (str(tmp_path / "cuda" / "bin"), str(tmp_path / "nsight-compute" / "*"))
    # The nvcc of the PATH stays the one that is used, so CUDA's folder is not needed.
    assert with_tool_folders(str(own), folders) == f"{own}:{newest}"
    assert with_tool_folders(str(newest), folders) == f"{newest}:{tmp_path / 'cuda' / 'bin'}"


def test_programs_compiled_elsewhere_must_all_be_there(tmp_path: Path) -> None:
    for name in build.names():
        program(tmp_path, name)
    assert build.compiled_elsewhere(tmp_path)["saxpy"] == tmp_path / "saxpy"
    (tmp_path / "chain").unlink()
    with pytest.raises(build.CannotBuildError, match="no program chain"):
        build.compiled_elsewhere(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "releases", "found"),
    [
        ("sm_70", ["13.0", "12.9"], "12.9"),
        ("sm_70", ["13.0"], "fetched"),
        ("sm_75", ["13.0", "12.9"], "13.0"),
        ("sm_86", ["12.4"], "12.4"),
        ("sm_90a", ["13.0"], "13.0"),
        ("native", ["13.0"], "13.0"),
    ],
)
def test_volta_is_compiled_by_cuda_12(
    architecture: str, releases: list[str], found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, release in enumerate(releases):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "nvcc").write_text(
            f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}'\n"
        )
        (folder / "nvcc").chmod(0o755)
    boxes = [str(tmp_path / str(number) / "nvcc") for number in range(len(releases))]
    monkeypatch.setattr(build, "_compilers_of_box", lambda: boxes)
    monkeypatch.setattr(
        build, "_compiler_of_cuda_12", lambda cache, architecture: build.Compiler(Path("/fetched/nvcc"))
    )
    compiler = build.find_compiler(tmp_path, architecture=architecture)
    assert ("fetched" if "fetched" in str(compiler.path) else compiler.release) == found


@pytest.mark.processes
def test_another_linker_gets_what_nvcc_links_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zig's in the kit; a made-up nvcc and linker write down their arguments."""
    nvcc, linker = tmp_path / "nvcc", tmp_path / "linker"
    nvcc.write_text(
        """#!/bin/sh
case "$*" in
  *--version*) echo "release 13.0, V13.0" ;;
  *--dryrun*) echo '#$ LIBRARIES=  "-L/of nvcc/lib"' >&2 ;;
  *" -c -o "*) while [ "$1" != -o ]; do shift; done; echo object > "$2" ;;
esac
"""
    )
    linker.write_text("""#!/bin/sh\necho "$(cat "$3")" "$@" > "$2"\n""")
    for program in (nvcc, linker):
        program.chmod(0o755)
    monkeypatch.setattr(build, "names", lambda: ["chain"])
    made = build.build(build.Compiler(nvcc), tmp_path, "sm_90", linker=[str(linker)])["chain"].read_text()
    assert made.startswith("object -o ")
    assert "-L/of nvcc/lib -lcudart_static" in made and "libstdc++.so" in made


@pytest.mark.parametrize(("capability", "architecture"), [("9.0", "sm_90"), ("10.3", "sm_103"), ("", "")])
def test_programs_are_compiled_for_the_gpu_that_is_there(capability: str, architecture: str) -> None:
    assert build.architecture_of(capability) == architecture


@pytest.mark.parametrize("wrong", [["--workloads", "saxpi"], ["--part", "tracer"]])
def test_what_is_not_there_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
    assert f"there is no {wrong[0].strip('-').removesuffix('s')} {wrong[1]}" in capsys.readouterr().err


# Its end.


def of_this_proof(temporary: Path) -> Iterator[int]:
    """Living processes whose TMPDIR lies below the folder."""
    wanted = f"TMPDIR={temporary}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            dead = (process / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
            if not dead and any(
                v.startswith(wanted) for v in (process / "environ").read_bytes().split(b"\0")
            ):
                yield int(process.name)
        except OSError:
            continue


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_proof_that_is_ended_leaves_no_program(tmp_path: Path, number: signal.Signals) -> None:
    words = ["--virtual", "V100", "--workloads", "chain", "--out", str(tmp_path / "out")]
    temporary = tmp_path / "t"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu", *words, "--work", str(tmp_path / "work")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        assert any("runs done" in line for line in iter(output.readline, ""))
        assert list(of_this_proof(temporary))
        process.send_signal(number)
        rest = output.read()
    until = time.monotonic() + 60
    while (left := list(of_this_proof(temporary))) and time.monotonic() < until:
        time.sleep(0.1)
    for survivor in left:
        os.kill(survivor, signal.SIGKILL)
    assert not left
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert f"stopped by SIGTERM; what was finished is in {tmp_path / 'out'}" in rest
        assert not list(temporary.iterdir())
