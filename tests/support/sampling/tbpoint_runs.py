"""TBPoint within the launches of the recorded Accel-Sim runs; started as a program, it prints the table.

    python -m tests.support.sampling.tbpoint_runs [SHARED_DATA]

Block times and counted instructions are a simulator's, of synthetic traces. Instructions and requests of each
block come from the same traces, which are generated again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from assay_sampling.projection.tbpoint.occupancy import limits_of, resident_blocks
from assay_sampling.projection.tbpoint.regions import epochs_of, regions_of
from assay_sampling.projection.tbpoint.replay import LaunchSample, sample_launch
from assay_sampling.simulators.accel_sim.trace import TraceHeader, block_counts, read_header

WARP_THREADS = 32


@dataclass(frozen=True)
class SampledRun:
    """One launch of a run: from the times of its blocks alone, and with the simulator's own instruction count
    (every 500 cycles)."""

    run: str
    launch: int
    blocks: int
    resident: int
    regions: int
    by_block_times: LaunchSample
    by_counted_instructions: LaunchSample


def generate(shared_data: Path, folder: Path, app: str, launch: int) -> Path:
    """The trace of one launch, by the generator that the recorded runs were made with."""
    tool = shared_data.parent / "tools" / "accel_sim_trace_generator.py"
    subprocess.run(
        [sys.executable, str(tool), str(folder / app), app, "--only", str(launch)], check=True, timeout=120
    )
    return folder / app / f"kernel-{launch}.traceg"


def sample_run(shared_data: Path, folder: Path, run: str, launch: int) -> SampledRun:
    """Sample one launch of a run, ``run`` as the recordings call it (vecadd.base, fma_k4.20sm)."""
    app, _, device = run.partition(".")
    app, _, only = app.partition("_k")
    header, instructions, requests = _counts(shared_data, folder, app, int(only or launch))
    start, end = _block_times(shared_data, run, launch)
    resident = resident_blocks(
        limits_of("7.0"),
        20 if device == "20sm" else 80,
        block_threads=header.block[0],
        registers_per_thread=header.registers_per_thread,
        shared_memory_bytes=header.shared_memory_bytes,
    )
    regions = regions_of(epochs_of(instructions, requests, resident), len(instructions))
    counted = _counted(shared_data, run, launch)
    launches = [
        sample_launch(start, end, instructions, regions.of_block, executed=executed)
        for executed in (None, counted)
    ]
    return SampledRun(run, launch, len(start), resident, len(regions.first_block), *launches)


@cache
def _counts(
    shared_data: Path, folder: Path, app: str, launch: int
) -> tuple[TraceHeader, np.ndarray, np.ndarray]:
    trace = generate(shared_data, folder, app, launch)
    counts = block_counts(trace)
    header = read_header(trace)
    trace.unlink()
    return header, *counts


def _of(shared_data: Path, name: str, run: str, launch: int) -> pa.Table:
    table = csv.read_csv(shared_data / "accel_sim" / name)
    return table.filter(pc.and_(pc.equal(table["run"], run), pc.equal(table["uid"], launch)))


def _block_times(shared_data: Path, run: str, launch: int) -> tuple[np.ndarray, np.ndarray]:
    rows = _of(shared_data, "ctas.csv.gz", run, launch).sort_by("cta")
    return rows["start_cycle"].to_numpy(), rows["end_cycle"].to_numpy()


def _counted(shared_data: Path, run: str, launch: int) -> tuple[np.ndarray, np.ndarray]:
    """Cycles, and warp instructions executed by then; the simulator counts those of threads, all active."""
    rows = _of(shared_data, "intervals.csv.gz", run, launch)
    cycle = np.concatenate([[0.0], rows["cycle"].to_numpy().astype(float)])
    return cycle, np.concatenate([[0.0], rows["insn_cum"].to_numpy() / WARP_THREADS])


def all_runs(shared_data: Path) -> list[tuple[str, int]]:
    """Every run and launch whose block times are recorded."""
    table = csv.read_csv(shared_data / "accel_sim" / "ctas.csv.gz").select(["run", "uid"])
    rows = table.group_by(["run", "uid"]).aggregate([]).to_pylist()
    return sorted((row["run"], row["uid"]) for row in rows)


def table_lines(runs: list[SampledRun]) -> Iterator[str]:
    """A Markdown table."""
    thrice = "skipped % | error % | speedup"
    yield f"| run | launch | blocks | resident | regions | {thrice} | {thrice} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        cells = [run.run, str(run.launch), f"{run.blocks:,}", f"{run.resident:,}", str(run.regions)]
        for sample in (run.by_block_times, run.by_counted_instructions):
            cells.append(f"{100 * sample.skipped_instructions_share:.1f}")
            cells.append(f"{sample.signed_error_percent:+.2f}")
            cells.append(f"{sample.speedup:.2f}")
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table: by block times alone, then with the simulator's own instruction count."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    shared_data = Path(sys.argv[1]) if len(sys.argv) > 1 else beside
    with tempfile.TemporaryDirectory() as folder:
        runs = [sample_run(shared_data, Path(folder), *each) for each in all_runs(shared_data)]
    print("\n".join(table_lines(runs)))


if __name__ == "__main__":
    main()
