"""Which counters of a recording launches are compared by.

Good features say what a launch does and not how fast a GPU does it: instructions, memory transactions, and
how many threads of a warp are active. They are of three kinds, *work*, *memory* and *divergence*; cycles,
times, shares of a peak and hit rates are of none. What memory below the L1 cache moves depends on the caches,
so it counts as memory only where nothing above them was measured.

Source: Principal Kernel Analysis, Table 2 (twelve counters of these kinds); the choice among others is ours:
docs/methods/pks.md, "Other counters".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from assay_sampling.counters.definitions import (
    ALL_CYCLES,
    FEATURE_SETS,
    PLAIN_COUNT_UNITS,
    SIMULATED_FEATURES,
    features_of,
    is_metric,
    registry,
)
from assay_sampling.counters.missing import how_to_collect
from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.errors import CounterUnavailableError, ParameterError

if TYPE_CHECKING:
    from assay_sampling.launches.in_memory import Launches
    from assay_sampling.launches.table import CounterColumn

FeatureKind = Literal["work", "memory", "divergence"]
KINDS: tuple[FeatureKind, ...] = ("work", "memory", "divergence")
AUTO, ALL = "auto", "all"
PUBLISHED = "table2"
_BELOW_L1 = "memory below L1"
_NOT_FEATURES = ("cycle", "ns", "hz")
_MEMORY = re.compile(r"mem|_(ld|st|ldgsts|atom|red|tma|load|store)s?([_.]|$)")
_PER_UNIT = (".avg", ".max", ".min")


def named_features(features: str) -> tuple[str, ...]:
    """The counters of a feature set, or those of a list ``a,b,c``; those of ``auto`` and ``all`` are the
    published ones until a recording is known."""
    if features in (AUTO, ALL):
        return FEATURE_SETS[PUBLISHED]
    if features in FEATURE_SETS or features == SIMULATED_FEATURES:
        return features_of(features)
    return tuple(dict.fromkeys(name.strip() for name in features.split(",") if name.strip()))


def is_feature_set(features: str) -> bool:
    """Whether it is the name of a set, and not a list of counters."""
    return features in (AUTO, ALL, SIMULATED_FEATURES, *FEATURE_SETS)


def own_metrics(features: object) -> tuple[str, ...]:
    """The metrics of a list of features that the registry does not know: a page is read for them."""
    return tuple(name for name in named_features(str(features or AUTO)) if is_metric(name))


def check_features(features: str, method: str) -> str:
    """``features`` without blanks; raises ParameterError for a list without names, or with one that is
    neither a counter of ours nor a metric of Nsight Compute."""
    names = named_features(features)
    if not names:
        raise ParameterError(method, "features names no counter", "write features=auto, or features=a,b,c")
    return features if is_feature_set(features) else ",".join(names)


def fitted_features(features: str, launches: Launches, method: str) -> str:
    """The features for a recording: a set, or a list of the counters that it has.

    Raises CounterUnavailableError where ``auto`` lacks one of the three kinds, ParameterError for the name of
    a counter that neither we nor the recording know.
    """
    if features == AUTO:
        return _auto(launches, method)
    if features == ALL:
        return ",".join(all_features(launches))
    if not is_feature_set(features):
        _refuse_unknown(named_features(features), launches, method)
    return features


def missing_of_published(names: Iterable[str]) -> tuple[str, ...]:
    """The counters of PKA's Table 2 that are not among ``names``."""
    used = set(names)
    return tuple(name for name in FEATURE_SETS[PUBLISHED] if name not in used)


def _auto(launches: Launches, method: str) -> str:
    if launches.metadata.simulated:
        return SIMULATED_FEATURES
    published = set(FEATURE_SETS[PUBLISHED])
    measured = set(launches.counters)
    # One that some launches lack is an error that says which: leaving it out would hide a damaged recording.
    if published <= measured or (published & measured) - set(_whole(launches)):
        return PUBLISHED
    return ",".join(chosen_features(launches, method))


def chosen_features(launches: Launches, method: str) -> tuple[str, ...]:
    """The counters that do not depend on the GPU; raises CounterUnavailableError where a kind is missing."""
    chosen = neutral_features(launches)
    lacking = [kind for kind in KINDS if kind not in _kinds(launches, chosen)]
    if lacking:
        costs = () if set(ALL_CYCLES) & set(launches.counters) else ALL_CYCLES[:1]
        counters = (*missing_of_published(launches.counters), *costs)
        remedy = how_to_collect(counters, method, launches.table)
        raise CounterUnavailableError(
            ", ".join(launches.sources) or "launches",
            f"counters of {_listed(KINDS)} are needed, and it has none of {_listed(lacking)} (of use are "
            f"{', '.join(chosen) or 'none'})",
            f"{remedy}, or name the counters to take: features={','.join([*chosen, 'OTHER'])}",
        )
    return chosen


def all_features(launches: Launches) -> tuple[str, ...]:
    """The counters of a recording but cycles, times and clocks, measured for every launch."""
    units = {name: _column(launches, name).unit for name in _whole(launches)}
    return tuple(name for name, unit in units.items() if unit not in _NOT_FEATURES)


def neutral_features(launches: Launches) -> tuple[str, ...]:
    """The counters of a recording that do not depend on the GPU, measured for every launch."""
    whole = [name for name in _whole(launches) if not _has_twin(name, launches)]
    kinds = {name: _kind(_column(launches, name)) for name in whole}
    memory = "memory" if "memory" in kinds.values() else _BELOW_L1
    return tuple(name for name in whole if kinds[name] in ("work", "size", "divergence", memory))


def _kinds(launches: Launches, names: Iterable[str]) -> set[str]:
    chosen = set(names)
    kinds = {_kind(_column(launches, name)).replace(_BELOW_L1, "memory") for name in chosen}
    # Instructions of threads and of warps tell together how many threads are active.
    return kinds | ({"divergence"} if {"instructions", "thread_instructions"} <= chosen else set())


def _kind(column: CounterColumn) -> str:
    """What a counter says of a launch on any GPU: one of KINDS, its size, memory below L1; "": nothing."""
    if column.name in registry():
        return registry()[column.name].feature
    metric = column.metric or column.name
    if column.unit not in (*PLAIN_COUNT_UNITS, "byte") or any(rollup in metric for rollup in _PER_UNIT):
        return ""
    if metric.startswith(("dram_", "lts_", "l2_", "fbpa_")):
        return _BELOW_L1
    return "work" if column.unit == "inst" and not _MEMORY.search(metric) else "memory"


def _has_twin(name: str, launches: Launches) -> bool:
    """Whether it counts with patched instructions what a hardware counter counts, too."""
    return name.endswith("_sass") and name.removesuffix("_sass") in launches.counters


def _whole(launches: Launches) -> list[str]:
    return [name for name in launches.counters if not launches.table[name].null_count]


def _column(launches: Launches, name: str) -> CounterColumn:
    from assay_sampling.launches.table import counter_columns  # noqa: PLC0415 - Arrow is slow to start

    return next(column for column in counter_columns(launches.table.schema) if column.name == name)


def _refuse_unknown(names: Iterable[str], launches: Launches, method: str) -> None:
    there = launches.counters
    for name in names:
        is_counter = name in registry() or name in simulated_counters() or is_metric(name)
        if not is_counter and name not in there:
            raise ParameterError(
                method,
                f"features: {name[:80]!r} is neither a feature set nor a counter",
                f"there are the sets {', '.join((AUTO, ALL, *FEATURE_SETS))} and the counters of the "
                f"recording: {', '.join(there)}",
            )


def _listed(kinds: Iterable[FeatureKind]) -> str:
    *most, last = kinds
    return f"{', '.join(most)} and {last}" if most else last
