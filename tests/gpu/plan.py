"""What is run to prove the product on a GPU: workloads in parts, each part a campaign."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
TORCH_SCRIPT = HERE / "workloads" / "torch_workloads.py"
REHEARSAL = HERE / "rehearsal"
# "tracers": the CUDA workloads again, their light runs by our own tracer, to compare with Nsight Systems.
# "kineto": the PyTorch workloads again, their light runs by PyTorch's own profiler.
PARTS = ("cuda", "torch", "launches", "tracers", "kineto")
# Parts of which light runs alone count.
LIGHT_ALONE = ("launches", "tracers", "kineto")
FEATURES = "table2"
# Parts whose light runs PyTorch's own profiler can make.
OF_PYTORCH = ("torch", "kineto")
KINETO = "kineto"
_TORCH_SECONDS = 120.0
MOST_SECONDS_OF_A_RUN = 1800.0

# Large enough to fill a GPU of today, small enough for a profiler that replays each launch.
_CUDA_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "saxpy": (),
    "matmul_tiled": (),
    "matmul_tensor": (),
    "reduction": (),
    "stencil": (),
    "graph_walk": (),
    "chain": (),
    "graph_loop": (),
    "multi_stream": (),
    "autotune": (),
}
# name: (what is run, batch, iterations)
_TORCH_ARGUMENTS: Mapping[str, tuple[str, int, int]] = {
    "resnet50_64": ("resnet50", 64, 6),
    "resnet50_128": ("resnet50", 128, 6),
    "resnet50_256": ("resnet50", 256, 6),
    "transformer": ("transformer", 8, 12),
    "lstm": ("lstm", 16, 6),
    "conv3d": ("conv3d", 2, 12),
    "ssd_train": ("ssd_train", 8, 6),
}
# Kernels of about 3 microseconds, a million of them; and long ones.
_LAUNCHES_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "short_kernels": ("--size", "1", "--iterations", "1000000"),
    "long_kernels": ("--size", "200000", "--iterations", "2000"),
}
LONG_KERNELS, SHORT_KERNELS = "long_kernels", "short_kernels"
LEAST_LAUNCHES = 1_000_000


@dataclass(frozen=True)
class Workload:
    """A command with its name in reports."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Box:
    """What the campaigns are made for.

    Args:
        gpu: the kind of GPU.
        synthetic: whether it is a virtual one.
        light: what measures light runs, "nsys" or "cupti", the preferred first; "kineto" alone where the box
            has neither.
        shares: whether shares of the SMs can be had.
        compute_capability: of the GPU, such as "9.0"; "": not known.
    """

    gpu: str
    synthetic: bool
    light: tuple[str, ...]
    shares: bool = True
    compute_capability: str = ""

    def light_of(self, part: str) -> str:
        """What measures the light runs of a part: our own tracer where it is what is to be proved."""
        if self.by_kineto(part):
            return "auto"  # the key of the workload counts
        if self.synthetic and self.light == ("cupti",):
            return "auto"  # a server takes no "cupti" for virtual GPUs: elsewhere they have none
        return "cupti" if part in LIGHT_ALONE and "cupti" in self.light else self.light[0]

    def by_kineto(self, part: str) -> bool:
        """Whether PyTorch's own profiler measures the light runs of a part."""
        return part == KINETO or (part in OF_PYTORCH and self.light == (KINETO,))


def workload_names() -> list[str]:
    """All names of workloads, of every part."""
    return [*_CUDA_ARGUMENTS, *_TORCH_ARGUMENTS, *_LAUNCHES_ARGUMENTS]


def cuda_part(programs: Mapping[str, Path]) -> list[Workload]:
    """The CUDA workloads that were built."""
    return [Workload(name, (str(programs[name]), *words)) for name, words in _CUDA_ARGUMENTS.items()]


def launches_part(programs: Mapping[str, Path]) -> list[Workload]:
    """Nothing but launches, for what a tracer loses and costs."""
    program = str(programs["many_launches"])
    return [Workload(name, (program, *words)) for name, words in _LAUNCHES_ARGUMENTS.items()]


