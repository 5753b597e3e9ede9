"""Prove on this box's GPU what needs one, and print it; or rehearse it on a virtual GPU.

    python -m tests.gpu [--part cuda,torch,launches] [--out DIR] [--time-limit SECONDS] [--virtual KIND]

Exit status: 0 every claim holds; 1 a claim fails, or the campaign broke; 4 what could be shown holds, but
some claims could not be shown; 77 there is nothing to run on (no GPU, no profiler, no compiler); 143 it was
told to stop. Whatever was finished by then is in the results. docs/hardware.md says more.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.conditions.mps_daemons import mps_daemons
from assay_agent.tracer.build import TracerBuildError
from tests.gpu import build, plan
from tests.gpu.box import CannotRunError, real_box, virtual_box, with_tool_folders
from tests.gpu.claims import Claim
from tests.gpu.lab import LabError, running_lab
from tests.gpu.proof import Proof, Results, Say, TimeLimit, not_proved_in
from tests.gpu.rehearsal import traced

HOLDS, FAILS, PARTLY, NOTHING_TO_RUN_ON = 0, 1, 4, 77


class StoppedError(BaseException):
    """A signal asks for the end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    parts: tuple[str, ...]
    workloads: tuple[str, ...]
    out: Path
    work: Path | None
    first: int
    slices: int
    repeats: int
    time_limit: float
    virtual: str
    light: str
    torch_python: str
    again: Path | None
    cache: Path
    programs: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; see the module for the exit status."""
    options = _parsed(arguments)
    limit = TimeLimit(options.time_limit)
    mark = "SYNTHETIC (virtual GPU): " if options.virtual else ""

    def say(text: str) -> None:
        # The results are in files: that nobody listens any more is no reason to give a GPU back unused.
        with contextlib.suppress(BrokenPipeError):
            for line in text.splitlines() or [""]:
                print(f"{mark}{line}", flush=True)

    os.environ["PATH"] = with_tool_folders(os.environ.get("PATH", os.defpath))
    try:
        with _signals_raise():
            return _prove(options, limit, say)
    except (CannotRunError, build.CannotBuildError) as problem:
        say(f"nothing to run on: {problem}")
        say("python -m tests.gpu --virtual V100 rehearses it without a GPU")
        return NOTHING_TO_RUN_ON
    except LabError as problem:
        say(f"failed: {problem}")
        return FAILS
    except StoppedError as stopped:
        say(f"stopped by {stopped}; what was finished is in {options.out}")
        return 128 + stopped.number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGINT end the proof in order: server and agent are stopped, conditions undone."""

    def stop(number: int, _: object) -> None:
        for once in before:
            signal.signal(once, signal.SIG_IGN)  # who is in haste kills
        raise StoppedError(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parsed(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--part", default="", help=f"of {', '.join(plan.PARTS)}, with commas, in that order; default: all")
    add("--workloads", default="", help="only these of the parts' workloads, with commas; default: all")
    add("--out", type=Path, default=Path("gpu-test"), help="folder of claims, recordings and logs")
    add("--work", type=Path, help="folder of states and reports; default: beside the results")
    add("--first", type=int, default=120, help="launches of the detailed window")
    add("--slices", type=int, default=2, help="parts of the detailed window, each a run of the workload")
    add("--repeats", type=int, default=2, help="of each run")
    add("--time-limit", type=float, default=0.0, metavar="SECONDS", help="of everything; 0: none")
    add("--virtual", default="", metavar="KIND", help="rehearse on a virtual GPU; synthetic")
    add("--light", default="", choices=("", "nsys", "cupti", "kineto"), help="what measures light runs")
    add("--again", type=Path, metavar="DIR", help="only what the results of earlier calls in DIR lack")
    add("--torch-python", default="", help="a Python with PyTorch; default: looked for")
    add("--cache", type=Path, default=build.default_cache(), help="of compiled workloads")
    add("--programs", type=Path, help="folder of workloads that were compiled elsewhere")
    given = vars(parser.parse_args(arguments))
    offered = plan.rehearsed_parts() if given["virtual"] else plan.PARTS
    parts = tuple(filter(None, given.pop("part").split(","))) or offered
    workloads = tuple(filter(None, given.pop("workloads").split(",")))
    if given["virtual"] and given["light"] == plan.KINETO:
        parser.error("a rehearsal has no light runs by kineto")
    if unknown := set(parts) - set(offered):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if unknown := set(workloads) - set(plan.workload_names()):
        parser.error(f"there is no workload {', '.join(sorted(unknown))}")
    return Options(parts=parts, workloads=workloads, **given)


def _prove(options: Options, limit: TimeLimit, say: Say) -> int:
    program = _rehearsed_program(options, say) if options.virtual else ()
    light = "cupti" if program else "nsys"
    box, facts = virtual_box(options.virtual, light) if options.virtual else real_box(options.light)
    workloads = _workloads(options, box, program, say)
    if not workloads:
        raise CannotRunError("no part has a workload that can run here")
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
    folder = options.out.absolute() / stamp
    work = (options.work or options.out).absolute() / stamp
    for made in (folder, work):
        made.mkdir(parents=True, exist_ok=True)
    say(f"{facts['gpu']}, driver {facts['driver_version'] or '-'}, light runs by {', '.join(box.light)}")
    say(f"into {folder}")
    everything = [workload for part in workloads.values() for workload in part]
    policy = plan.write_policy(work / "policy.toml", everything, work)
    results = Results(folder, work, facts)
    with tempfile.TemporaryDirectory(prefix="assay-gpu-") as temporary:
        virtual = [options.virtual] if options.virtual else []
        agent = traced.AGENT if program else "assay_agent.main"
        with running_lab(work, Path(temporary), policy, virtual, agent) as lab:
            proof = Proof(lab, results, limit, 0 if options.virtual else plan.LEAST_LAUNCHES, say)
            for part, of_part in workloads.items():
                _run_part(proof, part, of_part, options, box)
        left = [str(pipe) for pipe in mps_daemons() if Path(pipe).is_relative_to(temporary)]
    proof.compare_tracers()
    proof.add("box", [_nothing_left(left)])
    manifest = results.write(
        list(proof.measured.values()), proof.claims, ended=True, not_proved=proof.not_proved
    )
    kept, left_out = len(manifest["runs"]), len(manifest["left_out"])
    say(f"{folder / 'recordings.tar.gz'}: {manifest['bytes']:,} bytes, {kept} runs, {left_out} left out")
    return _concluded(options, proof, say)


def _rehearsed_program(options: Options, say: Say) -> tuple[str, ...]:
    """What runs workload files under the tracer; () where light runs are those of the stand-in of nsys."""
    if options.light == "nsys":
        return ()
    try:
        return traced.traced_program(options.cache)
    except TracerBuildError as problem:
        if options.light:
            raise CannotRunError(str(problem)) from problem
        say(f"the way of our tracer is not rehearsed: {problem}")
        return ()


def _run_part(
    proof: Proof, part: str, workloads: list[plan.Workload], options: Options, box: plan.Box
) -> None:
    # One run that hangs must not take all the time that there is.
    timeout = min(plan.MOST_SECONDS_OF_A_RUN, options.time_limit / 3 or math.inf)
    proof.run_part(
        part,
        workloads,
        lambda workload: plan.campaign(
            part,
            [workload],
            box,
            first=options.first,
            repeats=options.repeats,
            slices=options.slices,
            timeout_seconds=timeout,
        ),
    )


def _nothing_left(daemons: list[str]) -> Claim:
    claim = Claim("no MPS daemon is left behind", lines=[f"{len(daemons)} daemons left"])
    return claim.judge(daemons)


def _concluded(options: Options, proof: Proof, say: Say) -> int:
    """The last line, and the exit status."""
    states = [claim.state for claim in proof.claims]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    missing = [part for part in options.parts if part not in proof.measured]
    without = f"; nothing of the parts {', '.join(missing)}" if missing else ""
    say(f"{len(states)} claims: {counted}{without}")
    if "fails" in states:
        return FAILS
    return PARTLY if missing or "not shown" in states else HOLDS


def _workloads(
    options: Options, box: plan.Box, program: Sequence[str], say: Say
) -> dict[str, list[plan.Workload]]:
    """The workloads of each part, in the order asked for; a part that cannot be had is left out and said."""
    rehearsed = options.parts if options.virtual else ()
    found = {part: plan.rehearsal_part(part, program) for part in rehearsed if program or part != plan.KINETO}
    if box.light == (plan.KINETO,) and set(options.parts) - set(plan.OF_PYTORCH):
        say("only PyTorch's own profiler is here for light runs, so there are none of CUDA workloads")
    elif not options.virtual and {"cuda", "launches", "tracers"} & set(options.parts):
        found |= _cuda_parts(options, box, say)
    if not options.virtual and set(plan.OF_PYTORCH) & set(options.parts):
        python, why = plan.find_torch(options.torch_python)
        if python:
            found |= dict.fromkeys(plan.OF_PYTORCH, plan.torch_part(python))
        else:
            say(f"no PyTorch workloads: {why}")
    if options.workloads:
        found = {part: [w for w in ws if w.name in options.workloads] for part, ws in found.items()}
    if options.again is not None:
        wanted = set(not_proved_in(options.again))
        lacking = ", ".join(" ".join(pair) for pair in sorted(wanted))
        say(f"what earlier calls did not prove: {lacking or 'nothing'}")
        found = {part: [w for w in ws if (part, w.name) in wanted] for part, ws in found.items()}
    return {part: found[part] for part in options.parts if found.get(part)}


def _cuda_parts(options: Options, box: plan.Box, say: Say) -> dict[str, list[plan.Workload]]:
    """Empty, and said why, where no compiler can be had: PyTorch may be there all the same."""
    try:
        programs = _programs(options, box, say)
    except build.CannotBuildError as problem:
        if "torch" not in options.parts:
            raise
        say(f"no CUDA workloads: {problem}")
        return {}
    parts = {"cuda": plan.cuda_part, "launches": plan.launches_part}
    if {"nsys", "cupti"} <= set(box.light):
        parts["tracers"] = plan.cuda_part
    return {part: make(programs) for part, make in parts.items()}


def _programs(options: Options, box: plan.Box, say: Say) -> dict[str, Path]:
    if options.programs is not None:
        say(f"workloads compiled elsewhere, in {options.programs}")
        return build.compiled_elsewhere(options.programs)
    options.cache.mkdir(parents=True, exist_ok=True)
    architecture = build.architecture_of(box.compute_capability) or build.architecture_of_box()
    compiler = build.find_compiler(options.cache, architecture=architecture)
    programs = build.build(compiler, options.cache, architecture, strict=False)
    say(f"{len(programs)} workloads for {architecture} by nvcc {compiler.release}")
    return programs


if __name__ == "__main__":
    sys.exit(main())
