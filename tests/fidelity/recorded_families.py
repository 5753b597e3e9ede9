"""Kernel families simulated for this project with the real Accel-Sim, and their interval logs.

    python -m tests.fidelity.recorded_families --simulator GPU_SIMULATOR --folder FOLDER

(ten minutes on two cores, after make simulator) writes ``recorded_families.parquet`` beside this file: a row
a launch, with its samples as lists. The traces are synthetic: kernels of the shared generator of which no
other log has launches, and those of :mod:`tests.fidelity.trace_kernels`. QV100 shrunk to 20 SMs and 8 memory
channels, no launch latency, a sample each 500 cycles, a process a run.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assay_sampling.projection.projector import Series
from assay_sampling.projection.runs import project_run, series_of
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from tests.fidelity.section import shared_data
from tests.fidelity.trace_kernels import kernels_of

FILE = Path(__file__).with_suffix(".parquet")
GENERATOR = Path("accel_sim_more") / "generator.py"
SMS = 20
OPTIONS = (
    "-visualizer_enabled 1 -visualizer_zlevel 1 -gpgpu_runtime_stat 500:0 -gpgpu_n_clusters 20 "
    "-gpgpu_n_mem 8 -gpgpu_memory_partition_indexing 0 -gpgpu_kernel_launch_latency 0"
)
_FEW, _MORE = (0.8, 3, 7, 14), (3, 6, 13)
_MB = 1 << 20


@dataclass(frozen=True)
class Run:
    """One run: its family, the waves of its launches, blocks an SM holds, and the kernel's parameters."""

    family: str
    kernel: str
    waves: tuple[float, ...]
    sm_blocks: int
    parameters: dict[str, Any]


def _run(family: str, kernel: str, waves: tuple[float, ...], sm_blocks: int, **parameters: Any) -> Run:
    return Run(family, kernel, waves, sm_blocks, {"bd": 1024 // sm_blocks, "nreg": 64, **parameters})


RUNS = {
    "gather": _run("gather", "_Z6gatherPKiPKfPfi", _FEW, 8, seed=41, trips=4, table=4 * _MB),
    "scatter": _run("gather", "_Z7scatterPKiPKfPfi", (3, 10), 8, seed=51, trips=3, table=2 * _MB, scatter=1),
    "lds": _run("lds", "_Z9conflictsPKfPfi", _FEW, 4, sh=8192, conf=4, iters=16),
    "div": _run("div", "_Z6branchPKfS0_Pfi", _FEW, 8, seed=61, iters=6),
    "ramp": _run("ramp", "_Z10triangularPKfS0_Pfi", (3, 8, 16), 8, lo=1, hi=8),
    "rampdown": _run("ramp", "_Z10triangularPKfS0_Pfi", (8,), 8, lo=1, hi=8, down=1),
    "spmv": _run("spmv", "_Z4spmvPKiPKfS2_Pfi", _FEW, 8, seed=71),
    "spmvlong": _run("spmv", "_Z4spmvPKiPKfS2_Pfi", (8,), 8, seed=81, sigma=1.2, cap=80),
    "trans": _run("trans", "_Z9transposePKfPfi", _FEW, 8, per=2),
    "tail": _run("tail", "_Z8lastwavePKfPfi", (3, 8), 8, per=3, mul=5, alu=8),
    "conv": _run("conv", "_Z6conv1dPKfPfi", _MORE, 4, sh=2048),
    "probe": _run("probe", "_Z5probePKiPKlPii", _MORE, 8, seed=91),
    "scan": _run("scan", "_Z4scanPKfPfi", _MORE, 4, sh=1024),
    "nbody": _run("nbody", "_Z5nbodyPK6float4PS_i", _MORE, 4, sh=4096),
    "escape": _run("escape", "_Z6escapePfi", _MORE, 8, seed=95),
}


@dataclass(frozen=True)
class RecordedLaunch:
    """A simulated launch: which of a run's (1-based), its size, its cycles, and its samples."""

    run: str
    number: int
    total_ctas: int
    wave_ctas: int
    instructions: int
    cycles: int
    series: Series

    @property
    def family(self) -> str:
        return RUNS[self.run].family


def recorded_launches() -> list[RecordedLaunch]:
    """The launches of the file, in its order."""
    return [_launch(row) for row in pq.read_table(FILE).to_pylist()]


def _launch(row: dict[str, Any]) -> RecordedLaunch:
    columns = [np.array(row.pop(f"sample_{name}"), np.float64) for name in ("cycles", "instructions", "ctas")]
    return RecordedLaunch(**row, series=Series(*columns))


def write_traces(data: Path, run: str, folder: Path, launches: list[int] | None = None) -> list[Path]:
    """Write the traces of a run (of these launches alone); ``data`` is the shared data."""
    generator = _generator(data)
    each = RUNS[run]
    made = generator.fam(each.family, each.kernel, list(each.waves), each.sm_blocks, SMS, **each.parameters)
    generator.APPS = {run: made}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its list of kernels open
        generator.write(str(folder), run, launches)
    return sorted(folder.glob("kernel-*.traceg"))


def _generator(data: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("shared_trace_generator", data / GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FN.update(kernels_of(module))
    return module


def main() -> None:
    """Simulate every run that is not in the folder yet, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulator", type=Path, required=True, help="the folder gpu-simulator")
    parser.add_argument("--folder", type=Path, required=True, help="where traces and logs go")
    options = parser.parse_args()
    data = shared_data()
    if data is None:
        parser.error("the shared data is not beside the checkout")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda run: _simulate(data, run, options.folder / run, options.simulator), RUNS))
    rows = [row for run in RUNS for row in _rows(run, options.folder / run / "run")]
    pq.write_table(pa.Table.from_pylist(rows), FILE, compression="zstd")


def _simulate(data: Path, run: str, folder: Path, simulator: Path) -> None:
    if (folder / "run" / "time.txt").exists():
        return
    write_traces(data, run, folder)
    script = data.parent / "tools" / "accel_sim" / "run.sh"
    start = (
        f"source {simulator}/setup_environment.sh > /dev/null 2>&1; exec bash {script} {simulator} SM7_QV100"
    )
    command = f"{start} {folder}/kernelslist.g {folder}/run {OPTIONS}"
    subprocess.run(["bash", "-c", command], check=True)


def _rows(run: str, folder: Path) -> Iterator[dict[str, Any]]:
    (intervals,) = folder.glob("*visualizer*")
    sizes, series_of_each = (SimulatorRun(folder / "out.log", intervals) for _ in range(2))
    launches = zip(project_run(sizes), series_of_each.launches(), strict=True)
    for number, (sized, sampled) in enumerate(launches, 1):
        launch = sized.launch
        assert sampled.series is not None and launch.complete
        series = series_of(sampled.series)
        yield {
            "run": run,
            "number": number,
            "total_ctas": launch.total_ctas,
            "wave_ctas": sized.wave_ctas,
            "instructions": launch.instructions,
            "cycles": launch.cycles,
            "sample_cycles": series.cycles.astype(np.int64),
            "sample_instructions": series.instructions.astype(np.int64),
            "sample_ctas": series.ctas.astype(np.int64),
        }


if __name__ == "__main__":
    main()
