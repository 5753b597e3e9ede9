"""Errors by weights of plain k-means groups, on an application that a simulator ran on three GPUs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay_sampling.clustering.kmeans import cluster_sweep
from assay_sampling.scoring.weights import launch_weights, light_time_weights
from tests.fidelity.section import Effort, Section, shared_data

SOURCE, TARGETS = "SM7_QV100", ("SM75_RTX2060", "SM86_RTX3070")
KS = range(3, 13)
# What a launch executes, which no GPU changes.
FEATURES = (
    "instructions", "warp_instructions", "loads", "stores", "shared_memory_insts", "bank_conflicts",
    "global_reads", "global_writes",
)  # fmt: skip
_COLUMNS = ("K", "on", "by launches", "by light time")
_ABOUT = (
    "Simulated: `infer`, 139 launches of synthetic kernels on three configurations; plain k-means on "
    "standardised counts of what a launch executes, represented by the first launch, selected on the QV100 "
    "and scored in active cycles, a simulator's light time, signed total error / group error in %. Bound: "
    "by light time no group error is larger."
)


@dataclass(frozen=True)
class Errors:
    """Signed error of the total and group error in percent."""

    signed: float
    groups: float

    def __str__(self) -> str:
        return f"{self.signed:+.1f} / {self.groups:.1f}"


def section(_: Effort) -> Section:
    """Each K on both targets; without shared data a table of no rows."""
    title = "Weights on a simulator's other GPUs, k-means groups"
    data = shared_data()
    if data is None:
        return Section(title, f"{_ABOUT} The shared data is not here.", _COLUMNS, ())
    found = errors_by_k(data)
    rows = [(str(k), target, *map(str, pair)) for (k, target), pair in found.items()]
    missed = [
        f"K = {k} on {target}: group error {own.groups:.1f} % becomes {by_light_time.groups:.1f} %"
        for (k, target), (own, by_light_time) in found.items()
        if by_light_time.groups > own.groups
    ]
    return Section(title, _ABOUT, _COLUMNS, rows, missed)


def errors_by_k(data: Path) -> dict[tuple[int, str], tuple[Errors, Errors]]:
    """Errors by launches and by light time, by K and target."""
    launches = _launches(data)
    source = launches[SOURCE]
    counts = np.stack([source[name] for name in FEATURES], axis=1)
    spread = counts.std(axis=0)
    points = (counts - counts.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    found = {}
    for k, clustering in enumerate(cluster_sweep(points, max(KS), seed=0), start=1):
        if k not in KS:
            continue
        labels = clustering.labels
        rows = np.unique(labels, return_index=True)[1]
        both = (
            launch_weights(labels, rows),
            light_time_weights(source["active_cycles"], labels, rows),
        )
        for target in TARGETS:
            cost = launches[target]["active_cycles"]
            own, by_light_time = (_errors(cost, labels, rows, weights) for weights in both)
            found[k, target] = (own, by_light_time)
    return found


def _errors(cost: np.ndarray, labels: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> Errors:
    true, projected = np.bincount(labels, cost), np.bincount(labels[rows], weights * cost[rows])
    off, total = projected - true, float(cost.sum())
    return Errors(100 * float(off.sum()) / total, 100 * float(np.abs(off).sum()) / total)


def _launches(data: Path) -> Mapping[str, Mapping[str, np.ndarray]]:
    """The columns of every configuration's launches of `infer`; all hold the same launches in one order."""
    with (data / "accel_sim_more" / "launches.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["run"].startswith("infer.")]
    of = {name: [row for row in rows if row["config"] == name] for name in (SOURCE, *TARGETS)}
    names = {tuple((row["kernel"], row["grid"], row["block"]) for row in each) for each in of.values()}
    if len(names) != 1:
        raise ValueError("the configurations hold different launches")
    return {
        name: {key: np.array([float(row[key]) for row in each]) for key in (*FEATURES, "active_cycles")}
        for name, each in of.items()
    }
