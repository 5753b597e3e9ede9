"""Compiling the fake CUPTI and the programs that use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay_agent.tracer.build import GENERATIONS, compile_c, header_folders

HERE = Path(__file__).parents[2] / "tracer"
FLAGS = ("-std=gnu11", "-O2", "-pthread")
_PARTS = ("cupti", "records", "cuda")


def compile_fake(fake: Path, cuda: str, flags: Sequence[str] = FLAGS) -> None:
    """The fake CUPTI as a library, with the headers of one generation."""
    shared = (*flags, "-fPIC", "-shared", f"-Wl,-soname,{fake.name}")
    sources = [HERE / f"fake_{part}.c" for part in _PARTS]
    compile_c(sources, fake, [*header_folders(GENERATIONS[cuda]), HERE], shared)
