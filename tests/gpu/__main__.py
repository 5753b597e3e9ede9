"""Prove on this box's GPU what needs one, and print it; or rehearse it on a virtual GPU.

    python -m tests.gpu [--part cuda,torch,launches] [--out DIR] [--first N] [--repeats N] [--virtual KIND]

Exit status: 0 every claim holds; 1 a claim fails, or the campaign broke; 4 what could be shown holds, but
some claims could not be shown; 77 there is nothing to run on (no GPU, no profiler, no compiler).
docs/hardware.md says more.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import build, plan
from tests.gpu.claims import Claim, Measured, agreement, claims_of
from tests.gpu.lab import LabError, running_lab
from tests.gpu.pack import pack_recordings

from assay_agent.doctor_box import mps_daemons
from assay_agent.probe import probe_box

HOLDS, FAILS, PARTLY, NOTHING_TO_RUN_ON = 0, 1, 4, 77
Say = Callable[[str], None]


class CannotRunError(Exception):
    """There is nothing to run on; the text says what is missing."""


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    parts: tuple[str, ...]
    out: Path
    first: int
    repeats: int
    virtual: str
    light: str
    torch_python: str
    cache: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; see the module for the exit status."""
    options = _parsed(arguments)
    mark = "SYNTHETIC (virtual GPU): " if options.virtual else ""

    def say(text: str) -> None:
        for line in text.splitlines() or [""]:
            print(f"{mark}{line}", flush=True)

    try:
        return _prove(options, say)
    except (CannotRunError, build.CannotBuildError) as problem:
        say(f"nothing to run on: {problem}")
        say("python -m tests.gpu --virtual V100 rehearses it without a GPU")
        return NOTHING_TO_RUN_ON
    except LabError as problem:
        say(f"failed: {problem}")
        return FAILS


def _parsed(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="", help=f"of {', '.join(plan.PARTS)}, with commas; default: all")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-test"), help="folder of states, reports, archive"
    )
    parser.add_argument("--first", type=int, default=120, help="launches of the detailed window")
    parser.add_argument("--repeats", type=int, default=2, help="of each run")
    parser.add_argument("--virtual", default="", metavar="KIND", help="rehearse on a virtual GPU; synthetic")
    parser.add_argument("--light", default="", choices=("", "nsys", "cupti"), help="what measures light runs")
    parser.add_argument("--torch-python", default="", help="a Python with PyTorch; default: looked for")
    parser.add_argument("--cache", type=Path, default=build.default_cache(), help="of compiled workloads")
    given = parser.parse_args(arguments)
    offered = plan.rehearsed_parts() if given.virtual else plan.PARTS
    parts = tuple(filter(None, given.part.split(","))) or offered
    if unknown := set(parts) - set(offered):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    return Options(
        parts,
        given.out,
        given.first,
        given.repeats,
        given.virtual,
        given.light,
        given.torch_python,
        given.cache,
    )


def _prove(options: Options, say: Say) -> int:
    box, facts = _virtual_box(options) if options.virtual else _real_box(options)
    workloads = _workloads(options, box, say)
    if not workloads:
        raise CannotRunError("no part has a workload that can run here")
    folder = options.out.absolute() / datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
    folder.mkdir(parents=True)
    say(f"{facts['gpu']}, driver {facts['driver_version'] or '-'}, light runs by {', '.join(box.light)}")
    say(f"into {folder}")
    everything = [workload for part in workloads.values() for workload in part]
    policy = plan.write_policy(folder / "policy.toml", everything, folder)
    measured, claims = [], []
    with tempfile.TemporaryDirectory(prefix="assay-gpu-") as temporary:
        virtual = [options.virtual] if options.virtual else []
        with running_lab(folder, Path(temporary), policy, virtual) as lab:
            for part, of_part in workloads.items():
                document = plan.campaign(part, of_part, box, first=options.first, repeats=options.repeats)
                status, report = lab.run(plan.write_campaign(folder / f"{part}.yaml", document), say)
                (folder / f"{part}.report.json").write_text(json.dumps(report, indent=1))
                least = 0 if options.virtual else plan.LEAST_LAUNCHES
                result = Measured(part, report, lab.runs(status), lab.state, least)
                measured.append(result)
                claims += _told(part, claims_of(result), say)
        left = [str(pipe) for pipe in mps_daemons() if Path(pipe).is_relative_to(temporary)]
    by_part = {result.part: result for result in measured}
    if {"cuda", "tracers"} <= set(by_part):
        claims += _told("box", [agreement(by_part["cuda"], by_part["tracers"])], say)
    claims += _told("box", [_nothing_left(left)], say)
    _write(folder, facts, measured, claims, say)
    return _concluded(options, measured, claims, say)


