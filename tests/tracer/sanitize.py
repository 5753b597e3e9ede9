"""The tracer under sanitizers and valgrind, fed by the fake CUPTI: 'make tracer-sanitize'.

    python -m tests.tracer.sanitize [--short] [--only address|thread|valgrind]

Tracer, fake and workload are compiled anew with gcc's address and undefined-behaviour sanitizers, then with
its thread sanitizer, and as they are for valgrind. The agent's end is a real receiver. Whatever a sanitizer
says on stderr, and whatever the counts of the tracer say is missing, makes it fail (exit status 1). Where
valgrind is not there, root installs it with apt-get; else that part is skipped, and said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.profilers.cupti import tracer_environment
from assay_agent.tracer import build
from assay_agent.tracer.receiver import Receiver
from tests.support.tracer.fake_builds import FLAGS, HERE, compile_fake
from tests.support.tracer.traced_runs import SCHEMA, drain, short_folder

_CUDA = "13"
_SECONDS = 600
_SUPPRESSIONS = HERE / "nvtx.suppressions"
_SHARED = ("-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


@dataclass(frozen=True)
class Tool:
    """How programs are compiled and started."""

    name: str
    flags: tuple[str, ...]
    wrapper: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    slowness: int = 1


# Leaks: what the tracer takes it keeps to the end of the process, in tables that stay reachable.
_TOOLS = (
    Tool(
        "address",
        (
            "-g",
            "-O1",
            "-fno-omit-frame-pointer",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=undefined",
        ),
        environment=(("ASAN_OPTIONS", "detect_leaks=0:exitcode=99"), ("UBSAN_OPTIONS", "print_stacktrace=1")),
    ),
    Tool(
        "thread",
        ("-g", "-O1", "-fsanitize=thread"),
        wrapper=("setarch", "-R"),  # its runtime of older releases cannot live with all random addresses
        environment=(("TSAN_OPTIONS", f"exitcode=99:die_after_fork=0:suppressions={_SUPPRESSIONS}"),),
    ),
    Tool(
        "valgrind",
        ("-g", "-O1"),
        wrapper=("valgrind", "--quiet", "--error-exitcode=99", "--trace-children=yes", "--fair-sched=yes"),
        slowness=20,
    ),
)


@dataclass(frozen=True)
class Scenario:
    """One run of the workload; ``whole``: every launch must come."""

    name: str
    arguments: dict[str, object]
    switches: dict[str, object]
    whole: bool = True


def scenarios(launches: int) -> list[Scenario]:
    """What is run: every path of the tracer, with about that many launches."""
    often: dict[str, object] = {"ASSAY_TRACER_FLUSH_MS": 5, "ASSAY_TRACER_WAIT_MS": 600_000}
    everything: dict[str, object] = {"threads": 4, "graphs": 10, "failing": 41, "captured": 37, "nvtx": 1}
    nested: dict[str, object] = {"threads": 2, "devices": 2, "graphs": 5, "graph": "nested"}
    workers: dict[str, object] = {"child": "worker", "children": 3, "end": "_exit"}
    endless: dict[str, object] = {"FAKE_CUPTI_ENDLESS": 100, "ASSAY_TRACER_SYNC_MS": 200}
    resets: dict[str, object] = {"launches": launches // 8, "reset": max(launches // 40, 1)}
    return [
        Scenario("threads, graphs and ranges", {"launches": launches, **everything}, often),
        Scenario("nested graphs, two devices", {"launches": launches // 4, **nested}, often),
        Scenario("resets", resets, {"FAKE_CUPTI_KERNEL_MS": 2}),
        Scenario("workers", {"launches": launches // 20, **workers}, {}),
        Scenario("an executed child", {"launches": 200, "child": "exec"}, {}),
        Scenario("a kernel that never ends", {"launches": 200}, endless, whole=False),
        Scenario("another profiler", {"launches": 200}, {"FAKE_CUPTI_SUBSCRIBE": 39}, whole=False),
    ]


@dataclass(frozen=True)
class Programs:
    """What was compiled for a tool."""

    tracer: Path
    workload: Path
    forks: Path


def compiled(tool: Tool, folder: Path) -> Programs:
    """Tracer, fake CUPTI, workload and the program that forks; raises TracerBuildError."""
    headers = build.header_folders(build.GENERATIONS[_CUDA])
    made = Programs(folder / "libassay-tracer.so", folder / "workload", folder / "forks")
    fake = folder / f"libcupti.so.{_CUDA}"
    build.compile_c(
        sorted(Path(build.__file__).parent.glob("*.c")), made.tracer, headers, (*_SHARED, *tool.flags)
    )
    compile_fake(fake, _CUDA, (*FLAGS, *tool.flags))
    beside = ("-L", str(folder), f"-l:{fake.name}", "-Wl,-rpath,$ORIGIN", "-ldl")
    flags = (*FLAGS, *tool.flags)
    build.compile_c([HERE / "workload.c"], made.workload, [*headers, HERE], flags, beside)
    build.compile_c([HERE / "forks.c"], made.forks, headers, flags)
    return made


def run(tool: Tool, programs: Programs, scenario: Scenario) -> list[str]:
    """What is wrong with it, in lines; nothing where it is clean."""
    with short_folder() as folder, Receiver(folder / "socket", lambda hello: SCHEMA) as receiver:
        words = [str(programs.workload), *(f"{name}={value}" for name, value in scenario.arguments.items())]
        environment = {
            **tracer_environment(programs.tracer, folder / "socket"),
            **{name: str(value) for name, value in scenario.switches.items()},
        }
        with (folder / "stderr").open("w+") as errors:
            with subprocess.Popen(
                [*tool.wrapper, *words],
                env=_environment(tool, environment),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            ) as process:
                drain(receiver, process)
            errors.seek(0)
            said = errors.read()
    wrong = _said(process.returncode, said)
    if scenario.whole:
        wrong += [fault for traced in receiver.processes for fault in traced.faults()]
        wrong += [] if sum(traced.handed_on for traced in receiver.processes) else ["no launch came"]
    return wrong


def run_forks(tool: Tool, programs: Programs, count: int) -> list[str]:
    """The children of a program whose threads push NVTX ranges."""
    done = subprocess.run(
        [*tool.wrapper, str(programs.forks), str(count)],
        env=_environment(tool, tracer_environment(programs.tracer, Path("/nobody"))),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    hung = (
        [] if done.stdout.startswith("0 of ") else [f"children hung: {done.stdout.strip() or 'nothing said'}"]
    )
    return _said(done.returncode, done.stderr) + hung


def _environment(tool: Tool, environment: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), **environment, **dict(tool.environment)}


def _said(code: int, errors: str) -> list[str]:
    lines = errors.strip().splitlines()
    return ([f"exit status {code}"] if code else []) + lines[:60]


def lacking(tool: Tool) -> str:
    """Why a tool cannot be used here; "" where it can. Valgrind is installed where that is allowed."""
    program = tool.wrapper[0] if tool.wrapper else "cc"
    if program == "valgrind" and shutil.which(program) is None and os.geteuid() == 0:
        install = ["install", "--yes", "--no-install-recommends", "valgrind"]
        for words in (["update"], install) if shutil.which("apt-get") else ():
            command = ["apt-get", "--quiet", *words]
            subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=False)
    return "" if shutil.which(program) else f"there is no {program} here, and it could not be installed"


def check(tool: Tool, launches: int, forks: int) -> bool:
    """Run all scenarios under one tool, and say what came of each."""
    clean = True
    with tempfile.TemporaryDirectory(prefix="assay-sanitize-") as folder:
        programs = compiled(tool, Path(folder))
        several = scenarios(max(launches // tool.slowness, 400))
        steps = [(scenario.name, lambda s=scenario: run(tool, programs, s)) for scenario in several]
        steps.append(("forked children", lambda: run_forks(tool, programs, max(forks // tool.slowness, 3))))
        for name, step in steps:
            began = time.monotonic()
            wrong = step()
            state = "clean" if not wrong else "FAILS"
            _say(f"{tool.name}: {name}: {state} ({time.monotonic() - began:.1f} s)", *wrong)
            clean &= not wrong
    return clean


def _say(*lines: str) -> None:
    sys.stdout.write("\n    ".join(lines) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where everything is clean, 1 where it is not or cannot be compiled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="fewer launches, as CI runs it")
    parser.add_argument("--only", choices=[tool.name for tool in _TOOLS], help="one tool")
    parser.add_argument("--may-lack", action="store_true", help="status 0 also without NVIDIA's headers")
    given = parser.parse_args(arguments)
    launches, forks = (8_000, 20) if given.short else (200_000, 100)
    clean = True
    for tool in _TOOLS:
        if given.only not in {None, tool.name}:
            continue
        if why := lacking(tool):
            _say(f"{tool.name}: SKIPPED: {why}")
            continue
        try:
            clean &= check(tool, launches, forks)
        except build.TracerLackingError as error:
            _say(f"{tool.name}: SKIPPED: {error}")
            clean &= given.may_lack
        except build.TracerBuildError as error:
            _say(f"{tool.name}: it does not compile: {error}")
            clean = False
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
