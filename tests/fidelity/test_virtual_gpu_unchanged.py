"""The virtual GPU is the yardstick of docs/fidelity.md: nobody may tune it until a method looks good on it.

A change of a formula needs new numbers on that page first; a change of words or imports, only a new hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from assay_virtual.model.gpu import ProcessLaunches, VirtualGPU
from assay_virtual.workloads.loading import load_workload

REPOSITORY = Path(__file__).parents[2]
# The first 32 digits of the SHA-256 of each file.
HASHES = {
    "agent/assay_virtual/model/counting.py": "853224f4632d81ce4c767da1a5b03f1a",
    "agent/assay_virtual/model/demand.py": "4806788d902b4c03835604cced2c7625",
    "agent/assay_virtual/model/gpu.py": "cb6ae3df02839f22d3af3c059be72ba0",
    "agent/assay_virtual/model/memory.py": "c22848ddaec62595c2cabb754bbe2566",
    "agent/assay_virtual/model/operators.py": "087a3e2f8ba68eccf510e0585f97953d",
    "agent/assay_virtual/model/randomness.py": "e4c38d136ba8758baea2406d73fc7a12",
    "agent/assay_virtual/model/sequence.py": "58a425bb70f64864dde33376e73ceb33",
    "agent/assay_virtual/model/timeline.py": "a4235825df4b611b5e77f6e3910be264",
    "agent/assay_virtual/model/timing.py": "1163da901a7f00e8d2271c3c5e618a7e",
    "agent/assay_virtual/architectures.py": "e9a5d3fd5778d7caf9bbf0707288ec39",
    "campaigns/virtual/decoder.toml": "9272218e5db0ada9f5a9d1ba13165124",
    "campaigns/virtual/finetuning.toml": "0edd16d7f80748281cc12e0cb1bfbced",
    "campaigns/virtual/generation.toml": "c2f8e922d3d4b84582dc9a53d4e99071",
    "campaigns/virtual/inference.toml": "bf2595e65dd83731b070469ea573ceff",
    "campaigns/virtual/pipeline.toml": "f73b23c42efb4a2243e58c5cfe2cbf65",
    "campaigns/virtual/solver.toml": "e69d63e3e73ddd9bb9bbd697e64c4474",
    "campaigns/virtual/stencil.toml": "36271a692d2cea40d083652006e2f450",
    "campaigns/virtual/training.toml": "cbbd44633acc5586637cd30266833ef6",
    "campaigns/virtual/traversal.toml": "2757db211b567b119833d1f0f5e85e2a",
}


def test_the_virtual_gpu_its_architectures_and_workloads_are_as_they_were_measured() -> None:
    found = {name: hashlib.sha256((REPOSITORY / name).read_bytes()).hexdigest()[:32] for name in HASHES}
    assert found == HASHES


def test_every_file_of_the_model_and_every_workload_is_pinned() -> None:
    model = (REPOSITORY / "agent/assay_virtual/model").glob("[!_]*.py")
    workloads = (REPOSITORY / "campaigns/virtual").glob("*.toml")
    there = {path.relative_to(REPOSITORY).as_posix() for path in (*model, *workloads)}
    assert there | {"agent/assay_virtual/architectures.py"} == set(HASHES)


# Of launches, times, ranges and counters on two GPUs at both levels, from before there were operators.
LAUNCHES = {
    "decoder": "f8966f0ff9a984a3bc5773921b1e09c1",
    "inference": "b8f95eb442b4146372b4bd71df582495",
    "pipeline": "15f0dae6d6beb0315357032c844ba29a",
    "solver": "4fbd662fed0402b16f1bd75c7765fe3c",
    "stencil": "138d2a46371418a80494f0d731a38018",
    "training": "6eb5fc75bcb30414590fff9544dc8d51",
    "traversal": "bc7e36eb0d5affe143b510bfb2c934ed",
}
_LAUNCHED = (
    "launch", "kernel", "grid", "stream", "nvtx", "operator", "input_shapes", "graph_launch", "graph_node",
    "call", "call_ns", "start_ns", "duration_ns",
)  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_launches_of_a_workload_are_byte_for_byte_as_they_were(name: str) -> None:
    workload = load_workload(REPOSITORY / "campaigns/virtual" / f"{name}.toml")
    digest = hashlib.sha256()
    for kind in ("V100", "RTX 3070"):
        for level in ("light", "detailed"):
            for part in VirtualGPU(kind).execute(workload, level=level):  # type: ignore[arg-type]
                _add(digest, part)
    assert digest.hexdigest()[:32] == LAUNCHES[name]


def _add(digest: hashlib._Hash, part: ProcessLaunches) -> None:
    columns = [getattr(part, column) for column in _LAUNCHED]
    ranges = [part.ranges.text, part.ranges.start_ns, part.ranges.end_ns, part.ranges.depth]
    for values in (*columns, *ranges, *part.counters.values()):
        digest.update(np.ascontiguousarray(values).tobytes())
    names = (part.texts, [kernel.name for kernel in part.kernels], part.ranges.texts, list(part.counters))
    digest.update(repr((names, part.total_launches)).encode())
