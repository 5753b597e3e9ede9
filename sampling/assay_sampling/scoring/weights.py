"""Weights by light time: what a representative stands for in the light run, carried to another GPU.

    weight = D_g / sum of the light times of group g's representatives

D_g is the light time of all launches of the group, on the GPU where the selection was made: a ratio
estimator; launches drawn in proportion to light time have weights of their own
(:mod:`assay_sampling.estimation.light_time_draws`). A weight by launches multiplies the misfit of a
representative that is longer or shorter than its group; this one multiplies only how much its *ratio* of
target to source differs. On the light run itself the projection is the total by construction, so nothing is
scored, chosen or allocated there with these weights.

Source: docs/methods/weights.md; Cochran, Sampling Techniques, 3rd edition, section 6.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assay_sampling.counters.definitions import SIMULATED_CYCLES
from assay_sampling.engines.blockwise import counts_by, sums_by
from assay_sampling.errors import MisalignedError, ParameterError, RefusedError
from assay_sampling.estimation.light_time_draws import drawn_weights
from assay_sampling.estimation.sample_design import Drawing
from assay_sampling.launches.in_memory import EXACT_IDENTITY, Launches, sequence_hash
from assay_sampling.launches.profile import Profile
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind

_SIMULATED_TIME = SIMULATED_CYCLES[0]


@dataclass(frozen=True)
class WeightRule:
    """Which weights a selection uses ``here``, on its own profile, and ``elsewhere`` by default."""

    here: WeightKind = "launches"
    elsewhere: WeightKind = "launches"


BY_LAUNCHES = WeightRule()


@dataclass(frozen=True)
class Weighing:
    """The weights by light time of a selection's representatives, shape (r,), or None; ``rule`` says which
    are used where, and ``warnings`` why there are none although there is a light run."""

    rule: WeightRule
    light_time: np.ndarray | None
    warnings: tuple[Note, ...] = ()


def light_time_of(launches: Launches) -> np.ndarray | None:
    """Time of every launch of a light run, shape (n,), in ns; of a simulator's run its active cycles, since
    nothing but the launch latency disturbs them. None for other recordings.

    A recording under a profiler of counters is no light run: its clocks and caches are not those of a free
    run. None too where a launch lacks its duration or its active cycles.
    """
    if launches.metadata.simulated:
        has_time = _SIMULATED_TIME in launches.table.schema.names
        unknown = not has_time or launches.table[_SIMULATED_TIME].null_count
        return None if unknown else launches.floats(_SIMULATED_TIME)
    if launches.metadata.level != "light" or launches.table["duration_ns"].null_count:
        return None
    return launches.floats("duration_ns")


def light_time_of_profile(profile: Profile) -> np.ndarray | None:
    """Light time of every launch of the whole workload, shape (n,): the mean over repeated light runs.

    Raises MisalignedError for a repeat that holds other launches.
    """
    light_time = light_time_of(profile.whole)
    if light_time is None or not profile.repeats:
        return light_time
    return mean_light_time([profile.whole, *profile.repeats])


def mean_light_time(runs: Sequence[Launches]) -> np.ndarray:
    """Mean over light runs of the time of every launch, shape (n,).

    Raises MisalignedError if they do not hold the same launches in the same order, RefusedError for a
    recording that is no light run.
    """
    first = sequence_hash(runs[0], EXACT_IDENTITY)
    total = np.zeros(len(runs[0]))
    for run in runs:
        if len(run) != len(total) or sequence_hash(run, EXACT_IDENTITY) != first:
            raise MisalignedError(
                f"{_source(runs[0])} and {_source(run)}",
                "they are to be repeats of one light run, and do not hold the same launches",
                "give repeats of the same command, input and seeds on one GPU",
            )
        time = light_time_of(run)
        if time is None:
            raise RefusedError(
                _source(run), "it is not a light run with the time of every launch", "record it again"
            )
        total += time
    mean: np.ndarray = total / len(runs)
    return mean


def light_time_weights(
    light_time: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    *,
    named: Callable[[int], str] = "the launch in row {}".format,
) -> np.ndarray:
    """Weight of each representative: light time of its group / light time of the group's representatives.

    Args:
        light_time: of every launch, shape (n,).
        labels: group of every launch, shape (n,), 0-based.
        rows: rows of the representatives, shape (r,); the group of each is ``labels[rows]``.
        named: the name of a row in the refusal.

    Raises RefusedError for a representative without positive light time: it has no ratio to carry.
    """
    of_representatives = light_time[rows]
    without = ~(of_representatives > 0)
    if without.any():
        raise RefusedError(
            "selection",
            f"{int(without.sum()):,} of {len(rows):,} representatives have no positive light time, the first "
            f"{named(int(rows[np.argmax(without)]))}, so they have no weight by light time",
            "use weights=launches, another seed, or a light run that measures every launch",
        )
    groups = labels[rows]
    of_groups = sums_by(labels, light_time, 1)
    of_chosen = np.bincount(groups, of_representatives, len(of_groups))
    weights: np.ndarray = of_groups[groups] / of_chosen[groups]
    return weights


def launch_weights(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weight of each representative by launches, shape (r,): launches of its group / representatives."""
    groups = labels[rows]
    counts = counts_by(labels)
    weights: np.ndarray = counts[groups] / np.bincount(groups, minlength=len(counts))[groups]
    return weights


