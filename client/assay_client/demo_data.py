"""Synthetic recordings for the demonstration, made by a seeded generator and labelled as what they are.

No silicon was measured. The invented workloads of :mod:`assay_client.demo_workloads` "run" on invented
GPUs; each gets what the real tools would write: an Nsight Compute raw page of the first launches, and an
Nsight Systems SQLite export of all launches. The mark ``synthetic`` stands in the campaign file, in the
devices' names, in the export's meta-data and in the raw page's preamble. The same seed gives the same
bytes.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from assay_client.demo_workloads import (
    GPUS,
    WORKLOADS,
    Gpu,
    Sequence,
    Workload,
    counters_of,
    roofline_ns,
)
from assay_sampling.synthetic import SYNTHETIC_MARK

CAMPAIGN_FILE = "demo.yaml"
LABEL = "synthetic recording from Assay's seeded generator: no silicon was measured"

_PROCESS = 4242
_GLOBAL_PROCESS = (1 << 48) | (_PROCESS << 24)
_UNITS = {"gpc__cycles_elapsed.avg": "cycle", "gpu__time_duration.sum": "ns", "launch__grid_size": ""}


def _unit(metric: str) -> str:
    if metric in _UNITS:
        return _UNITS[metric]
    if metric.endswith(".ratio"):
        return ""
    return "sector" if "sectors" in metric else "inst"


def _raw_page(workload: Workload, sequence: Sequence, gpu: Gpu, metrics: dict[str, np.ndarray]) -> str:
    """Nsight Compute's raw page of the first launches, in the layout of 2022 and later."""
    text = io.StringIO()
    text.write(f"==PROF== Connected to process {_PROCESS} (/synthetic/{workload.name})\n")
    text.write(f"==WARNING== {SYNTHETIC_MARK}: {LABEL}\n")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    names = sorted(metrics)
    identity = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
                "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
    writer.writerow([*identity, *names])
    writer.writerow([*[""] * len(identity), *map(_unit, names)])
    columns = [[_number(v) for v in metrics[name][: workload.window].tolist()] for name in names]
    for row, values in enumerate(zip(*columns, strict=True)):
        kernel = sequence.kernels[sequence.kernel[row]]
        x, y, z = sequence.grid[row]
        writer.writerow(
            [row, _PROCESS, workload.name, SYNTHETIC_MARK, kernel.name, 1, 7, f"({kernel.block}, 1, 1)",
             f"({x}, {y}, {z})", 0, gpu.compute_capability, *values]
        )  # fmt: skip
    text.write(f"==PROF== Disconnected from process {_PROCESS}\n")
    return text.getvalue()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"


