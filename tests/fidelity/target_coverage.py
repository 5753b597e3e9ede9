"""How often intervals of the total on another GPU hold it, by design and number of launches drawn."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from assay_sampling.estimation.intervals import Interval, draw_per_group
from assay_sampling.estimation.light_time_draws import draw_by_light_time
from assay_sampling.estimation.proportional_draws import draw_in_proportion
from assay_sampling.estimation.sample_design import SampleDesign, cost_cov
from assay_sampling.estimation.target_intervals import target_interval
from assay_sampling.parameters import WeightKind
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.workloads.loading import load_workload
from tests.fidelity.section import Effort, Section, shared_data

LEAST_HELD_PERCENT = 93.0
_DRAWN = (2, 5, 10, 50)
_WORKLOADS = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
_INFER = (("SM75_RTX2060", "SM86_RTX3070"), ("SM86_RTX3070", "SM7_QV100"), ("SM7_QV100", "SM75_RTX2060"))


@dataclass(frozen=True)
class _Pair:
    """A workload where launches are drawn (``time``) and on the target (``cost``), and the kernel of every
    launch, shape (n,) each."""

    name: str
    time: np.ndarray
    cost: np.ndarray
    kernel: np.ndarray

    @cached_property
    def launches(self) -> np.ndarray:
        """Launches of each kernel, shape (g,)."""
        return np.bincount(self.kernel)

    @cached_property
    def light_time(self) -> np.ndarray:
        """Light time of each kernel, shape (g,)."""
        return np.bincount(self.kernel, self.time)

    @cached_property
    def variation(self) -> np.ndarray:
        """Variation of each kernel where launches are drawn, shape (g,)."""
        return cost_cov(self.time, self.kernel)


def section(effort: Effort) -> Section:
    """Three designs over pairs of GPUs."""
    pairs = list(_infer()) + list(_virtual(effort)) + [_made()]
    draws = 2000 if effort is Effort.FULL else 60
    rows, missed = [], []
    for pair in pairs:
        for name, design in _DESIGNS.items():
            for drawn in _DRAWN if effort is Effort.FULL else (2, 50):
                cell = _measured(pair, design, drawn, draws)
                rows.append((pair.name, name, str(drawn), *cell.texts()))
                # The few draws of the short form say too little to judge by.
                if effort is Effort.FULL and (cell.held_percent or 100) < LEAST_HELD_PERCENT:
                    missed.append(f"{pair.name}, {name}, {drawn}: held in {cell.held_percent:.1f} %")
    withheld = sum(row[-3] == "withheld" for row in rows)
    about = (
        f"{draws:,} seeded samples a row; groups are kernels. `by launches` and `by light time` draw so many "
        "of each kernel (all of a smaller one) and use these weights; `proportional` takes and draws so many "
        "in all. The target's truth is known. Before, `evaluate` printed no interval at all. "
        f"The design decides whether one is withheld: {withheld} of {len(rows)} cells. `infer`: real "
        "output of a simulator, active cycles; `virtual`: synthetic, virtual GPUs; `made`: synthetic, 5,000 "
        "launches of 12 kernels with another factor and power of light time for each. Width: median "
        "half width / (1.96 x root mean square error of the samples)."
    )
    return Section(
        "Intervals of the total on another GPU",
        about,
        ("pair", "design", "drawn", "launches", "mean error", "interval held", "median half width", "width"),
        rows,
        missed,
    )


@dataclass(frozen=True)
class _Cell:
    launches: float
    error_percent: float
    held_percent: float | None
    half_percent: float | None
    width: float | None

    def texts(self) -> tuple[str, ...]:
        first = (f"{self.launches:,.0f}", f"{self.error_percent:.1f} %")
        if self.held_percent is None or self.half_percent is None:
            return (*first, "withheld", "", "")
        width = "" if self.width is None else f"{self.width:.2f}"
        return (*first, f"{self.held_percent:.1f} %", f"{self.half_percent:.1f} %", width)


# Projected total, interval (None: withheld), and launches to simulate, of one sample.
_Drawn = tuple[float, Interval | None, int]


def _measured(
    pair: _Pair, design: Callable[[_Pair, int, np.random.Generator], _Drawn], drawn: int, draws: int
) -> _Cell:
    truth = float(pair.cost.sum())
    found = [design(pair, drawn, np.random.default_rng([seed, drawn])) for seed in range(draws)]
    errors = [100 * abs(projected - truth) / truth for projected, _, _ in found]
    given = [interval for _, interval, _ in found if interval is not None]
    margin = 1e-9 * truth
    held = [each.low - margin <= truth <= each.high + margin for each in given]
    half = [100 * (each.high - each.low) / 2 / truth for each in given]
    spread = float(np.sqrt(np.mean(np.square(errors))))
    return _Cell(
        float(np.mean([count for _, _, count in found])),
        float(np.mean(errors)),
        100 * float(np.mean(held)) if given else None,
        float(np.median(half)) if given else None,
        float(np.median(half)) / (1.96 * spread) if given and spread > 1e-9 else None,
    )


def _by_launches(pair: _Pair, drawn: int, rng: np.random.Generator) -> _Drawn:
    rows = draw_per_group(pair.kernel, drawn, rng)
    groups = pair.kernel[rows]
    weights = (pair.launches / np.bincount(groups))[groups]
    return _scored(pair, rows, weights, "launches")


def _by_light_time(pair: _Pair, drawn: int, rng: np.random.Generator) -> _Drawn:
    rows = draw_by_light_time(pair.kernel, drawn, pair.time, rng)
    groups = pair.kernel[rows]
    weights = (pair.light_time / np.bincount(groups, pair.time[rows]))[groups]
    return _scored(pair, rows, weights, "light_time")


def _scored(pair: _Pair, rows: np.ndarray, weights: np.ndarray, kind: WeightKind) -> _Drawn:
    sizes, groups = pair.launches, pair.kernel[rows]
    design = SampleDesign(
        "uniform" if kind == "launches" else "light_time",
        sizes,
        np.ones(len(sizes), np.int64),
        pair.variation,
        pair.time[rows],
    )
    costs = pair.cost[rows]
    interval, _ = target_interval(design, costs, groups, weights, kind=kind, kernels=groups)
    return float((weights * costs).sum()), interval, len(rows)


def _proportional(pair: _Pair, drawn: int, rng: np.random.Generator) -> _Drawn:
    found = draw_in_proportion(pair.time, min(drawn, len(pair.time)), rng)
    none = np.zeros(0)
    design = SampleDesign("proportional", none, none, none, draws=found.draws)
    costs = pair.cost[found.rows]
    groups = np.zeros(len(costs), np.int64)
    interval, _ = target_interval(design, costs, groups, found.weights, kind="light_time", kernels=groups)
    return float((found.weights * costs).sum()), interval, len(costs)


_DESIGNS = {"by launches": _by_launches, "by light time": _by_light_time, "proportional": _proportional}


def _infer() -> Iterator[_Pair]:
    """One application simulated whole on three GPUs; nothing where the shared data is absent."""
    folder = shared_data()
    if folder is None:
        return
    with (folder / "accel_sim_more" / "launches.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"].startswith("infer.")]
    by_gpu = {
        gpu: [row for row in rows if row["config"] == gpu] for gpu in dict.fromkeys(r["config"] for r in rows)
    }
    for source, target in _INFER:
        kernel = np.unique([row["kernel"] for row in by_gpu[source]], return_inverse=True)[1]
        time, cost = (
            np.array([float(row["active_cycles"]) for row in by_gpu[gpu]]) for gpu in (source, target)
        )
        yield _Pair(f"infer {source.split('_')[1]} to {target.split('_')[1]}", time, cost, kernel)


def _virtual(effort: Effort) -> Iterator[_Pair]:
    """Workloads of the demo on virtual GPUs."""
    for name in ("pipeline", "solver") if effort is Effort.FULL else ("solver",):
        workload = load_workload(_WORKLOADS / f"{name}.toml")
        by_gpu = {kind: VirtualGPU(kind).execute(workload, level="light") for kind in ("V100", "RTX 2060")}
        time, cost = (
            np.concatenate([part.duration_ns for part in parts]).astype(np.float64)
            for parts in by_gpu.values()
        )
        kernel = np.concatenate([part.kernel for part in by_gpu["V100"]])
        yield _Pair(f"virtual {name} V100 to RTX 2060", time, cost, np.unique(kernel, return_inverse=True)[1])


def _made() -> _Pair:
    rng = np.random.default_rng(1)
    kernel = rng.integers(0, 12, 5000)
    base, ratio = np.exp(rng.normal(3, 1.5, 12)), np.exp(rng.normal(0, 0.3, 12))
    size, power = np.exp(rng.normal(0, 0.8, 5000)), rng.uniform(0.8, 1.1, 12)
    cost = (base * ratio)[kernel] * size ** power[kernel] * np.exp(rng.normal(0, 0.05, 5000)) + 3
    return _Pair("made", base[kernel] * size + 2, cost, kernel)
