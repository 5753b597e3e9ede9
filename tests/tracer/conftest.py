"""The built tracer, the fake CUPTI and its workload; what cannot be built here is skipped with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay_agent.tracer.build import (
    GENERATIONS,
    TracerBuildError,
    compile_c,
    find_tracer,
    header_folders,
    why_unavailable,
)
from tests.support.tracer.fake_builds import FLAGS, HERE, compile_fake
from tests.support.tracer.traced_runs import BuiltTracer


def _built(cuda: str, folder: Path) -> BuiltTracer:
    library = find_tracer(cuda=cuda)
    if library is None:
        why = why_unavailable() or "'make tracer' builds it"
        if os.environ.get("ASSAY_REQUIRE_TRACER") == "1":
            pytest.fail(f"the tracer of CUDA {cuda} is required, but it is not built: {why}")
        pytest.skip(f"the tracer of CUDA {cuda} is not built: {why}")
    built = BuiltTracer(cuda, library, folder / "workload")
    fake, workload = built.fake, built.workload
    try:
        compile_fake(fake, cuda)
        beside = ("-L", str(folder), f"-l:{fake.name}", "-Wl,-rpath,$ORIGIN", "-ldl")
        headers = [*header_folders(GENERATIONS[cuda]), HERE]
        compile_c([HERE / "workload.c"], workload, headers, FLAGS, beside)
    except TracerBuildError as error:
        pytest.fail(str(error))
    return built


@pytest.fixture(scope="session", params=list(GENERATIONS), ids=lambda cuda: f"cuda{cuda}")
def each_tracer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BuiltTracer:
    """The tracer of every generation of headers."""
    return _built(request.param, tmp_path_factory.mktemp(f"cuda{request.param}"))


@pytest.fixture(scope="session")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> BuiltTracer:
    """The tracer with the newest headers, which is the one that agents use."""
    return _built("13", tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def forks(tracer: BuiltTracer) -> Path:
    """The program that forks while its threads push NVTX ranges."""
    program = tracer.workload.parent / "forks"
    compile_c([HERE / "forks.c"], program, header_folders(GENERATIONS[tracer.cuda]), FLAGS)
    return program
