"""The registry of canonical counters: which Nsight metric measures what, on which architecture and tool.

The data are in ``definitions.toml`` next to this module. Names are ours (``instructions``,
``global_load_sectors``), so that analyses do not depend on how a tool version named a metric.

Source: Principal Kernel Analysis, Table 2; docs/nvidia-tools.md, "Metric names".
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.errors import CounterUnavailableError, ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from assay_sampling.launches.table import CounterColumn

CYCLE_COUNTERS = ("cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg")
# Those of a simulator: recordings of silicon have none of them, and simulated ones none of the others.
SIMULATED_CYCLES = ("cycles_simulated_active", "cycles_simulated")
# In the order in which a cost is looked for.
ALL_CYCLES = (*CYCLE_COUNTERS, *SIMULATED_CYCLES)
# The costs of a launch, each with its unit.
COST_UNITS = {
    "cycles_gpc_avg": "cycle",
    "cycles_gpc_max": "cycle",
    "cycles_sys_avg": "cycle",
    "duration_ns": "ns",
    "cycles_simulated_active": "cycle",
    "cycles_simulated": "cycle",
    # Where nothing else was measured; a launch takes longer under a profiler.
    "profiled_duration_ns": "ns",
}
# Every detailed run collects these for any features: costs by clock domain, and the weight of launches.
COST_COUNTERS = ("cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns", "instructions")

# Units of counters that count things one by one.
PLAIN_COUNT_UNITS = ("inst", "request", "sector")

FEATURE_SETS: dict[str, tuple[str, ...]] = {
    # PKA, Table 2.
    "table2": (
        "global_load_sectors", "global_store_sectors", "local_load_sectors",
        "global_load_instructions", "global_store_instructions", "local_load_instructions",
        "shared_load_instructions", "shared_store_instructions", "global_atomic_instructions",
        "instructions", "threads_per_instruction", "thread_blocks",
    ),
    # PKA.py of the published artifact: no local memory, global loads and stores twice.
    "artifact12": (
        "global_load_sectors", "global_store_sectors", "instructions", "threads_per_instruction",
        "global_atomic_instructions", "global_load_instructions", "global_store_instructions",
        "shared_load_instructions", "shared_store_instructions",
        "artifact_global_loads", "artifact_global_stores", "thread_blocks",
    ),
    # RKS.py of the published artifact: these without global atomics.
    "artifact11": (
        "global_load_sectors", "global_store_sectors", "instructions", "threads_per_instruction",
        "global_load_instructions", "global_store_instructions",
        "shared_load_instructions", "shared_store_instructions",
        "artifact_global_loads", "artifact_global_stores", "thread_blocks",
    ),
}  # fmt: skip


# What a simulator counts that does not depend on the simulated GPU; :mod:`assay_sampling.counters.simulated`.
SIMULATED_FEATURES = "simulated"
_SIMULATED_FEATURE_SET = (
    "instructions", "threads_per_instruction", "thread_load_instructions", "thread_store_instructions",
    "thread_shared_instructions", "l1_accesses", "thread_blocks",
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One Nsight Compute metric that measures a counter, and where it exists (empty: everywhere)."""

    name: str
    architectures: tuple[str, ...] = ()
    since: str = ""
    before: str = ""

    def exists_on(self, compute_capability: str, tool_version: str) -> bool:
        """Whether the metric exists there; an unknown ("") capability or version excludes nothing."""
        if self.architectures and compute_capability and compute_capability not in self.architectures:
            return False
        if not tool_version:
            return True
        version = _version(tool_version)
        too_old = bool(self.since) and version < _version(self.since)
        too_new = bool(self.before) and version >= _version(self.before)
        return not (too_old or too_new)


