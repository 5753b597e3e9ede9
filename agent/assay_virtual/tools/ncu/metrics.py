"""The metrics of the virtual chips, how requests for metrics resolve, and how many passes they take.

The chips have the metrics of the counter registry; the rule for passes reproduces the table in
docs/nvidia-tools.md, "Passes", for every set in it that the registry covers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay_sampling.counters.definitions import Counter, registry
from assay_virtual.architectures import ARCHITECTURES, Architecture
from assay_virtual.tools.environment import version_key

_UNITS = {"ns": "nsecond", "hz": "cycle/second", "1": ""}
_SUFFIXES = (".avg", ".max", ".min", ".sum")
# The metrics of "--set basic" here: speed of light, launch statistics and occupancy.
_BASIC = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpc__cycles_elapsed.avg.per_second",
    "gpc__cycles_elapsed.max",
    "gpu__time_duration.sum",
    "sm__cycles_active.avg",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
# Names that only later versions list; the registry has no version in between.
_SINCE = {
    "smsp__average_thread_inst_executed_per_inst_executed.ratio": (2025, 1),
    "smsp__sass_inst_executed_op_tma.sum": (2023, 1),
}
_FREE = ("launch__", "device__", "profiler__")


class UnknownMetricError(Exception):
    """The chip does not have the metric; the text is its name. Never leaves the stand-ins."""


@dataclass(frozen=True)
class Request:
    """Canonical counters by the metric that was asked for, in order, and the passes they take."""

    counters: dict[str, Counter]
    passes: int


def unit_of(counter: Counter) -> str:
    """The unit, as spelled in the units row of a page in base units."""
    return "pass" if counter.name == "replay_passes" else _UNITS.get(counter.unit, counter.unit)


def metrics_of(gpu: Architecture, version: str) -> dict[str, Counter]:
    """The metrics of a chip, except those that all launches have anyway, in alphabetical order."""
    metrics = {
        metric.name: counter
        for counter in registry().values()
        for metric in counter.metrics
        if metric.exists_on(gpu.compute_capability, version)
        and not metric.name.startswith(_FREE)
        and version_key(version) >= _SINCE.get(metric.name, (0, 0))
    }
    return dict(sorted(metrics.items()))


def requested(gpu: Architecture, version: str, texts: Sequence[str]) -> Request:
    """The metrics that ``--metrics`` asks for (empty: the basic set); raises UnknownMetricError."""
    metrics = metrics_of(gpu, version)
    names = [name for text in texts for name in text.split(",") if name]
    expanded: dict[str, Counter] = {}
    for name in names or [metric for metric in _BASIC if metric in metrics]:
        for metric in _expanded(metrics, name):
            expanded[metric] = metrics[metric]
    return Request(expanded, passes(expanded.values()))


def _expanded(metrics: dict[str, Counter], name: str) -> list[str]:
    if name in metrics:
        return [name]
    if name.startswith("regex:"):
        expression = re.compile(name.removeprefix("regex:"))
        return [metric for metric in metrics if expression.search(metric)]
    if name.startswith(("group:", "breakdown:")) or name.startswith(_FREE):
        return []
    names = [name + suffix for suffix in _SUFFIXES if name + suffix in metrics]
    if not names:
        raise UnknownMetricError(name)
    return names


def passes(counters: Iterable[Counter]) -> int:
    """Replays of a launch that a set of counters takes, at least one.

    Counters of patched instructions take a separate pass. The others fit into one, unless there are two or
    more of L1 sectors or requests (one more), or hit rates, throughput or occupancy (one more).
    """
    counter_list = list(counters)
    names = [counter.name for counter in counter_list if counter.variant == "hardware"]
    sass = any(counter.variant == "sass" for counter in counter_list)
    sectors = sum(name.endswith(("_sectors", "_requests")) for name in names)
    rates = any(name.endswith("_percent") for name in names)
    hardware = (1 if names else 0) + (1 if sectors > 1 else 0) + (1 if rates else 0)
    return max(1, hardware + sass)


def virtual_chips() -> list[str]:
    """Chips of the virtual GPUs, in alphabetical order."""
    return sorted(gpu.chip for gpu in ARCHITECTURES.values())


def metric_listing(chip: str, version: str, mode: str) -> list[tuple[str, str, str, str]]:
    """Rows of ``--query-metrics``: name ("base" without suffix, else in full), type, unit, description."""
    gpu = next(gpu for gpu in ARCHITECTURES.values() if gpu.chip == chip)
    rows: dict[str, tuple[str, str, str, str]] = {}
    for metric, counter in metrics_of(gpu, version).items():
        name = metric if mode == "all" else metric.partition(".")[0]
        kind = "Ratio" if metric.endswith((".ratio", ".pct")) else "Counter"
        kind = "Throughput" if "throughput" in metric else kind
        rows.setdefault(name, (name, kind, unit_of(counter), counter.help))
    return list(rows.values())


def metric_listing_text(chips: Sequence[str], version: str, mode: str, *, as_csv: bool) -> str:
    """The output of ``--query-metrics`` for chips, always in alphabetical order."""
    chips = sorted(set(chips))
    listings = {chip: metric_listing(chip, version, mode) for chip in chips}
    if not as_csv:
        return "".join(_metric_table(chip, rows) for chip, rows in listings.items())
    on: dict[tuple[str, str, str, str], set[str]] = {}
    for chip, rows in listings.items():
        for row in rows:
            on.setdefault(row, set()).add(chip)
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["Metric name", "Metric type", "Metric unit", "Metric description", *chips])
    for row in sorted(on):
        writer.writerow([*row, *("1" if chip in on[row] else "" for chip in chips)])
    return out.getvalue()


def _metric_table(chip: str, rows: list[tuple[str, str, str, str]]) -> str:
    titles = ("Metric Name", "Metric Type", "Metric Unit", "Metric Description")
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(4)]
    rule = " ".join("-" * width for width in widths)
    lines = [" ".join(f"{row[i]:<{widths[i]}}" for i in range(4)) for row in [titles, *rows]]
    return "\n".join([f"Chip {chip}", rule, lines[0], rule, *lines[1:], rule, ""])