def _told(part: str, claims: list[Claim], say: Say) -> list[Claim]:
    for claim in claims:
        claim.name = f"{part}: {claim.name}"
        say(f"[{claim.state}] {claim.name}{f' - {claim.why}' if claim.why else ''}")
        for line in claim.lines:
            say(f"    {line}")
    return claims


def _nothing_left(daemons: list[str]) -> Claim:
    claim = Claim("no MPS daemon is left behind", lines=[f"{len(daemons)} daemons left"])
    return claim.judge(daemons)


def _write(
    folder: Path, facts: Mapping[str, Any], measured: Sequence[Measured], claims: Sequence[Claim], say: Say
) -> None:
    """The claims and the recordings, for those who come after."""
    summary = {**facts, "claims": [claim.to_dict() for claim in claims]}
    (folder / "claims.json").write_text(json.dumps(summary, indent=1))
    archive = folder / "recordings.tar.gz"
    manifest = pack_recordings(archive, measured, facts)
    kept, left_out = len(manifest["runs"]), len(manifest["left_out"])
    say(f"{archive}: {manifest['bytes']:,} bytes, {kept} runs, {left_out} left out")


def _concluded(options: Options, measured: Sequence[Measured], claims: Sequence[Claim], say: Say) -> int:
    """The last line, and the exit status."""
    states = [claim.state for claim in claims]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    missing = [part for part in options.parts if part not in {result.part for result in measured}]
    without = f"; nothing of the parts {', '.join(missing)}" if missing else ""
    say(f"{len(claims)} claims: {counted}{without}")
    if "fails" in states:
        return FAILS
    return PARTLY if missing or "not shown" in states else HOLDS


def _workloads(options: Options, box: plan.Box, say: Say) -> dict[str, list[plan.Workload]]:
    if options.virtual:
        return {part: plan.rehearsal_part(part) for part in options.parts}
    found = {}
    if {"cuda", "launches", "tracers"} & set(options.parts):
        options.cache.mkdir(parents=True, exist_ok=True)
        compiler = build.find_compiler(options.cache)
        programs = build.build(compiler, options.cache, build.architecture_of_box())
        say(f"{len(programs)} workloads by nvcc {compiler.release}")
        parts = {"cuda": plan.cuda_part, "launches": plan.launches_part}
        if {"nsys", "cupti"} <= set(box.light):
            parts["tracers"] = plan.cuda_part
        found = {part: make(programs) for part, make in parts.items() if part in options.parts}
    if "torch" in options.parts:
        python, why = plan.find_torch(options.torch_python)
        if python:
            found["torch"] = plan.torch_part(python)
        else:
            say(f"no PyTorch workloads: {why}")
    return found


def _virtual_box(options: Options) -> tuple[plan.Box, dict[str, Any]]:
    box = plan.Box(options.virtual, synthetic=True, light=("nsys",))
    return box, _facts(f"virtual {options.virtual}", "", {}, synthetic=True)


def _real_box(options: Options) -> tuple[plan.Box, dict[str, Any]]:
    """The first GPU of this box that takes runs; raises CannotRunError with what is missing."""
    found = probe_box(Path())
    if not found["gpus"]:
        raise CannotRunError(f"no GPU: {found['no_gpu_reason']}")
    gpu = next((gpu for gpu in found["gpus"] if not gpu["takes_no_runs"]), None)
    if gpu is None:
        raise CannotRunError("; ".join(f"{gpu['name']}: {gpu['takes_no_runs']}" for gpu in found["gpus"]))
    levels = gpu["levels"]
    light = (options.light,) if options.light else tuple(levels["light"])
    for level, there in (("detailed", levels["detailed"]), ("light", light)):
        if not there:
            problems = [
                f"{name}: {tool['problem']}" for name, tool in found["tools"].items() if tool["problem"]
            ]
            raise CannotRunError(f"no profiler for the {level} level ({'; '.join(problems)})")
    shares = gpu["conditions"]["sm_percent"]["offered"]
    box = plan.Box(gpu["name"], synthetic=False, light=light, shares=shares)
    tools = {name: tool["version"] for name, tool in found["tools"].items() if tool["usable"]}
    return box, _facts(gpu["name"], found["driver_version"], tools, synthetic=False)


def _facts(gpu: str, driver: str, tools: Mapping[str, str], *, synthetic: bool) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "synthetic": synthetic,
        "driver_version": driver,
        "tools": dict(tools),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "nvcc": shutil.which("nvcc") or "",
    }


if __name__ == "__main__":
    sys.exit(main())
