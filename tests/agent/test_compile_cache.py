"""Code that a workload compiles: filled once by a run that does not count, a copy for every later one."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution import compile_cache
from assay_agent.execution.compile_cache import FOLDER, VARIABLES, cache_key
from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.environment import MeasuredGPU, tool_environment
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.bare import BareProfiler
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.seam import Profiler
from assay_core.bundles.packing import pack_bundle
from assay_core.records.attempt import AttemptLog
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import Device
from assay_sampling.running.attempt_facts import parse_facts
from tests.support.agent.assignments import WORK
from tests.support.agent.bubblewrap import bubblewrap_here
from tests.support.agent.scripted_tools import INPUTS, NCU, NSYS

pytestmark = pytest.mark.processes

# Like a compiler at run time: what it compiled lies in its cache, with absolute paths, or it takes its time.
# It says in the first file, outside of its cache, whether it had to compile.
PROGRAM = """
import os, pathlib, sys, time
said, size = sys.argv[1], int(sys.argv[2])
place = pathlib.Path(os.environ["TRITON_CACHE_DIR"], "abc", "kernel.cubin")
compiled = place.is_file() and place.read_text().startswith(str(place))
with open(said, "a") as file:
    print("warm" if compiled else "cold", os.environ.get("UNDER", "alone"), file=file)
if size and not compiled:
    time.sleep(0.5)
    place.parent.mkdir(parents=True)
    place.write_text(str(place) + "x" * size)
    pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).mkdir()
    pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "link").symlink_to("/etc/passwd")
elif size:
    place.write_text("changed by a later run")
    place.with_name("second.cubin").write_text("compiled by a later run")
