"""NVIDIA's own programs and libraries: what is told of their versions and builds without a GPU."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay_agent.conditions.mps_control import program_version
from assay_agent.provenance.libraries import LoadedLibraries, described
from tests.support.agent.nvidia_tools import RealTools

pytestmark = pytest.mark.processes

LOADS = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
print(cuda.cuInit(0), flush=True)
time.sleep(60)
"""


def test_the_mps_program_tells_the_driver_that_it_belongs_to(nvidia: RealTools) -> None:
    [library] = nvidia.generation.driver.glob("libcuda.so.*.*")
    version = library.name.removeprefix("libcuda.so.")
    assert re.fullmatch(r"\d{3}\.\d+(\.\d+)?", version)
    assert program_version(str(nvidia.generation.mps_control)) == version


def test_the_drivers_library_is_told_by_the_real_files_name_and_its_build(
    nvidia: RealTools, tmp_path: Path
) -> None:
    environment = {**nvidia.environment(driver=True), "TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LOADS], stdout=subprocess.PIPE, env=environment
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        loaded = LoadedLibraries(tmp_path)
        loaded.begin()
        time.sleep(0.11)
        loaded.tick()
    finally:
        child.kill()
        child.communicate()
    found = loaded.facts()
    [library] = [each for each in found.found if each.name == "libcuda"]
    [real] = nvidia.generation.driver.glob("libcuda.so.*.*")
    assert library.version == real.name.removeprefix("libcuda.so.")
    assert library.size_bytes == real.stat().st_size
    assert re.fullmatch(r"build-id:[0-9a-f]{40}", library.identity)
    assert not library.of_tool
    assert "linked statically" in found.note


def test_libraries_of_the_profilers_are_told_apart(nvidia: RealTools) -> None:
    libraries = sorted((nvidia.generation.folder / "nsight-systems").glob("*/libcupti.so.1[12].*"))
    assert libraries
    facts = [described(path, Path("/")) for path in libraries]
    assert all(library.of_tool for library in facts)
    # They have no build-id; both ends of the files tell them apart as well as their whole contents do.
    assert {library.identity.partition(":")[0] for library in facts} == {"edges"}
    contents = {hashlib.sha256(path.read_bytes()).digest() for path in libraries}
    assert len({library.identity for library in facts}) == len(contents) > 4
