"""The framework's own scripts on what ``assay export --to accel-sim-jobs`` writes, and cut traces."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay_client.simulating.installation import Simulator
from assay_sampling.simulators.accel_sim.output import read_output
from tests.support.client.silicon_pages import METRICS, write_silicon

pytestmark = [pytest.mark.simulator, pytest.mark.timeout(900)]
ASSAY = Path(sys.executable).with_name("assay")
# A GPU of ten SMs takes a fraction of the time.
SHRUNK = "-gpgpu_n_clusters 10\\n-gpgpu_n_mem 4\\n-gpgpu_memory_partition_indexing 0\\n"


class Quiet:
    """The logger of plot-correlation.py."""

    def log(self, text: str) -> None: ...


def functions_of(script: Path, *names: str) -> dict[str, Any]:
    """Functions of a script of the framework. It opens files in a mode that Python 3.11 dropped."""
    kept = [
        node
        for node in ast.parse(script.read_text().replace('"rU"', '"r"')).body
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    found: dict[str, Any] = {"csv": csv, "re": re, "sys": sys, "copy": __import__("copy")}
    exec(compile(ast.Module(kept, []), str(script), "exec"), found)
    return found


def test_a_trace_that_is_cut_off_is_a_failure_and_never_a_number(
    simulator: Simulator, traces: Path, shared_data: Path, tmp_path: Path
) -> None:
    """Cut within a line, and between two blocks: the simulator asserts in both cases."""
    log = shared_data / "accel_sim_parts" / "solver.10sm.out.gz"
    cut = shutil.copytree(traces, tmp_path / "cut")
    trace = cut / "kernel-2.traceg"
    text = trace.read_bytes()
    half = text[: len(text) // 2]
    design = f"ten=SM7_QV100:{SHRUNK.replace(chr(92) + 'n', ' ')}"
    selection = tmp_path / "one.json"
    one = ("-p", "launches=1", "-p", "start=1", "-o", selection)
    subprocess.run([ASSAY, "select", "systematic", log, *one], check=True, stdout=subprocess.DEVNULL)
    for kept in (half, half[: half.rindex(b"#END_TB") + len("#END_TB\n")]):
        trace.write_bytes(kept)
        places = ("--traces", cut, "--accel-sim", simulator.root, "-o", tmp_path / "sim", "--design", design)
        ended = subprocess.run(
            [ASSAY, "simulate", selection, *places, "--json"], check=False, capture_output=True, text=True
        )
        (failure,) = json.loads(ended.stdout)["failures"]
        assert (ended.returncode, failure["kind"]) == (6, "crashed")
        assert "trace" in failure["last_lines"][-1] and "failed" in failure["last_lines"][-1]


def test_run_simulations_runs_a_launch_and_plot_correlation_joins_it(
    simulator: Simulator, traces: Path, shared_data: Path, tmp_path: Path
) -> None:
    scripts = simulator.root.parent / "util"
    if not scripts.is_dir():
        pytest.skip(f"there is no {scripts}, the framework's own scripts")
    assert simulator.library is not None
    log = shared_data / "accel_sim_parts" / "solver.10sm.out.gz"
    launches = read_output(log)[1]
    page = write_silicon(tmp_path / "page.csv", launches, [float(each.cycles) for each in launches])
    selection, jobs = tmp_path / "solver.json", tmp_path / "jobs"
    one = ("-p", "launches=1", "-p", "start=1", "-o", selection)
    subprocess.run([ASSAY, "select", "systematic", page, *one], check=True)
    given = ("--to", "accel-sim-jobs", "--traces", traces, "--recording", page, "--warm-up", "1")
    subprocess.run([ASSAY, "export", selection, *given, "-o", jobs], check=True)

    util = shutil.copytree(scripts, tmp_path / "util")
    launching = util / "job_launching"
    shutil.copy(jobs / "define-solver.yml", launching / "apps")
    (launching / "configs" / "define-ten.yml").write_text(f'TEN:\n    extra_params: "{SHRUNK}"\n')
    compiler = tmp_path / "bin" / "nvcc"  # asked for the release of CUDA only
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n")
    compiler.chmod(0o755)
    gpgpu_sim = simulator.root / "gpgpu-sim"
    environment = {
        **os.environ,
        "PATH": f"{compiler.parent}:{os.environ['PATH']}",
        "ACCELSIM_ROOT": str(simulator.root),
        "ACCELSIM_CONFIG": "release",
        "GPGPUSIM_ROOT": str(gpgpu_sim),
        "GPGPUSIM_CONFIG": str(simulator.library.parent.relative_to(gpgpu_sim / "lib")),
        "GPGPUSIM_SETUP_ENVIRONMENT_WAS_RUN": "1",
        "LD_LIBRARY_PATH": str(simulator.library.parent),
    }
    run, named = tmp_path / "run", ("-B", "solver", "-C", "QV100-SASS-TEN")
    subprocess.run(
        [sys.executable, "run_simulations.py", *named, "-T", jobs / "traces", "-N", "x", "-r", run, "-n"],
        cwd=launching, env=environment, check=True,
    )  # fmt: skip
    place = run / "solver" / "launch_2" / "QV100-SASS-TEN"
    with (place / "solver-launch_2.o1").open("wb") as output:
        subprocess.run(["sh", "./justrun.sh"], cwd=place, env=environment, stdout=output, check=True)
    statistics = subprocess.run(
        [sys.executable, "get_stats.py", *named, "-R", "-k", "-K", "-r", run],
        cwd=launching, env=environment, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    (tmp_path / "statistics.csv").write_text(statistics)

    theirs = functions_of(util / "plotting" / "plot-correlation.py", "get_sim_csv_data", "parse_hw_csv_2")
    (_, simulated) = next(iter(theirs["get_sim_csv_data"](tmp_path / "statistics.csv", Quiet()).items()))
    hardware: list[dict[str, list[float]]] = []
    page_of_job = jobs / "hardware" / "solver" / "launch_2" / "gpc__cycles_elapsed.csv"
    theirs["parse_hw_csv_2"](page_of_job, {}, "solver/launch_2", hardware, Quiet())
    kernels = simulated["solver/launch_2"]
    assert len(kernels) == len(hardware) == 2  # the replay of launch 1, then launch 2
    assert METRICS[0] not in hardware[0]
    assert hardware[1][METRICS[0]] == [launches[1].cycles]
    assert kernels[1]["Kernel"].startswith(launches[1].kernel.strip())
    cycles = kernels[1]["gpu_tot_sim_cycle\\s*=\\s*(.*)"]
    print(f"\nlaunch 2 after the replay of launch 1: {cycles:,.0f} cycles; whole run: {launches[1].cycles:,}")
    assert abs(cycles - launches[1].cycles) < 0.05 * launches[1].cycles
