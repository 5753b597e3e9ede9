"""Reports that NVIDIA's own tools export for us: of a real GPU, and what they say of damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_client.recordings import analyses
from assay_sampling.errors import InputError, NoLaunchesError
from tests.support.agent.nvidia_tools import RealTools

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _tools(nvidia: RealTools, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvidia.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("assay_sampling.readers.opening.can_read_reports", lambda: False)


def test_a_report_of_a_gpu_is_imported_by_ncu(shared_data: Path) -> None:
    """An RTX 3070, Nsight Compute 2022.3."""
    found = analyses.inspect(shared_data / "ncu" / "rtx3070_daxpy_3_kernels.ncu-rep", top=1)
    assert (found["format"], found["launches"], found["synthetic"]) == ("ncu-raw-csv", 3, False)
    assert found["devices"] == ["NVIDIA GeForce RTX 3070"]
    (kernel,) = found["top"]["kernels"]
    assert (kernel["name"], kernel["cost"]) == ("daxpy_kernel(int, double, double *, double *)", 249_216)


def test_reports_of_nsys_are_exported(nvidia: RealTools, tmp_path: Path) -> None:
    report = tmp_path / "true.nsys-rep"
    assert nvidia.nsys("profile", "-t", "nvtx", "-s", "none", "-o", report, "/bin/true").status == 0
    with pytest.raises(NoLaunchesError) as nothing:
        analyses.inspect(report)
    assert nothing.value.path == str(report)
    report.write_bytes(report.read_bytes()[:100])
    with pytest.raises(InputError) as cut:
        analyses.inspect(report)
    assert "failed (exit status 1); it says: Exportation error" in cut.value.cause
