"""The first call on a borrowed GPU: looks, each with its limit, none of which keeps the next from being made.

    python -m tests.gpu.first_call --out DIR [--time-limit 360] [--programs DIR] [--torch-python PYTHON]

What each said is in ``DIR/<time>/first-call.tar.gz``, with ``steps.json``: how each ended, and how soon.
Exit status: 0 if every look ended with 0, else 4; what was made by then is kept in any case.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from assay_sampling.counters.definitions import FEATURE_SETS, metric_of
from tests.gpu import plan
from tests.gpu.box import with_tool_folders

PARTLY = 4
_RESERVE_SECONDS = 15.0
_END_SECONDS = 5.0
_MOST_KEPT_BYTES = 256 << 10
_MOST_FRAMES_BYTES = 20 << 20
_CYCLES = "gpc__cycles_elapsed.avg"
_NCU = (
    "ncu", "--config-file", "off", "--target-processes", "all", "--cache-control", "none",
    "--clock-control", "none", "-f", "-o", "report",
)  # fmt: skip
_PROBE = Path(plan.HERE.parents[1], "agent", "assay_agent", "conditions", "probe.py")
# A private daemon, which ends with its shell; its folder has a short path.
_UNDER_MPS = """\
set -u; folder=$(mktemp -d /tmp/mps.XXXX)
export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
trap 'exit 143' TERM
trap 'echo quit | nvidia-cuda-mps-control; cat $folder/*.log; rm -rf $folder' EXIT
nvidia-cuda-mps-control -d || exit 1
"""


@dataclass(frozen=True)
class Step:
    """One look: its name, how long it may take, and its command."""

    name: str
    seconds: float
    command: tuple[str, ...]


@dataclass(frozen=True)
class Ending:
    """How a look ended: "done", "failed" (with its exit status), "cut" or "not begun" for want of time, or
    "missing" where there is no such program."""

    name: str
    state: str
    seconds: float
    exit_status: int | None = None


def steps(programs: Path | None, torch_python: str) -> Iterator[Step]:
    """The looks, the cheapest and most telling first."""
    python = sys.executable
    yield Step("nvml", 30, (python, "-m", "tests.gpu.looks", "nvml"))
    yield Step("nvidia-smi", 20, ("nvidia-smi", "-q"))
    for name, option in (("ncu", "--version"), ("nsys", "--version"), ("nvcc", "--version")):
        yield Step(f"{name} version", 10, (name, option))
    yield Step("libraries", 20, ("/bin/sh", "-c", "ldconfig -p | grep -E 'cuda|cupti|nvidia'; ldd --version"))
    if programs is not None:
        for name in ("saxpy", "graph_loop", "multi_stream"):
            yield _traced(name, 25, str(programs / name))
    if torch_python:
        words = (torch_python, str(plan.TORCH_SCRIPT), "transformer", "--batch", "8", "--iterations", "4")
        yield _traced("transformer", 60, *words)
        yield Step("kineto transformer", 60, (*words, "--kineto", "kineto.json.gz"))
    if programs is not None:
        yield from _counted(programs)
        yield from _shared(programs)


def _traced(name: str, seconds: float, *command: str) -> Step:
    frames = ("-m", "tests.gpu.looks", "frames", f"{name}.frames")
    return Step(f"tracer {name}", seconds, (sys.executable, *frames, *command))


def _counted(programs: Path) -> Iterator[Step]:
    """What ncu costs: a launch in one pass and in several, and launches that it skips."""
    features = ",".join(dict.fromkeys(metric_of(name) for name in FEATURE_SETS[plan.FEATURES]))
    for name, metrics in (("one pass", _CYCLES), ("features", features)):
        command = (*_NCU, "--launch-count", "20", "--metrics", metrics, str(programs / "saxpy"))
        yield Step(f"ncu {name}", 40, command)
    for skip in (0, 100_000, 900_000):
        words = ("--launch-skip", str(skip), "--launch-count", "4", "--kill", "yes", "--metrics", _CYCLES)
        many = (str(programs / "many_launches"), "--size", "1", "--iterations", "1000000")
        yield Step(f"ncu skips {skip}", 60, (*_NCU, *words, *many))


def _shared(programs: Path) -> Iterator[Step]:
    """What processes see under MPS at shares of the SMs, and what ncu does there."""
    for percent in (50, 37, 10):
        probe = f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent} {sys.executable} -I -S {_PROBE}"
        yield Step(f"mps {percent} percent", 20, ("/bin/sh", "-c", _UNDER_MPS + probe))
    ncu = " ".join((*_NCU, "--launch-count", "120", "--metrics", _CYCLES, str(programs / "saxpy")))
    yield Step("ncu under mps", 40, ("/bin/sh", "-c", _UNDER_MPS + ncu))


def made(step: Step, folder: Path, seconds: float) -> Ending:
    """Make a look within ``seconds`` at most, its output in a file of its name; it never raises."""
    began = time.monotonic()
    if seconds < 1:
        return Ending(step.name, "not begun", 0.0)
    with (folder / f"{step.name}.txt").open("wb") as output:
        try:
            process = subprocess.Popen(
                step.command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths())},
            )  # fmt: skip
        except OSError as problem:
            output.write(str(problem).encode())
            return Ending(step.name, "missing", 0.0)
        try:
            status = process.wait(min(step.seconds, seconds))
        except subprocess.TimeoutExpired:
            _end(process)
            return Ending(step.name, "cut", round(time.monotonic() - began, 3))
    return Ending(step.name, "failed" if status else "done", round(time.monotonic() - began, 3), status)


def _paths() -> list[str]:
    return [str(plan.HERE.parents[1]), *filter(None, sys.path)]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the look with everything that it started: in order, then at once."""
    for number, seconds in ((signal.SIGTERM, _END_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            if number == signal.SIGKILL:
                return


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all looks; see the module for the exit status."""
    parser = argparse.ArgumentParser(prog="first_call", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-test"))
    parser.add_argument("--work", type=Path, help="not used: all that is made is small")
    parser.add_argument("--time-limit", type=float, default=360.0, metavar="SECONDS")
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--torch-python", default="")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.time_limit - _RESERVE_SECONDS
    os.environ["PATH"] = with_tool_folders(os.environ.get("PATH", os.defpath))
    folder = options.out.absolute() / datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
    folder.mkdir(parents=True)
    torch_python, why = plan.find_torch(options.torch_python)
    print(f"into {folder}{f'; no PyTorch: {why}' if why else ''}", flush=True)
    endings: list[Ending] = []
    programs = options.programs.absolute() if options.programs else None
    with tempfile.TemporaryDirectory(prefix="assay-looks-") as temporary:
        for step in steps(programs, torch_python):
            endings.append(made(step, Path(temporary), until - time.monotonic()))
            print(f"{endings[-1].state}: {step.name} ({endings[-1].seconds:g} s)", flush=True)
            pack(Path(temporary), endings, folder / "first-call.tar.gz")
    return 0 if all(ending.state == "done" for ending in endings) else PARTLY


def pack(looks: Path, endings: Sequence[Ending], archive: Path) -> None:
    """Write what there is: outputs cut at their ends, frames and traces while they fit."""
    document = json.dumps([asdict(ending) for ending in endings], indent=1)
    (looks / "steps.json").write_text(document)
    (archive.parent / "steps.json").write_text(document)
    partial, room = archive.with_name(f"{archive.name}.partial"), _MOST_FRAMES_BYTES
    with tarfile.open(partial, "w:gz") as packed:
        for path in sorted(looks.iterdir()):
            size = path.stat().st_size
            if path.suffix in (".txt", ".json"):
                kept = looks / "kept"
                kept.write_bytes(path.read_bytes()[:_MOST_KEPT_BYTES])
                packed.add(kept, path.name)
                kept.unlink()
            elif path.is_file() and size <= room:
                room -= size
                packed.add(path, path.name)
    shutil.move(partial, archive)


if __name__ == "__main__":
    sys.exit(main())