_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE EXPORT_META_DATA (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
  memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, cuDevice INTEGER,
  computeMajor INTEGER, computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
  sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""


def write_demo_data(directory: Path, *, seed: int = 0) -> Path:
    """Write all recordings and the campaign file into ``directory``; returns the campaign file.

    Args:
        directory: created where it is not there; files of the same names are replaced.
        seed: the seed of every random choice; the same seed gives the same bytes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    campaign = [
        f"# Written by Assay's seeded generator (seed {seed}). Synthetic: no silicon was measured.",
        "campaign: demo",
        "synthetic: true",
        f"seed: {seed}",
        "workloads:",
    ]
    for position, workload in enumerate(WORKLOADS):
        sequence = workload.build(np.random.default_rng([seed, position]))
        campaign += [f"  - name: {workload.name}", "    recordings:"]
        for gpu_position, gpu in enumerate(GPUS):
            stem = f"{workload.name}_{gpu.label.replace(' ', '_')}"
            _write_pair(directory / stem, workload, sequence, gpu, (seed, position, gpu_position))
            campaign += [
                f"      - device: {gpu.label}",
                f"        light: {stem}_light.sqlite",
                f"        detailed: {stem}_detailed.csv",
            ]
    campaign += ["analysis:", f"  reference: {GPUS[0].label}", ""]
    path = directory / CAMPAIGN_FILE
    path.write_text("\n".join(campaign))
    return path


def _write_pair(
    stem: Path, workload: Workload, sequence: Sequence, gpu: Gpu, seeds: tuple[int, int, int]
) -> None:
    random = np.random.default_rng(seeds)
    counters = counters_of(sequence)
    ideal_ns = roofline_ns(sequence, counters, gpu)
    free_running_ns = np.rint(ideal_ns * random.lognormal(0.0, 0.03, len(sequence)))
    # Under the profiler the clock is lower and steadier, so its cycles are another cost.
    profiled_ns = ideal_ns * 1.08 * random.lognormal(0.0, 0.008, len(sequence))
    cycles = np.round(profiled_ns * gpu.clock_ghz * 0.9, 2)
    metrics = {
        **counters,
        "gpc__cycles_elapsed.avg": cycles,
        "gpu__time_duration.sum": np.rint(profiled_ns),
    }
    Path(f"{stem}_detailed.csv").write_text(_raw_page(workload, sequence, gpu, metrics))
    _write_export(Path(f"{stem}_light.sqlite"), sequence, gpu, free_running_ns, seeds[0])


def _write_export(path: Path, sequence: Sequence, gpu: Gpu, duration_ns: np.ndarray, seed: int) -> None:
    """Nsight Systems' SQLite export of all launches: one process, one thread, one stream."""
    path.unlink(missing_ok=True)
    called_ns = 1_000_000 + 5_000 * np.arange(len(sequence), dtype=np.int64)
    ready_ns = called_ns + 6_000
    busy_ns = np.concatenate([[0], np.cumsum(duration_ns + 900)[:-1]])
    start_ns = (busy_ns + np.maximum.accumulate(ready_ns - busy_ns)).astype(np.int64)
    texts = ["cudaLaunchKernel", *[k.name for k in sequence.kernels]]
    texts += [k.name.split("(")[0].split("<")[0].removeprefix("void ") for k in sequence.kernels]
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_TABLES)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts))
        database.executemany("INSERT INTO EXPORT_META_DATA VALUES (?, ?)", _export_facts(seed))
        major, minor = map(int, gpu.compute_capability.split("."))
        database.execute(
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?, '0000:01:00.0', ?, ?, ?, '', '', 0, ?, ?, ?, ?)",
            (gpu.label, int(gpu.bandwidth_bytes_per_ns * 1e9), int(gpu.clock_ghz * 1e9), gpu.sm_count,
             major, minor, major, minor),
        )  # fmt: skip
        database.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, NULL, NULL, ?, ?, NULL, NULL, 0)",
            _ranges(sequence, called_ns),
        )
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 0, 0, NULL)",
            [(t, t + 3_000, _GLOBAL_PROCESS | _PROCESS, i + 1) for i, t in enumerate(called_ns.tolist())],
        )
        end_ns = (start_ns + duration_ns.astype(np.int64)).tolist()
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
            "(?, ?, 0, 1, 7, ?, ?, ?, ?, NULL, 1, 1, ?, ?, ?, ?, ?, 1, 1, ?, 0, 0, 0, ?, NULL, NULL, 0)",
            (
                (start, end, row + 1, _GLOBAL_PROCESS, kernel + 1, kernel + 1 + len(sequence.kernels),
                 sequence.kernels[kernel].registers, *grid, sequence.kernels[kernel].block,
                 sequence.kernels[kernel].shared_bytes, row + 1)
                for row, (start, end, kernel, grid) in enumerate(
                    zip(start_ns.tolist(), end_ns, sequence.kernel, sequence.grid, strict=True)
                )
            ),
        )  # fmt: skip


def _export_facts(seed: int) -> list[tuple[str, str]]:
    return [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", "2023.4.1"),
        ("EXPORT_SCHEMA_VERSION", "2.7.0"),
        ("EXPORT_SCHEMA_VERSION_MAJOR", "2"),
        ("EXPORT_SCHEMA_VERSION_MINOR", "7"),
        (SYNTHETIC_MARK, f"{LABEL} (seed {seed})"),
    ]


def _ranges(sequence: Sequence, called_ns: np.ndarray) -> list[tuple[int, int, str, int]]:
    """One range a step of the program, and in it one for each run of launches of one phase."""
    thread = _GLOBAL_PROCESS | _PROCESS
    phases = np.array(sequence.phase)
    steps = np.array(sequence.iteration)
    step_starts = np.flatnonzero(np.diff(steps, prepend=-1))
    phase_starts = np.flatnonzero((np.diff(steps, prepend=-1) != 0) | (phases != np.roll(phases, 1)))
    found = []
    for starts, texts, margin_ns in (
        (step_starts, ["step"] * len(step_starts), 900),
        (phase_starts, phases[phase_starts].tolist(), 500),
    ):
        lasts = np.append(starts[1:], len(sequence)) - 1
        begins, ends = called_ns[starts] - margin_ns, called_ns[lasts] + 3_000 + margin_ns
        found += list(zip(begins.tolist(), ends.tolist(), texts, [thread] * len(starts), strict=True))
    return sorted(found)
