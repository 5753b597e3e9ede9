"""The virtual GPU is the yardstick of docs/fidelity.md: nobody may tune it until a method looks good on it.

A change of a formula needs new numbers on that page first; a change of words or imports, only a new hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# The first 32 digits of the SHA-256 of each file.
HASHES = {
    "agent/assay_virtual/model/counting.py": "853224f4632d81ce4c767da1a5b03f1a",
    "agent/assay_virtual/model/demand.py": "4806788d902b4c03835604cced2c7625",
    "agent/assay_virtual/model/gpu.py": "333511116864871a5c962b08bac3194c",
    "agent/assay_virtual/model/memory.py": "c22848ddaec62595c2cabb754bbe2566",
    "agent/assay_virtual/model/randomness.py": "e4c38d136ba8758baea2406d73fc7a12",
    "agent/assay_virtual/model/sequence.py": "765d83beb1f3bc02416da65b20c50b99",
    "agent/assay_virtual/model/timeline.py": "314f16e173fb39470cc0f19fb1224718",
    "agent/assay_virtual/model/timing.py": "1163da901a7f00e8d2271c3c5e618a7e",
    "agent/assay_virtual/architectures.py": "e9a5d3fd5778d7caf9bbf0707288ec39",
    "campaigns/virtual/decoder.toml": "7edb1cea2bfb25ee1f4647acf1b5ad40",
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