"""
RUN = 'UNDER={tool} "$@"'


class Box:
    """A V100 without a driver, whose tools are scripts; and a program there that compiles ``size`` bytes."""

    def __init__(self, folder: Path, size: int = 100) -> None:
        self.folder, self.state, self.said = folder, folder / "state", folder / "said.txt"
        tools = folder / "tools"
        tools.mkdir()
        scripts = {
            "nsys": NSYS.format(recording=INPUTS / "light.sqlite"),
            "ncu": NCU.format(page=INPUTS / "window.csv"),
        }
        for name, script in scripts.items():
            (tools / name).write_text(script.replace('    "$@" ||', f"    {RUN.format(tool=name)} ||"))
            (tools / name).chmod(0o755)
        (folder / "program.py").write_text(PROGRAM)
        device = Device(0, "Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid4()}", "7.0", 80)
        self.gpu = MeasuredGPU(device, path=f"{tools}:/usr/bin:/bin")
        script = f"exec {sys.executable} -I -S program.py {self.said} {size}"
        argv = ("/bin/sh", "-c", script, "program.py")
        self.work = replace(
            WORK, level="bare", profiler="bare", command=CommandSource(argv, {}, str(folder), 30.0)
        )

    def measured(self, work: Work | None = None) -> AttemptLog:
        """The log of an attempt with its profiler."""
        work = work or self.work
        profilers: dict[str, type[Profiler]] = {
            "bare": BareProfiler,
            "nsight_systems": NsightSystemsProfiler,
            "nsight_compute": NsightComputeProfiler,
        }
        profiler = profilers[work.profiler](self.gpu, ToolBox(), self.state)  # type: ignore[call-arg]
        with profiler.run(work, threading.Event()) as measurement:
            list(measurement.batches())
        return measurement.log

    @property
    def runs(self) -> list[str]:
        """What each process of the program said, since the last question."""
        lines = self.said.read_text().splitlines()
        self.said.unlink()
        return lines


def hash_of(log: AttemptLog) -> str:
    facts = parse_facts(log.facts_json)
    assert facts is not None
    return facts.compile_cache


def test_the_first_run_fills_the_cache_and_all_begin_with_what_is_kept(tmp_path: Path) -> None:
    box = Box(tmp_path)
    first = box.measured()
    assert box.runs == ["cold alone", "warm alone"]
    assert first.wall_seconds < 0.4, "the run that compiled counts"
    assert len(hash_of(first)) == 32
    assert f"so that was a warm-up; compile cache {hash_of(first)}" in first.text
    second = box.measured()
    assert box.runs == ["warm alone"]
    assert hash_of(second) == hash_of(first)
    assert "it compiled 1 files that are not in the agent's compile cache" in second.text


def test_what_is_kept_is_read_only_holds_no_link_and_never_changes(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for _ in range(2):
        box.measured()
    [kept] = (box.state / FOLDER).iterdir()
    files = [path for path in (kept / "files").rglob("*") if path.is_file()]
    assert [str(path.relative_to(kept)) for path in files] == ["files/triton/abc/kernel.cubin"]
    assert files[0].stat().st_mode & 0o777 == 0o400
    assert files[0].read_text().endswith("x" * 100)


def test_a_program_that_compiles_nothing_runs_once(tmp_path: Path) -> None:
    box = Box(tmp_path, size=0)
    assert [hash_of(box.measured()), hash_of(box.measured())] == ["", ""]
    assert box.runs == ["cold alone"] * 2


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        # The light run is its own warm-up; ncu would replay the launches that only measure variants.
        ({"level": "light", "profiler": "nsight_systems"}, ["cold nsys", "warm nsys"]),
        (
            {"level": "detailed", "profiler": "nsight_compute", "launch_count": 20,
             "counters": ("cycles_gpc_avg", "instructions", "global_load_sectors")},
            ["cold alone", "warm ncu"],
        ),
    ],
)  # fmt: skip
def test_a_tool_measures_the_warm_program(
    changes: dict[str, object], runs: list[str], tmp_path: Path
) -> None:
    box = Box(tmp_path)
    work = replace(box.work, **changes)  # type: ignore[arg-type]
    assert hash_of(box.measured(work)) and box.runs == runs
    box.measured(work)
    assert box.runs == runs[1:]


def test_a_changed_program_or_variable_has_a_cache_of_its_own(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.measured()
    (box.folder / "program.py").write_text(PROGRAM + "\n# changed\n")
    box.measured()
    command = box.work.command
    assert command is not None
    box.measured(replace(box.work, command=replace(command, environment={"OMP_NUM_THREADS": "2"})))
    assert box.runs == ["cold alone", "warm alone"] * 3
    assert len([*(box.state / FOLDER).iterdir()]) == 3
    device = replace(box.gpu.device, uuid="GPU-another")
    same, other = (cache_key(command, device, driver, box.gpu.path) for driver in ("550.1", "550.2"))
    assert same == cache_key(command, box.gpu.device, "550.1", box.gpu.path) != other


def test_a_cache_that_somebody_changed_is_filled_again(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.measured()
    [file] = (box.state / FOLDER).rglob("kernel.cubin")
    file.chmod(0o600)
    file.write_text(file.read_text() + "changed")
    box.measured()
    assert box.runs == ["cold alone", "warm alone"] * 2


def test_a_run_that_failed_fills_nothing(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert box.work.command is not None
    argv = (*box.work.command.argv[:2], f"{box.work.command.argv[2].removeprefix('exec ')}; exit 3")
    failing = replace(box.work, command=replace(box.work.command, argv=argv))
    for _ in range(2):
        with pytest.raises(ProfilerError):
            box.measured(failing)
    assert box.runs == ["cold alone"] * 2 and not (box.state / FOLDER).exists()


def test_too_much_is_not_kept_and_the_run_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 50)
    box = Box(tmp_path)
    log = box.measured()
    assert box.runs == ["cold alone"] and hash_of(log) == ""
    assert "which the agent does not keep: each run compiles anew" in log.text


def test_the_caches_that_were_used_longest_ago_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "KEPT_BYTES", 400)
    box = Box(tmp_path)
    assert box.work.command is not None
    for number in "123":
        box.measured(replace(box.work, command=replace(box.work.command, environment={"NUMBER": number})))
    assert len([*(box.state / FOLDER).iterdir()]) == 2
    box.said.unlink()
    box.measured(replace(box.work, command=replace(box.work.command, environment={"NUMBER": "3"})))
    assert box.runs == ["warm alone"]


def test_a_campaign_cannot_lead_the_compilers_elsewhere(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert box.work.command is not None
    for name in VARIABLES:
        work = replace(box.work, command=replace(box.work.command, environment={name: "/tmp/x"}))
        with pytest.raises(ProfilerError, match=f"sets {name}, which belongs to the agent"):
            tool_environment(box.gpu, tmp_path, tmp_path, work)


def test_files_of_submitters_compile_in_their_confinement(tmp_path: Path) -> None:
    """They leave links where the agent reads; what they say lies in the job's folder, and goes with it."""
    means = bubblewrap_here()
    box, sent = Box(tmp_path), tmp_path / "sent"
    sent.mkdir()
    (sent / "run.sh").write_text(
        '#!/bin/sh\nfile="$CUDA_CACHE_PATH/kernel"\n'
        'if [ -f "$file" ]; then cat "$file"; echo changed > "$file"; exit; fi\n'
        'mkdir "$CUDA_CACHE_PATH" && echo compiled by "$(id -u)" > "$file" && echo cold\n'
        'ln -s /etc/passwd "$CUDA_CACHE_PATH/link"; ln -s /etc "$TRITON_CACHE_DIR"\n'
        'mkfifo "$CUDA_CACHE_PATH/pipe"\n'
    )
    (sent / "run.sh").chmod(0o755)
    packed = tmp_path / "bundle"
    bundle = pack_bundle(sent, packed)
    command = BundledCommand.of(CommandSource(("./run.sh",), {}, "", 30.0, bundle=bundle), means)
    work = replace(box.work, command=command.fetched(packed))
    first, second = box.measured(work), box.measured(work)
    user = os.geteuid() or 65534
    assert "cold" in first.text
    assert f"compiled by {user}" in second.text and "cold" not in second.text
    assert hash_of(first) == hash_of(second) != ""
