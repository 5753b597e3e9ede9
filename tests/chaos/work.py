"""What the lab measures: many recordings played at their own pace, and workloads of virtual GPUs.

Everything is synthetic and follows from the seed, so that two labs measure the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay_core.files.launch_file import new_launch_file
from assay_sampling.launches.table import (
    BASELINE,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)

# Launches of one run on a virtual GPU: its tool processes take a second or two.
LIVE_LAUNCHES = 2_000
_KERNELS = 11


@dataclass(frozen=True)
class Size:
    """How large a campaign is, and how fast it goes when nobody disturbs it.

    Attributes:
        launches: in all, nearly.
        runs: recordings, each played by one slot.
        campaigns: that the recordings belong to; the first are analysed while others are measured.
        live_runs: workloads that virtual GPUs run, with real tool processes.
        agents: boxes.
        slots: recordings that an agent plays at a time.
        undisturbed_seconds: about how long playing takes with all slots busy; 0: as fast as they can.
    """

    launches: int
    runs: int
    campaigns: int
    live_runs: int
    agents: int
    slots: int
    undisturbed_seconds: float

    @property
    def launches_a_run(self) -> int:
        return max(1, (self.launches - self.live_runs * LIVE_LAUNCHES) // self.runs)

    @property
    def seconds_a_run(self) -> float:
        return self.undisturbed_seconds * self.agents * self.slots / self.runs

    @property
    def all_launches(self) -> int:
        """Launches that the campaigns hold."""
        return self.launches_a_run * self.runs + LIVE_LAUNCHES * self.live_runs


def write_campaigns(folder: Path, size: Size, seed: int) -> list[Path]:
    """Write recordings, workloads and the files of all campaigns."""
    numbers = np.array_split(np.arange(size.runs), size.campaigns)
    files = [_recorded_campaign(folder, size, seed, n, each.tolist()) for n, each in enumerate(numbers)]
    return [_live_campaign(folder, size, seed), *files] if size.live_runs else files


def _recorded_campaign(folder: Path, size: Size, seed: int, which: int, runs: list[int]) -> Path:
    lines = []
    for number in runs:
        path = folder / f"recording-{number:04d}.parquet"
        _write_recording(path, size, np.random.default_rng((seed, number)))
        lines.append(f"  - {{name: w{number:04d}, recordings: [{{device: V100, light: {path}}}]}}\n")
    pace = "recorded_time" if size.undisturbed_seconds else "full_speed"
    return _campaign(folder, f"played{which}", f"playback: {pace}\n", seed, lines)


def _campaign(folder: Path, name: str, more: str, seed: int, workloads: list[str]) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"campaign: {name}\nsynthetic: true\nseed: {seed % 2**32}\n{more}"
        "analysis: {methods: [random, systematic]}\nworkloads:\n" + "".join(workloads)
    )
    return path


def _write_recording(path: Path, size: Size, chance: np.random.Generator) -> None:
    schema = launch_schema(TableMetadata(level="light", origin="synthetic", condition=BASELINE))
    launches, names = size.launches_a_run, Names()
    kernels = np.array([names.intern(f"kernel<{i}>(float*)") for i in range(_KERNELS)], np.uint64)
    launch = np.arange(launches)
    columns = {
        "process": np.zeros(launches, np.int32),
        "launch": launch,
        "kernel_id": kernels[chance.integers(0, _KERNELS, launches)],
        "grid_x": chance.integers(1, 50, launches),
        "block_x": np.full(launches, 128),
        "start_ns": launch * max(1, int(size.seconds_a_run * 1e9 / launches)),
        "duration_ns": chance.integers(500, 90_000, launches),
    }
    with new_launch_file(path, schema) as writer:
        writer.write(LaunchBatch(make_batch(schema, columns), dict(names.items())))


def _live_campaign(folder: Path, size: Size, seed: int) -> Path:
    lines = []
    for number in range(size.live_runs):
        path = folder / f"live-{number:03d}.toml"
        path.write_text(_workload(number, seed))
        lines.append(f"  - {{name: live{number:03d}, command: [{path.name}]}}\n")
    return _campaign(folder, "live", "gpus: [V100]\ndetailed: none\n", seed, lines)


def _workload(number: int, seed: int) -> str:
    return f"""\
workload = "live{number}"
seed = {(seed + number) % 2**31}
[buffers]
x = "4 MiB"
[kernels.scale]
name = "void scale<{number}>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
reads = {{ x = 1.0 }}
[[phases]]
repeat = {LIVE_LAUNCHES // 2}
variables.size = {{ choices = [1, 2, 4], probabilities = [0.5, 0.3, 0.2] }}
steps = [{{ kernel = "scale", grid = 64, grid_by = "size", times = 2 }}]
"""
