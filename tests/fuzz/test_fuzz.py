"""The short form of ``make fuzz``: sixty inputs for every reader, 20 s of the processor in all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay_sampling.readers.opening import READERS
from tests.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[2]


def _fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


@pytest.mark.processes
@pytest.mark.timeout(900)  # all targets in one process, whose start takes as long as three of them
def test_no_mutated_input_ends_in_an_untyped_error() -> None:
    ended = _fuzz("--inputs", os.environ.get("ASSAY_FUZZ_INPUTS", "60"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    fed = {line.partition(":")[0] for line in ended.stdout.splitlines()}
    assert fed == TARGETS.keys() - {"broken"}


@pytest.mark.processes
def test_every_reader_is_known_and_a_failure_says_how_to_see_it_again(tmp_path: Path) -> None:
    """The harness finds what it is there for: an input that is fed to a reader of another kind."""
    assert {reader.format for reader in READERS} == {
        "assay-parquet", "nsys-sqlite", "ncu-report", "kineto-json", "accel-sim-output", "ncu-details-csv",
        "ncu-raw-csv",
    }  # fmt: skip
    ended = _fuzz("--target", "broken", "--inputs", "3", "--seed", "5", "--keep", str(tmp_path / "kept"))
    assert ended.returncode == 1
    assert "python -m tests.fuzz --target broken --seed 5 --only 1" in ended.stdout
    assert "ZeroDivisionError" in ended.stdout
    assert "it took" in ended.stdout and "bytes" in ended.stdout
    assert (tmp_path / "kept" / "broken-5-1").read_bytes() == b"raise"