@dataclass(frozen=True)
class Counter:
    """A canonical counter. ``unit`` is the base unit; ``variant`` hardware, sass or software; ``feature``
    what it says of a launch on any GPU, "" for nothing (``definitions.toml``)."""

    name: str
    unit: str
    variant: str
    help: str
    metrics: tuple[Metric, ...]
    labels: tuple[str, ...] = ()
    feature: str = ""

    @property
    def plain_count(self) -> bool:
        """Whether it counts things one by one, rather than bytes, time, cycles or a ratio."""
        return self.unit in PLAIN_COUNT_UNITS

    def column(self, metric: str) -> CounterColumn:
        # Programs that must start fast want the registry alone, so Arrow is loaded with the first table.
        from assay_sampling.launches.table import CounterColumn  # noqa: PLC0415

        return CounterColumn(self.name, self.unit, metric, self.variant)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@cache
def registry() -> dict[str, Counter]:
    """All canonical counters by name, in the order of the data file."""
    text = resources.files("assay_sampling.counters").joinpath("definitions.toml").read_text()
    return {name: _counter(name, entry) for name, entry in tomllib.loads(text).items()}


def _counter(name: str, entry: dict[str, Any]) -> Counter:
    metrics = tuple(
        Metric(m["name"], tuple(m.get("architectures", ())), m.get("since", ""), m.get("before", ""))
        for m in entry["metrics"]
    )
    labels = tuple(entry.get("labels", ()))
    return Counter(
        name, entry["unit"], entry["variant"], entry["help"], metrics, labels, entry.get("feature", "")
    )


@cache
def _by_metric() -> dict[str, Counter]:
    return {m.name: counter for counter in registry().values() for m in counter.metrics}


@cache
def _by_label() -> dict[str, Counter]:
    return {label: counter for counter in registry().values() for label in counter.labels}


def counter_of_metric(metric: str) -> Counter | None:
    """The canonical counter that an Nsight Compute metric name measures, or None."""
    return _by_metric().get(metric)


def counter_of_label(label: str) -> Counter | None:
    """The canonical counter behind a label of Nsight Compute's details page, or None."""
    return _by_label().get(label)


def metric_of(name: str, compute_capability: str = "", tool_version: str = "") -> str:
    """The metric to ask Nsight Compute for.

    Raises ParameterError for an unknown counter, CounterUnavailableError where this chip, or any, lacks it.
    """
    counter = registry().get(name)
    if counter is None and is_metric(name):
        return name
    if counter is None and name in simulated_counters():
        raise CounterUnavailableError(name, "only simulators count it")
    if counter is None:
        raise ParameterError("counter", f"there is no counter {name!r}")
    for metric in counter.metrics:
        if metric.exists_on(compute_capability, tool_version):
            return metric.name
    raise CounterUnavailableError(
        name,
        f"Nsight Compute cannot measure it on compute capability {compute_capability} "
        f"with Nsight Compute {tool_version or 'of any version'}",
    )


def is_metric(name: str) -> bool:
    """Whether a name is one that Nsight Compute gives its metrics, such as ``lts__t_sectors.sum``."""
    return "__" in name and name not in registry()


def features_of(feature_set: str) -> tuple[str, ...]:
    """The counters of a named feature set; raises ParameterError for a name that does not exist."""
    if feature_set == SIMULATED_FEATURES:
        return _SIMULATED_FEATURE_SET
    try:
        return FEATURE_SETS[feature_set]
    except KeyError:
        raise ParameterError(
            "features",
            f"there is no feature set {feature_set!r}",
            f"use one of {', '.join(FEATURE_SETS)}",
        ) from None


def default_time(table: pa.Table) -> str:
    """The time of launches without cycles: that under the profiler where no launch has another."""
    free, profiled = "duration_ns", "profiled_duration_ns"
    if profiled not in table.schema.names or table[profiled].null_count:
        return free
    return profiled if table[free].null_count == table.num_rows else free


def default_cost_counter(table: pa.Table) -> str | None:
    """The first cycle counter that was measured for all launches, else the first for some, or None."""
    missing = {name: table[name].null_count for name in ALL_CYCLES if name in table.schema.names}
    whole = next((name for name, nulls in missing.items() if not nulls), None)
    return whole or next((name for name, nulls in missing.items() if nulls < table.num_rows), None)
