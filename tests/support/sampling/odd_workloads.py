"""Workloads that are honest and odd, as recordings: a light run, and counters of the first launches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from assay_client.recordings.launch_files import write_launches
from assay_sampling.counters.definitions import FEATURE_SETS, registry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import TableMetadata
from assay_sampling.running.identity import Device
from tests.support.sampling.made_launches import made_launches

HERE = Device(0, "Tesla V100-SXM2-16GB", compute_capability="7.0", sm_count=80)
THERE = Device(0, "NVIDIA GeForce RTX 2060", compute_capability="7.5", sm_count=30)


@dataclass(frozen=True)
class OddWorkload:
    """A number for the kernel of each launch, its blocks and its nanoseconds, shape (n,) each."""

    kernel: np.ndarray
    blocks: np.ndarray
    nanoseconds: np.ndarray

    def __len__(self) -> int:
        return len(self.kernel)

    def light(self, device: Device = HERE) -> Launches:
        """A light run."""
        return self._launches(TableMetadata("light", origin="synthetic", devices=(device,)), {})

    def counted(self) -> Launches:
        """All launches with counters that grow with their blocks, and cycles."""
        counters = dict.fromkeys(FEATURE_SETS["table2"], self.blocks * 100.0)
        counters["thread_blocks"] = self.blocks.astype(float)
        counters["threads_per_instruction"] = np.full(len(self), 31.0)
        counters["cycles_gpc_avg"] = self.nanoseconds * 1.38
        return self._launches(TableMetadata("detailed", origin="synthetic", devices=(HERE,)), counters)

    def written(self, folder: Path, window: int | None = None) -> tuple[Path, Path]:
        """Files of the counters, of the first ``window`` launches if given, and of the light run."""
        counted, light = folder / "counted.parquet", folder / "light.parquet"
        every = self.counted()
        write_launches(counted, every if window is None else every.take(np.arange(window)))
        write_launches(light, self.light())
        return counted, light

    def _launches(self, metadata: TableMetadata, counters: dict[str, np.ndarray]) -> Launches:
        names = [f"kernel_{number}" for number in self.kernel.tolist()]
        columns = [registry()[name].column(registry()[name].metrics[0].name) for name in counters]
        start = np.cumsum(self.nanoseconds + 1_000) - self.nanoseconds
        return made_launches(
            names, counters=columns, metadata=metadata, grid_x=self.blocks, duration_ns=self.nanoseconds,
            start_ns=start, **counters,
        )  # fmt: skip


def all_equal(launches: int = 300) -> OddWorkload:
    """One kernel, one size, one time."""
    return OddWorkload(*(np.full(launches, value) for value in (0, 64, 5_000)))


def one_of_half_the_time(launches: int = 2_000) -> OddWorkload:
    """Ten kernels, and one launch of the first that takes as long as all others together."""
    kernel = np.arange(launches) % 10
    time = 1_000 + 500 * kernel
    time[launches // 3] = time.sum()
    return OddWorkload(kernel, 32 + 8 * kernel, time)


def two_launches() -> OddWorkload:
    return OddWorkload(np.array([0, 1]), np.array([64, 8]), np.array([9_000, 1_000]))


def durations_of_zero(launches: int = 200, *, every: int = 1) -> OddWorkload:
    """Every launch, or every so many, took no nanosecond that the clock could tell."""
    kernel = np.arange(launches) % 4
    time = np.where(np.arange(launches) % every == 0, 0, 2_000 + 100 * kernel)
    return OddWorkload(kernel, 16 * (1 + kernel), time)


def many_names(
    launches: int = 200_000, names: int = 40_000, seed: int = 0, *, zipf: bool = False
) -> OddWorkload:
    """As many kernels as a compiler that names each after its shapes makes, equally often or by Zipf's law;
    sizes are drawn at random."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, names + 1)
    more = launches - names
    drawn = rng.choice(names, more, p=share / share.sum()) if zipf else rng.integers(names, size=more)
    kernel = np.concatenate([np.arange(names), drawn])
    blocks = rng.integers(1, 4_000, size=launches)
    time = np.round(800 + 40 * blocks * rng.lognormal(0, 0.05, launches)).astype(np.int64)
    return OddWorkload(kernel, blocks, time)


def other_kernels(of: OddWorkload, *, missing: int = 0, new: int = 0) -> OddWorkload:
    """The workload on a GPU whose library lacks the last kernels, and runs others in their place."""
    kernel = of.kernel.copy()
    last = int(kernel.max())
    if new:
        kernel[kernel > last - new] += 1_000
    kept = kernel <= last - missing if missing else np.ones(len(of), bool)
    slower = np.round(of.nanoseconds * 2.2).astype(np.int64)
    return replace(of, kernel=kernel[kept], blocks=of.blocks[kept], nanoseconds=slower[kept])
