"""Labels of models beside kernel and size alone: errors of two-level selections on other GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.scoring.selection import Selection
from tests.fidelity.gpu_pairs import GpuPair, sources
from tests.fidelity.section import Effort, Section

MODELS = ("sgd", "gaussian_nb", "mlp")
COUNTER_GROUPS = 8
_WORKLOADS = {
    Effort.SHORT: ("virtual inference",),
    Effort.FULL: ("three_gpus", "virtual inference", "virtual solver", "virtual training"),
}
_COLUMNS = (
    "workload",
    "window",
    "groups",
    "labels",
    "speedup",
    "total error %",
    "error by kernel and grid %",
)
_BY_SIZE, _DIVIDED, _CLUSTERS = (
    "kernel and size",
    "kernel and size, divided by counters",
    "clusters of counters",
)


def section(effort: Effort) -> Section:
    """A row for each grouping and model, means over the other GPUs; without a bound."""
    models = MODELS[:1] if effort is Effort.SHORT else MODELS
    about = (
        "Synthetic: a window of the V100 and its light run, weights by light time, means over the RTX 2060 "
        f"and the RTX 3070. `k={COUNTER_GROUPS}` divides groups of kernel and size by counters, so that "
        "labels count; `mixing=allowed` takes the clusters alone; no bound."
    )
    known = sources()
    rows = [
        row
        for name in _WORKLOADS[effort]
        if name in known
        for row in _of_workload(name, list(known[name]()), models)
    ]
    return Section("Labels beside kernel and size alone", about, _COLUMNS, rows)


def _of_workload(name: str, pairs: Sequence[GpuPair], models: Sequence[str]) -> Iterator[Sequence[str]]:
    for profile, others in _windows(pairs):
        assert profile.detailed is not None
        window = f"{len(profile.detailed):,} from {int(profile.detailed.column('launch')[0]):,}"
        plain = select("pks", profile, {})
        yield _row((name, window, _BY_SIZE), "-", plain, others)
        for model in models:
            divided = select("pks", profile, {"k": COUNTER_GROUPS, "model": model})
            yield _row((name, window, _DIVIDED), model, divided, others)
        for model in models:
            clusters: Mapping[str, Any] = {"mixing": "allowed", "model": model}
            yield _row((name, window, _CLUSTERS), model, select("pks", profile, clusters), others)


def _windows(pairs: Sequence[GpuPair]) -> Iterator[tuple[Profile, list[GpuPair]]]:
    """Profiles of two levels whose window is a part, each with its pairs."""
    by_window: dict[tuple[int, int], tuple[Profile, list[GpuPair]]] = {}
    for pair in pairs:
        detailed, light = pair.profile.detailed, pair.profile.light
        if detailed is not None and light is not None and len(detailed) < len(light):
            key = (len(detailed), int(detailed.column("launch")[0]))
            by_window.setdefault(key, (pair.profile, []))[1].append(pair)
    yield from by_window.values()


def _row(head: Sequence[str], labels: str, made: Selection, others: Sequence[GpuPair]) -> Sequence[str]:
    scores = [pair.target(None, made.evaluation.quantity).score(made, "light_time") for pair in others]
    total = [abs(score.signed_error_percent) for score in scores]
    parts = [score.part_error_percent or 0.0 for score in scores]
    return (
        *head[:-1],
        f"{head[-1]} ({len(made.group_launches)})",
        labels,
        f"{made.evaluation.speedup or 0:,.0f}",
        f"{sum(total) / len(total):.1f}",
        f"{sum(parts) / len(parts):.1f}",
    )
