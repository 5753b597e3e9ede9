"""What a rehearsal by the tracer needs: the tracer, and the fake CUPTI, compiled once into a cache."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from assay_agent.tracer.build import TracerBuildError, find_tracer, why_unavailable
from tests.support.tracer.fake_builds import HERE, compile_fake

AGENT = "tests.gpu.rehearsal.agent"
_GENERATION = "13"
_PROGRAM = Path(__file__).with_name("cuda_program.py")


def traced_program(cache: Path) -> tuple[str, ...]:
    """The first words of a command that launches the kernels of a workload file under the fake CUPTI.

    Raises TracerBuildError where the tracer is not built, or the fake cannot be.
    """
    if find_tracer() is None:
        raise TracerBuildError("the tracer", why_unavailable() or "it is not built", "run: make tracer")
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(HERE.glob("fake_*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    library = cache / "rehearsal" / digest.hexdigest() / f"libcupti.so.{_GENERATION}"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        compile_fake(library, _GENERATION)
    return program_with(library)


def program_with(library: Path) -> tuple[str, ...]:
    """The same with a fake CUPTI that is compiled already."""
    return sys.executable, str(_PROGRAM), str(library)
