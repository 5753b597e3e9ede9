"""Which libcupti is tried first: by the GPU's compute capability and the driver, of made-up libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay_agent.profilers.cupti import tracer_environment
from assay_agent.tracer.build import GENERATIONS, compile_c, header_folders
from assay_agent.tracer.protocol import ProblemCode
from assay_agent.tracer.receiver import Receiver
from tests.support.tracer.fake_builds import FLAGS, HERE, compile_fake
from tests.support.tracer.traced_runs import SCHEMA, BuiltTracer, drain, short_folder

pytestmark = [pytest.mark.tracer, pytest.mark.processes]

_VERSIONS = {"13": 130500, "12": 28}


@pytest.fixture(scope="module")
def libraries(tracer: BuiltTracer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcupti of CUDA 12 and one of CUDA 13, and the program ``order``."""
    folder = tmp_path_factory.mktemp("libraries")
    for major, version in _VERSIONS.items():
        compile_fake(folder / f"libcupti.so.{major}", "13", (*FLAGS, f"-DDEFAULT_VERSION={version}"))
    compile_c([HERE / "order.c"], folder / "order", header_folders(GENERATIONS["13"]), (*FLAGS, "-rdynamic"))
    return folder


def loaded(tracer: BuiltTracer, libraries: Path, capability: str, driver: int, majors: str) -> Receiver:
    with short_folder() as folder, Receiver(folder / "socket", lambda hello: SCHEMA) as receiver:
        for major in majors.split():
            (folder / f"libcupti.so.{major}").symlink_to(libraries / f"libcupti.so.{major}")
        environment = tracer_environment(tracer.library, folder / "socket", capability)
        environment |= {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_VERSION": str(driver)}
        environment.pop("ASSAY_TRACER_CUPTI_ELSE", None)
        with subprocess.Popen([libraries / "order"], env=environment) as process:
            drain(receiver, process)
    return receiver


@pytest.mark.parametrize(
    ("capability", "driver", "majors", "version"),
    [
        ("7.0", 13000, "12 13", 28),  # Volta: CUPTI ends at 12.9 for it, whatever the driver
        ("7.2", 13000, "12 13", 28),
        ("7.5", 13000, "12 13", 130500),
        ("8.6", 13000, "12 13", 130500),
        ("12.0", 13010, "12 13", 130500),
        ("9.0", 12090, "12 13", 28),
        ("", 13000, "12 13", 130500),
    ],
)
def test_the_compute_capability_decides(  # noqa: PLR0917 - a table of cases
    tracer: BuiltTracer, libraries: Path, capability: str, driver: int, majors: str, version: int
) -> None:
    (process,) = loaded(tracer, libraries, capability, driver, majors).processes
    assert process.problem is None and process.hello["cupti_version"] == version


def test_a_volta_without_cupti_of_cuda_12_is_refused(tracer: BuiltTracer, libraries: Path) -> None:
    (process,) = loaded(tracer, libraries, "7.0", 13000, "13").processes
    assert process.problem is not None and process.problem[0] == ProblemCode.NO_CUPTI
    assert "compute capability 7.0 needs one of CUDA 12" in process.problem[1]
