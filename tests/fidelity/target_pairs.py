"""Workloads on two GPUs: the light time where launches are drawn, and the cost on the target."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from assay_sampling.estimation.sample_design import cost_cov
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.placement import scored_cost
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.workloads.loading import load_workload
from tests.fidelity.made_ratios import made_ratios
from tests.fidelity.section import Effort, shared_data

_WORKLOADS = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
# Made after the formula was chosen, and not looked at before.
_OTHER_SEEDS = 1000
_INFER = (("SM75_RTX2060", "SM86_RTX3070"), ("SM86_RTX3070", "SM7_QV100"), ("SM7_QV100", "SM75_RTX2060"))
_SILICON = {
    "NeuSight, V100 to A100 (measured)": ("neusight_v100", "neusight_a100_named_as_v100"),
    "serving, A100 to H100 (measured, composed)": ("serving_a100_sxm", "serving_h100_sxm"),
    "serving, A100 to L40S (measured, composed)": ("serving_a100_sxm", "serving_l40s"),
    "KTT pnpoly, RTX 2080 Ti to 3090 (measured)": ("ktt_pnpoly_rtx2080ti_light", "ktt_pnpoly_rtx3090_light"),
}
HOLD_OUT = "(hold-out)"


@dataclass(frozen=True)
class Pair:
    """Light time and cost on the target of every launch, and its group, shape (n,) each."""

    name: str
    time: np.ndarray
    cost: np.ndarray
    group: np.ndarray

    @cached_property
    def launches(self) -> np.ndarray:
        """Launches of each group, shape (g,)."""
        return np.bincount(self.group)

    @cached_property
    def light_time(self) -> np.ndarray:
        """Light time of each group, shape (g,)."""
        return np.bincount(self.group, self.time)

    @cached_property
    def variation(self) -> np.ndarray:
        """Variation of each group where launches are drawn, shape (g,)."""
        return cost_cov(self.time, self.group)


def made(kernels: int, scales_at_most: float) -> Iterator[Pair]:
    """Made ratios of target to light time (synthetic)."""
    for found in made_ratios(kernels, scales_at_most):
        yield Pair(*found)


def held_out(kernels: int, scales_at_most: float) -> Iterator[Pair]:
    """Populations without a say in the formula: made ratios of other seeds, recordings the other way."""
    for name, *columns in made_ratios(kernels, scales_at_most, _OTHER_SEEDS):
        yield Pair(f"{name} {HOLD_OUT}", *columns)
    folder = shared_data()
    if folder is None:
        return
    for pair in _infer(folder, tuple((target, source) for source, target in _INFER)):
        yield replace(pair, name=f"{pair.name} {HOLD_OUT}")
    for name, (file, other) in _SILICON.items():
        here, there = (read_launches(folder / "silicon" / f"{each}.parquet") for each in (other, file))
        workload, gpus = name.removesuffix(")").split(" (")[0].split(", ")
        source, target = gpus.split(" to ")
        yield _pair(f"{workload}, {target} to {source} {HOLD_OUT}", here, there)


def recorded(effort: Effort) -> Iterator[Pair]:
    """Recordings and simulations of the shared data, where it is, and virtual GPUs (synthetic)."""
    yield from _virtual(("pipeline", "solver") if effort is Effort.FULL else ("solver",))
    folder = shared_data()
    if folder is None:
        return
    yield from _infer(folder)
    if effort is Effort.SHORT:
        return
    yield from _three_gpus(folder / "three_gpus")
    for name, files in _SILICON.items():
        here, there = (read_launches(folder / "silicon" / f"{file}.parquet") for file in files)
        yield _pair(name, here, there)


def _pair(name: str, here: Launches, there: Launches, *, by_grid: bool = False) -> Pair:
    kernel = here.array("kernel_id")
    keys = [kernel]
    if by_grid:
        keys += [here.array(f"grid_{axis}") for axis in "xyz"]
    group = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
    return Pair(name, here.floats("duration_ns"), scored_cost(there, None, None).values, group)


def _infer(folder: Path, pairs: tuple[tuple[str, str], ...] = _INFER) -> Iterator[Pair]:
    """One application simulated whole on three GPUs."""
    with (folder / "accel_sim_more" / "launches.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"].startswith("infer.")]
    by_gpu = {
        gpu: [row for row in rows if row["config"] == gpu] for gpu in dict.fromkeys(r["config"] for r in rows)
    }
    for source, target in pairs:
        group = np.unique([row["kernel"] for row in by_gpu[source]], return_inverse=True)[1]
        time, cost = (
            np.array([float(row["active_cycles"]) for row in by_gpu[gpu]]) for gpu in (source, target)
        )
        yield Pair(f"infer, {source.split('_')[1]} to {target.split('_')[1]} (simulated)", time, cost, group)


def _three_gpus(folder: Path) -> Iterator[Pair]:
    here = read_launches(folder / "v100_light.json.gz")
    for gpu in ("rtx2060", "rtx3070"):
        there = read_launches(folder / f"{gpu}.csv.gz")
        yield _pair(f"three_gpus, V100 to {gpu.upper()}, by grid (synthetic)", here, there, by_grid=True)


def _virtual(names: tuple[str, ...]) -> Iterator[Pair]:
    """Workloads of the demo on virtual GPUs."""
    for name in names:
        workload = load_workload(_WORKLOADS / f"{name}.toml")
        by_gpu = {kind: VirtualGPU(kind).execute(workload, level="light") for kind in ("V100", "RTX 2060")}
        time, cost = (
            np.concatenate([part.duration_ns for part in parts]).astype(np.float64)
            for parts in by_gpu.values()
        )
        kernel = np.concatenate([part.kernel for part in by_gpu["V100"]])
        group = np.unique(kernel, return_inverse=True)[1]
        yield Pair(f"virtual {name}, V100 to RTX 2060 (synthetic)", time, cost, group)
