"""The seam of selection methods: what a sampler is, and what all of them share."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict

from assay_sampling.counters import default_cost_counter
from assay_sampling.errors import RefusedError
from assay_sampling.evaluation import Cost, cost_of, evaluate
from assay_sampling.launches import Launches
from assay_sampling.profile import Profile
from assay_sampling.selection import ProfileSummary, Representatives, Selection


class Parameters(BaseModel):
    """Base of the parameters of built-in methods: typed, bounded, and no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@runtime_checkable
class Sampler(Protocol):
    """A selection method. Other packages add theirs by an entry point of the group "assay.samplers"
    that names an object with these members.

    ``name`` is what people type; ``parameters`` a pydantic model whose fields all have defaults.
    """

    name: str
    parameters: type[BaseModel]

    def select(self, profile: Profile, parameters: Any, *, seed: int) -> Selection:
        """Select on a profile; ``parameters`` is an instance of :attr:`parameters`.

        The same profile, parameters and seed give the same selection. Raises RefusedError where the
        method does not apply.
        """
        ...


def source_of(launches: Launches) -> str:
    """What errors call these launches: their files or runs."""
    return ", ".join(launches.sources) or "launches"


def whole_cost(profile: Profile) -> Cost:
    """The cost of every launch of the whole workload: nanoseconds of a light run, cycles of a detailed
    one (nanoseconds where it has none).

    Raises RefusedError for no launches, CounterUnavailableError where a launch lacks its cost.
    """
    launches = profile.whole
    if len(launches) == 0:
        raise RefusedError(source_of(launches), "it holds no launches")
    cycles = default_cost_counter(launches.table) if profile.light is None else None
    return cost_of(launches, cycles or "duration_ns")


def instruction_share(launches: Launches, labels: np.ndarray, groups: int) -> np.ndarray | None:
    """Share of all instructions that each group executes, shape (groups,); ``labels`` has shape (n,).

    None where instructions were not measured for all launches.
    """
    name = "instructions"
    if name not in launches.table.schema.names or launches.table[name].null_count:
        return None
    executed = launches.column(name)
    total = float(executed.sum())
    if not (np.isfinite(total) and total > 0):
        return None
    share: np.ndarray = np.bincount(labels, executed, groups) / total
    return share


def one_group_selection(
    profile: Profile, method: str, parameters: BaseModel, seed: int, rows: np.ndarray
) -> Selection:
    """Launches at ``rows``, shape (m,), ascending, that stand for all n launches: weight n / m each."""
    launches = profile.whole
    cost = whole_cost(profile)
    labels = np.zeros(len(launches), np.intp)
    groups = np.zeros(len(rows), np.intp)
    weights = np.full(len(rows), len(launches) / len(rows))
    return Selection(
        method=method,
        parameters=parameters.model_dump(mode="json"),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, rows, groups, weights),
        group_launches=np.array([len(launches)]),
        evaluation=evaluate(cost, rows, weights, labels=labels, representative_groups=groups),
        instruction_share=instruction_share(launches, labels, 1),
        labels=labels,
    )
