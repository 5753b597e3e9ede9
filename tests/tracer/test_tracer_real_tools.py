"""The tracer under NVIDIA's own driver library and CUPTI, without a GPU: loaded, understood, refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay_agent.profilers.cupti import tracer_environment
from assay_agent.tracer.build import GENERATIONS, header_folders
from assay_agent.tracer.protocol import ProblemCode
from assay_agent.tracer.receiver import Receiver
from tests.support.tracer.traced_runs import SCHEMA, BuiltTracer, short_folder

pytestmark = [pytest.mark.tracer, pytest.mark.processes]

_INITIALISE = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
_SIZES = """
import ctypes, json, sys
library, size = ctypes.CDLL(sys.argv[1]), ctypes.c_size_t()
sizes = {}
for version in (130000, 130100, 130200, 130300, 130400, 130500):
    assert library.cuptiActivityGetStructSize(10, version, ctypes.byref(size)) == 0
    sizes[version] = size.value
print(json.dumps(sizes))
"""
_NO_DEVICE = 100


@pytest.fixture(scope="module")
def driver() -> Path:
    """The folder of a libcuda.so.1 that finds no GPU."""
    given = os.environ.get("ASSAY_REAL_TOOLS")
    if not given:
        pytest.skip("NVIDIA's own tools: 'make test-real-tools' runs it")
    found = sorted(Path(given).glob("*/driver/libcuda.so.1"))
    if not found:
        pytest.skip(f"NVIDIA's own tools: no driver library in {given}")
    return found[-1].parent


def cupti(cuda: str) -> Path:
    (path,) = header_folders(GENERATIONS[cuda])[0].glob("libcupti.so.*")
    return path


@pytest.mark.parametrize(
    ("variable", "cuda", "version", "layout"),
    [
        ("ASSAY_TRACER_CUPTI", "13", 130500, 13),
        ("ASSAY_TRACER_CUPTI", "12", 28, 9),
        # The driver is one of CUDA 12: that of CUDA 13 is passed over, also that of a toolkit of this box.
        ("ASSAY_TRACER_CUPTI_ELSE", "13:12", 28, 9),
    ],
)
def test_the_driver_loads_the_tracer_which_knows_cupti_and_says_why_it_cannot_trace(  # noqa: PLR0917
    tracer: BuiltTracer,
    driver: Path,
    variable: str,
    cuda: str,
    version: int,
    layout: int,
) -> None:
    libraries = ":".join(str(cupti(major)) for major in cuda.split(":"))
    with short_folder() as folder, Receiver(folder / "socket", lambda hello: SCHEMA) as receiver:
        environment = {
            **tracer_environment(tracer.library, folder / "socket"),
            "LD_LIBRARY_PATH": str(driver),
            variable: libraries,
        }
        with subprocess.Popen(
            [sys.executable, "-c", _INITIALISE], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            while process.poll() is None or receiver.connected:
                list(receiver.batches(0.02))
            assert process.stdout is not None and process.stdout.read() == f"{_NO_DEVICE}\n"
        assert process.returncode == 0
        (traced,) = receiver.processes
    assert (traced.hello["cupti_version"], traced.hello["layout"]) == (version, layout)
    assert traced.hello["driver_version"] > 12000
    assert traced.problem is not None and traced.problem[0] == ProblemCode.CUPTI_FAILED


def test_the_sizes_of_records_are_those_that_cupti_says(tracer: BuiltTracer, driver: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _SIZES, str(cupti("13"))],
        env={"LD_LIBRARY_PATH": str(driver)},
        capture_output=True,
        text=True,
        check=True,
    )
    sizes = {int(version): size for version, size in json.loads(answer.stdout).items()}
    # Kernel10, Kernel11 twice, Kernel12, Kernel13 twice: the table of cupti_library.c.
    assert list(sizes.values()) == [216, 224, 224, 232, 248, 248]
