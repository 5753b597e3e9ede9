"""The built simulator, and the traces of ``solver``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay_client.simulating.installation import Simulator, open_simulator


@pytest.fixture(scope="session")
def simulator() -> Simulator:
    cache = os.environ.get("ASSAY_SIMULATOR", "")
    root = Path(cache) / "accel-sim"
    if not cache or not root.is_dir():
        pytest.skip("there is no simulator: 'make test-simulator' builds it and runs this")
    return open_simulator(root)


@pytest.fixture(scope="session")
def traces(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = shared_data.parent / "tools" / "accel_sim" / "solver_traces.py"
    if not script.is_file():
        pytest.skip(f"there is no {script}, which makes the traces")
    folder = tmp_path_factory.mktemp("solver")
    subprocess.run([sys.executable, script, folder, "--steps", "4", "--scale", "0.5"], check=True)
    return folder
