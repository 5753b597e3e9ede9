"""Methods compared: the selection's own error and speedup, next to the fair ones, and who keeps a star."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay_client.api import read_profile
from assay_client.recordings.comparing import compare
from assay_sampling.scoring.fair import LEAST_COVERAGE_PERCENT, MOST_ERROR_PERCENT
from tests.fidelity.section import Effort, Section, shared_data

_COUNTED = "ncu/synthetic_v100_5000_raw_page.csv.gz"
_RECORDINGS = {
    "A100, 79 launches": "kineto/a100_alexnet_79_kernels.json.gz",
    "A100, 8,568 launches": "kineto/a100_input_dims_8568_kernels.json.gz",
    "V100, 19,370 launches": "kineto/v100_training_19370_kernels.json.gz",
    "V100, 9,876 launches": "kineto/v100_input_dims_9876_kernels.json.gz",
    "synthetic V100, 5,000 launches": _COUNTED,
}
_COLUMNS = (
    "recording", "method", "error % before", "speedup before", "star before", "fair error %", "fair speedup",
    "held %", "star", "fair score over", "recommended",
)  # fmt: skip


def section(effort: Effort) -> Section:
    """Every method that applies to each recording; ``short`` compares the smallest alone."""
    data = shared_data()
    rows: list[Sequence[str]] = []
    missed: list[str] = []
    chosen = dict(list(_RECORDINGS.items())[: 1 if effort is Effort.SHORT else None])
    for name, path in chosen.items() if data is not None else ():
        document = compare(read_profile(Path(data or "") / path, synthetic=path == _COUNTED or None))
        scored = [entry for entry in document["methods"] if entry["status"] == "ok"]
        best = document["recommendation"]["method"]
        rows += [_row(name, entry, scored, best) for entry in scored]
        missed += [f"{name}: {entry['method']} has a star" for entry in scored if _lucky(entry)]
    return Section(
        "Methods compared",
        "Real PyTorch traces (nanoseconds) and a synthetic raw page with counters (cycles), seed 0; "
        "before: the selection's own score. Bounds: no star where the interval held in less than "
        f"{LEAST_COVERAGE_PERCENT:g} % of the tries, or above {MOST_ERROR_PERCENT:g} % of fair error.",
        _COLUMNS,
        rows,
        missed,
    )


def _row(name: str, entry: Mapping[str, Any], scored: Sequence[Mapping[str, Any]], best: str) -> list[str]:
    fair = entry["fair"]
    held = fair["coverage_percent"]
    return [
        name,
        entry["method"],
        f"{entry['error_percent']:.1f}",
        f"{entry['speedup']:.1f}",
        "" if _unstarred_before(entry, scored) else "*",
        f"{fair['error_percent']:.1f}",
        f"{fair['speedup']:.1f}",
        "-" if held is None else f"{held:.0f}",
        "*" if entry["pareto"] else "",
        f"{fair['trials']} {fair['basis']}",
        "yes" if entry["method"] == best else "",
    ]


def _unstarred_before(entry: Mapping[str, Any], scored: Sequence[Mapping[str, Any]]) -> bool:
    exact = entry["fair"]["basis"] == "by_construction"
    return exact or any(_beat_before(other, entry) for other in scored)


def _beat_before(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """The rule of earlier releases, by the selections' own scores; it knew no method without error."""
    if one["fair"]["basis"] == "by_construction" or one["cost"]["quantity"] != other["cost"]["quantity"]:
        return False
    no_worse = one["error_percent"] <= other["error_percent"] and one["speedup"] >= other["speedup"]
    return no_worse and (
        one["error_percent"] < other["error_percent"] or one["speedup"] > other["speedup"]
    )  # fmt: skip


def _lucky(entry: Mapping[str, Any]) -> bool:
    fair = entry["fair"]
    held = fair["coverage_percent"]
    seldom = held is not None and held < LEAST_COVERAGE_PERCENT
    return bool(entry["pareto"]) and (seldom or fair["error_percent"] > MOST_ERROR_PERCENT)
