"""Traces of the synthetic application ``solver``, made by the script beside the shared data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def write_solver_traces(shared_data: Path, folder: Path, *, only: int) -> Path:
    """The folder with the trace of one launch, as it was simulated for the shared logs."""
    tool = shared_data.parent / "tools" / "accel_sim" / "solver_traces.py"
    made = [sys.executable, str(tool), str(folder), "--steps", "4", "--scale", "0.5", "--only", str(only)]
    subprocess.run(made, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder
