"""How many passes over a launch Nsight Compute needs for a set of counters, known without a GPU.

The data and their source are in ``replay_passes.toml`` next to this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources

from assay_sampling.counters.definitions import is_metric, registry
from assay_sampling.counters.own_names import variant_of_metric
from assay_sampling.errors import ParameterError


@dataclass(frozen=True)
class PassCount:
    """``passes`` of a set of counters; ``exact`` is false where only an upper bound is known."""

    passes: int
    exact: bool


@dataclass(frozen=True)
class _CounterSet:
    name: str
    passes: int
    counters: frozenset[str]
    passes_on: dict[str, int] = field(default_factory=dict)

    def passes_for(self, compute_capability: str) -> int:
        return self.passes_on.get(compute_capability, self.passes)


@cache
def _sets() -> tuple[_CounterSet, ...]:
    text = resources.files("assay_sampling.counters").joinpath("replay_passes.toml").read_text()
    return tuple(
        _CounterSet(e["name"], e["passes"], frozenset(e["counters"]), e.get("passes_on", {}))
        for e in tomllib.loads(text)["set"]
    )


def replay_passes(counters: Iterable[str], compute_capability: str = "") -> PassCount:
    """Passes over each launch for these counters, ours or metrics of Nsight Compute; 0 without counters.

    Raises ParameterError for a counter that does not exist. If no measured set contains the counters, the
    bound adds up measured sets that cover them together, and one pass for each counter outside all sets.
    """
    return _passes(frozenset(counters), compute_capability)


@lru_cache(maxsize=1024)
def _passes(counters: frozenset[str], compute_capability: str) -> PassCount:
    table = registry()
    unknown = [name for name in sorted(counters - table.keys()) if not is_metric(name)]
    if unknown:
        raise ParameterError("counter", f"there is no counter {unknown[0]!r}")
    variants = {name: table[name].variant if name in table else variant_of_metric(name) for name in counters}
    patched = "sass" in variants.values()
    hardware = {name for name, variant in variants.items() if variant == "hardware"}
    count = _hardware_passes(hardware, compute_capability)
    return PassCount(count.passes + patched, count.exact)


def _hardware_passes(counters: set[str], compute_capability: str) -> PassCount:
    if not counters:
        return PassCount(0, True)
    fitting = [s.passes_for(compute_capability) for s in _sets() if counters <= s.counters]
    if fitting:
        return PassCount(min(fitting), True)
    passes, rest = 0, set(counters)
    while rest:
        best = max(_sets(), key=lambda s: len(rest & s.counters) / s.passes_for(compute_capability))
        if not rest & best.counters:
            return PassCount(passes + len(rest), False)
        passes += best.passes_for(compute_capability)
        rest -= best.counters
    return PassCount(passes, False)
