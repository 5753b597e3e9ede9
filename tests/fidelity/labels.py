"""Labels after the window, where every launch has counters: how often each model gives the right group.

The right group of a launch is that of the nearest centre of the window's groups, by the launch's own
counters, which the models do not see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neighbors import KNeighborsClassifier

from assay_sampling.clustering.feature_space import feature_matrix
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.light_run import label_rest
from assay_sampling.labelling.within_kernel import WindowCounters
from assay_sampling.launches.signatures import distinct_signatures
from assay_sampling.methods.pks.principal_kernels import nearest_groups, principal_kernels
from tests.fidelity.counted_workloads import CountedWorkload, generated_page, simulated, virtual
from tests.fidelity.section import Effort, Section, shared_data

_WINDOWS = {"decoder": (150, 300), "inference": (100, 300), "pipeline": (300,), "training": (100, 300, 1000),
            "traversal": (100, 300, 1000)}  # fmt: skip
_LEAST_NEW_PERCENT = 90.0
_MOST_OFF_POINTS = 10.0
_MOST_LOST_POINTS = 2.0
_COLUMNS = (
    "model", "data", "workloads", "new signatures / %", "all behind / %", "expected / %", "chronological / %",
    "grouped / %", "expected is off / points", "chronological", "grouped",
)  # fmt: skip
_TRIED = ("k nearest neighbours", "extra trees")


@dataclass
class Found:
    """Percentages of one model, a value for each workload; those held out are None where nothing could be."""

    new: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    held_out: dict[str, list[float | None]] = field(
        default_factory=lambda: {"expected": [], "chronological": [], "grouped": []}
    )

    def joined(self, other: Found) -> Found:
        return Found(
            self.new + other.new,
            self.behind + other.behind,
            {name: values + other.held_out[name] for name, values in self.held_out.items()},
        )

    def off(self, name: str) -> float | None:
        """Mean distance of a held-out accuracy from what came after the window."""
        given = self.held_out[name]
        pairs = [(a, b) for a, b in zip(given, self.behind, strict=False) if a is not None]
        return float(np.mean([abs(a - b) for a, b in pairs])) if pairs else None

    def mean(self, name: str) -> float | None:
        given = [value for value in self.held_out[name] if value is not None]
        return float(np.mean(given)) if given else None


def workloads(effort: Effort) -> Iterator[CountedWorkload]:
    """Workloads with new signatures after the window; simulated ones only where the data is."""
    data = shared_data()
    if effort is Effort.SHORT:
        yield virtual("inference", window=100)
        if data is not None:
            yield next(iter(simulated(data, window=46)))
        return
    for name, windows in _WINDOWS.items():
        yield from (virtual(name, window=window) for window in windows)
    if data is not None:
        yield from (generated_page(data, window=window) for window in (100, 200, 500, 1000))
        for window in (46, 73):
            yield from simulated(data, window=window)


def section(effort: Effort) -> Section:
    """A row for each model and kind of data; ``best`` is the model that was chosen."""
    found: dict[str, dict[str, Found]] = {}
    lost = []
    for workload in workloads(effort):
        of_workload = measured(workload)
        kept = [name for name in of_workload if name not in _TRIED]
        lost.append(max(of_workload[name].behind[0] for name in kept) - of_workload["best"].behind[0])
        for name, each in of_workload.items():
            by_origin = found.setdefault(name, {})
            by_origin[workload.origin] = by_origin.get(workload.origin, Found()).joined(each)
    rows = [
        _row(name, origin, each) for name, by_origin in found.items() for origin, each in by_origin.items()
    ]
    return Section(
        "Labels of new signatures by model",
        "Windows of 46 to 1,000 launches of workloads with counters of every launch: synthetic (virtual "
        "GPUs, a generated page) and one application on three simulated GPUs. Accuracy by light time, of "
        "new signatures of known kernels and of all labelled launches; then what the window alone says, "
        "and its mean distance from all that came; the last two models were not kept.",
        _COLUMNS,
        rows,
        _missed(found, float(np.mean(lost))),
    )


def measured(workload: CountedWorkload) -> dict[str, Found]:
    """Every model's accuracies on one workload, and those of the chosen one as ``best``."""
    window = np.arange(workload.window)
    counted = workload.whole.slice(0, workload.window)
    grouping = principal_kernels(counted)
    counters = WindowCounters(grouping.features, feature_matrix(counted, grouping.features), grouping.space)
    found = label_rest(workload.light, window, grouping.labels, counters=counters)
    rows = found.classified_rows
    truth = nearest_groups(grouping, workload.whole)[rows]
    time = workload.light.column("duration_ns").astype(float)[rows]
    signature = distinct_signatures(workload.light).inverse
    new = ~np.isin(signature[rows], signature[window])
    measured = {}
    for name, labels in found.predicted.items():
        held_out = found.held_out[name]
        given = {"expected": held_out.expected, "chronological": held_out.chronological.plain,
                 "grouped": held_out.grouped.plain}  # fmt: skip
        right = labels == truth
        measured[name] = Found(
            [_share(right, time * new)], [_share(right, time)], {k: [v] for k, v in given.items()}
        )
    for name, labels in _tried(workload, grouping.labels).items():
        measured[name] = Found([_share(labels[rows] == truth, time * new)])
    assert found.chosen is not None
    return {"best": measured[found.chosen], **measured}