def torch_part(python: str) -> list[Workload]:
    """The PyTorch workloads, by an interpreter that has PyTorch."""
    return [
        Workload(
            label,
            (python, str(TORCH_SCRIPT), name, "--batch", str(batch), "--iterations", str(iterations)),
        )
        for label, (name, batch, iterations) in _TORCH_ARGUMENTS.items()
    ]


def rehearsed_parts() -> tuple[str, ...]:
    """The parts that have stand-ins."""
    return tuple(part for part in PARTS if _rehearsal_of(part).is_dir())


def _rehearsal_of(part: str) -> Path:
    return REHEARSAL / ("torch" if part in OF_PYTORCH else part)


def rehearsal_part(part: str, program: Sequence[str] = ()) -> list[Workload]:
    """The stand-ins of a part's workloads: workload files of virtual GPUs, given to ``program`` if any."""
    return [Workload(path.stem, (*program, str(path))) for path in sorted(_rehearsal_of(part).glob("*.toml"))]


def find_torch(given: str = "") -> tuple[str, str]:
    """A Python whose PyTorch sees a GPU, or "" and why there is none."""
    candidates = [given] if given else [sys.executable, *filter(None, [shutil.which("python3")])]
    why = "no Python"
    for python in dict.fromkeys(candidates):
        code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 3)"
        try:
            asked = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, timeout=_TORCH_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"{python}: {error}"
            continue
        if asked.returncode == 0:
            return os.path.abspath(python), ""  # noqa: PTH100 - a virtual environment's link must stay
        last = (asked.stderr.strip().splitlines() or ["its PyTorch sees no GPU"])[-1]
        why = f"{python}: {last}"
    return "", why


def campaign(
    part: str,
    workloads: Sequence[Workload],
    box: Box,
    *,
    first: int,
    repeats: int,
    slices: int = 2,
    timeout_seconds: float = MOST_SECONDS_OF_A_RUN,
) -> dict[str, Any]:
    """The campaign of a part, as the document of a campaign file.

    Two levels, cycles in one pass apart from features, flushed caches, half of the SMs, bare runs, repeats;
    for the tracer alone a detailed window of no account, and no other condition.
    """
    launches_only = part in LIGHT_ALONE
    by_kineto = box.by_kineto(part)
    conditions: list[dict[str, Any]] = [] if launches_only else [{"cache": "all"}]
    if box.shares and not launches_only:
        conditions.append({"sm_percent": 50})
    window = 4 if launches_only else first
    return {
        "campaign": f"gpu-{part}",
        "synthetic": box.synthetic,
        "gpus": [box.gpu],
        "light": box.light_of(part),
        "bare": True,
        "repeats": 1 if launches_only else repeats,
        "detailed": {
            "first": window,
            "slice_launches": max(1, -(-window // slices)),
            "sets": ["features"] if launches_only else ["cycles", "features"],
            "features": FEATURES,
        },
        **({"conditions": conditions} if conditions else {}),
        "workloads": [
            {
                "name": w.name,
                "command": list(w.command),
                "timeout_s": timeout_seconds,
                **({"kineto": f"{w.name}.json.gz"} if by_kineto else {}),
            }
            for w in workloads
        ],
        "analysis": {"methods": ["pks", {"random": {"launches": 20}}]},
    }


def write_campaign(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a campaign file."""
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False))
    return path


def write_policy(path: Path, workloads: Sequence[Workload], folder: Path) -> Path:
    """A policy file that allows these commands, word by word, and nothing else."""
    rules = [f"version = 1\nallow_root = true\ndirectories = [{json.dumps(str(folder))}]\n"]
    for workload in workloads:
        program, *words = workload.command
        rules.append(
            f"[[allow]]\nname = {json.dumps(workload.name)}\nprogram = {json.dumps(_literal(program))}\n"
            f"arguments = {json.dumps([_literal(word) for word in words])}\n"
            'environment = ["ASSAY_KINETO_FILE"]\n'
        )
    path.write_text("\n".join(rules))
    path.chmod(0o600)
    return path


def _literal(word: str) -> str:
    """The pattern that stands for this word alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in word)
