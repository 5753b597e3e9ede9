"""The seam of selection methods: what a sampler is, and what all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

from assay_sampling.counters import default_cost_counter
from assay_sampling.errors import RefusedError
from assay_sampling.evaluation import Cost, cost_of, evaluate, instructions_of
from assay_sampling.intervals import NO_INTERVAL_FIXED_RULE, Interval
from assay_sampling.launches import Launches
from assay_sampling.profile import Profile
from assay_sampling.selection import ProfileSummary, Representatives, Selection

_LARGEST_WHOLE = 1 << 53


class Parameters(BaseModel):
    """Base of the parameters of built-in methods: typed, bounded, and no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _countable(cls, value: Any) -> Any:
        """Whole numbers become int64 in NumPy, and some float64."""
        if isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
            raise PydanticCustomError("too_large", "Input should be at most 2^53")
        return value


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
    executed = instructions_of(launches)
    if executed is None:
        return None
    share: np.ndarray = np.bincount(labels, executed, groups) / executed.sum()
    return share


def grouped_selection(
    profile: Profile,
    method: str,
    parameters: BaseModel,
    seed: int,
    *,
    labels: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    cost: Cost | None = None,
    interval: Interval | None = None,
    interval_reason: str = NO_INTERVAL_FIXED_RULE,
    extra: Mapping[str, Any] | None = None,
) -> Selection:
    """The selection of any method that puts every launch of the whole workload in one group.

    Args:
        labels: group of every launch, shape (n,), 0..g-1, none empty.
        rows: rows of the representatives, shape (r,); the group of each is ``labels[rows]``.
        weights: theirs, shape (r,).
        cost: what is scored; None takes :func:`whole_cost`.

    Raises what :func:`whole_cost` and :func:`assay_sampling.evaluation.evaluate` raise.
    """
    launches = profile.whole
    groups = labels[rows]
    group_launches = np.bincount(labels)
    return Selection(
        method=method,
        parameters=parameters.model_dump(mode="json"),
        seed=seed,
        profile=ProfileSummary.of(launches),
        representatives=Representatives.at(launches, rows, groups, weights),
        group_launches=group_launches,
        evaluation=evaluate(
            whole_cost(profile) if cost is None else cost,
            rows,
            weights,
            labels=labels,
            representative_groups=groups,
            instructions=instructions_of(launches),
        ),
        instruction_share=instruction_share(launches, labels, len(group_launches)),
        labels=labels,
        interval=interval,
        interval_reason=interval_reason,
        extra=extra or {},
    )


def one_group_selection(
    profile: Profile, method: str, parameters: BaseModel, seed: int, rows: np.ndarray
) -> Selection:
    """Launches at ``rows``, shape (m,), ascending, that stand for all n launches: weight n / m each."""
    total = len(profile.whole)
    weights = np.full(len(rows), total / len(rows))
    labels = np.zeros(total, np.intp)
    return grouped_selection(profile, method, parameters, seed, labels=labels, rows=rows, weights=weights)