def weigh(
    profile: Profile,
    labels: np.ndarray,
    rows: np.ndarray,
    *,
    here: WeightKind,
    requested_kind: WeightKind | None,
    light_time: np.ndarray | None = None,
    drawing: Drawing = "rule",
) -> Weighing:
    """Both sets of weights for a selection, and which is used where.

    Args:
        profile: the selection's; its light runs give the light time.
        labels, rows: as in :func:`light_time_weights`.
        here: what the method's own weights count.
        requested_kind: the parameter ``weights``; None takes light time where there is a light run.
        light_time: weights of a method that computes its own, shape (r,).
        drawing: how the representatives were drawn; in proportion to light time each has a weight of its own.

    Raises RefusedError if light time is asked for and there is none, ParameterError for weights that the
    method does not have.
    """
    if requested_kind not in (None, here, "light_time"):
        others = "" if here == "light_time" else " or light_time"
        raise ParameterError(
            "weights", f"this method has no weights by {requested_kind}", f"use {here}{others}"
        )
    if light_time is not None:
        return Weighing(_rule(here, requested_kind), light_time)
    whole = profile.whole
    time = light_time_of_profile(profile)
    if time is None:
        if requested_kind == "light_time":
            raise no_light_run(profile)
        return Weighing(WeightRule(here, here), None)
    if drawing == "light_time":
        return Weighing(_rule(here, requested_kind), drawn_weights(time, labels, rows))
    try:
        weights = light_time_weights(time, labels, rows, named=lambda row: _launch_at(whole, row))
    except RefusedError:
        if requested_kind == "light_time":
            raise
        first = int(rows[np.argmax(~(time[rows] > 0))])
        note = make_note(
            "no_light_time_weights",
            representatives=int((~(time[rows] > 0)).sum()),
            of=len(rows),
            process=int(whole.table["process"][first].as_py()),
            launch=int(whole.table["launch"][first].as_py()),
        )
        return Weighing(WeightRule(here, here), None, (note,))
    return Weighing(_rule(here, requested_kind), weights)


def no_light_run(profile: Profile) -> RefusedError:
    """The refusal of ``weights=light_time`` where the profile has no light run."""
    return RefusedError(
        _source(profile.whole),
        "weights=light_time needs a light run, and there is none",
        "give the light recording too (--light), or leave weights out",
    )


def weights_of_kind(
    kind: WeightKind, rule: WeightRule, own: np.ndarray, light_time: np.ndarray | None
) -> np.ndarray:
    """The weights of a selection that are of ``kind``, shape (r,); raises ParameterError if it has none."""
    if kind == rule.here:
        return own
    if kind == "light_time" and light_time is not None:
        return light_time
    if kind == "light_time":
        raise ParameterError(
            "weights",
            "the selection has no weights by light time: it was made without a light run or by an earlier "
            "release, or a representative has no time in it",
            f"use {rule.here}, or select again where every launch has a light time",
        )
    others = " or light_time" if "light_time" in kinds_of(rule, light_time)[1:] else ""
    raise ParameterError("weights", f"the selection has no weights by {kind}", f"use {rule.here}{others}")


def kinds_of(rule: WeightRule, light_time: np.ndarray | None) -> tuple[WeightKind, ...]:
    """The kinds of weights that a selection has, its own first."""
    return (rule.here,) if light_time is None or rule.here == "light_time" else (rule.here, "light_time")


def _rule(here: WeightKind, elsewhere: WeightKind | None) -> WeightRule:
    return WeightRule(here, "light_time" if elsewhere is None else elsewhere)


def _source(launches: Launches) -> str:
    return ", ".join(launches.sources) or "launches"


def _launch_at(launches: Launches, row: int) -> str:
    process, launch = launches.table["process"][row].as_py(), launches.table["launch"][row].as_py()
    return f"launch {launch} of process {process}"