def _tried(workload: CountedWorkload, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Labels of every launch by scikit-learn's models on kernel, size and light time."""
    signatures = distinct_signatures(workload.light)
    facts = LightFacts.of(workload.light, signatures)
    assert facts.light_ns is not None
    numbers = np.log(np.column_stack([facts.blocks, facts.warps, facts.light_ns]))
    seen, inverse = np.unique(signatures.inverse[: workload.window], return_inverse=True)
    scale = np.maximum(numbers[seen].std(axis=0), 1e-6)
    kernels = 10.0 * (facts.kernel[:, None] == np.unique(facts.kernel))
    features = np.column_stack([kernels, (numbers - numbers[seen].mean(axis=0)) / scale])
    votes = np.zeros((len(seen), int(labels.max()) + 1))
    np.add.at(votes, (inverse, labels), 1)
    models = (
        KNeighborsClassifier(min(3, len(seen)), weights="distance"),
        ExtraTreesClassifier(100, random_state=0),
    )
    return {
        name: model.fit(features[seen], votes.argmax(axis=1)).predict(features)[signatures.inverse]
        for name, model in zip(_TRIED, models, strict=True)
    }


def _share(right: np.ndarray, weight: np.ndarray) -> float:
    return 100.0 * float(weight[right].sum() / weight.sum())


def _row(name: str, origin: str, found: Found) -> list[str]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    kinds = tuple(found.held_out)
    return [
        name,
        origin,
        str(len(found.new)),
        shown(float(np.mean(found.new))),
        shown(float(np.mean(found.behind)) if found.behind else None),
        *(shown(found.mean(kind)) for kind in kinds),
        *(shown(found.off(kind)) for kind in kinds),
    ]


def _missed(found: dict[str, dict[str, Found]], lost: float) -> list[str]:
    missed = []
    for origin, each in found["scaled_counters"].items():
        if (new := float(np.mean(each.new))) < _LEAST_NEW_PERCENT:
            missed.append(
                f"scaled_counters, {origin}: {new:.1f} % of new signatures, below {_LEAST_NEW_PERCENT:g} %"
            )
    models = [name for name in found if name not in (*_TRIED, "best")]
    off = {
        kind: float(np.mean([
            distance for name in models for each in found[name].values()
            if (distance := each.off(kind)) is not None
        ]))
        for kind in ("expected", "chronological", "grouped")
    }  # fmt: skip
    if off["expected"] > _MOST_OFF_POINTS or off["expected"] > min(off["chronological"], off["grouped"]):
        distances = ", ".join(f"{kind} {points:.1f}" for kind, points in off.items())
        missed.append(
            f"the expected accuracy is not the nearest, or over {_MOST_OFF_POINTS:g} points off: {distances}"
        )
    if lost > _MOST_LOST_POINTS:
        missed.append(
            f"best is {lost:.1f} points behind the best model in the mean, over {_MOST_LOST_POINTS:g}"
        )
    return missed
