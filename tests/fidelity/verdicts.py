"""Verdicts of selections that have not seen the other GPU, beside the errors there: a confusion table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_sampling.errors import AssayError
from assay_sampling.methods.by_operation import select_operations
from assay_sampling.methods.choosing.recommended import select_recommended
from assay_sampling.methods.registry import select
from assay_sampling.scoring.selection import Selection
from assay_sampling.verdicts.rules import GOAL_ERROR_PERCENT, GOAL_GROUP_ERROR_PERCENT
from assay_sampling.verdicts.verdict import LEVELS, VerdictLevel
from tests.fidelity.gpu_pairs import GpuPair, Source, sources
from tests.fidelity.section import Effort, Section

LEAST_TRUSTED_PERCENT, LEAST_RIGHT_PERCENT, LEAST_WARNED_PERCENT = 60.0, 95.0, 80.0
MOST_ERROR_OF_TRUSTED_PERCENT = 15.0
_COLUMNS = (
    "half", "workload", "pairs", "within: trust", "total only", "do not", "beyond: trust", "total only",
    "do not", "largest error of trusted (%)",
)  # fmt: skip
_ABOUT = (
    "The verdict on selections by every method, budget and kind of weights where they are made, and "
    f"whether they are within {GOAL_ERROR_PERCENT:g} % of the total and {GOAL_GROUP_ERROR_PERCENT:g} % over "
    "kernels and grids (by operation: operators and shapes) on another GPU; `three_gpus` and virtual GPUs "
    "are synthetic, `graph` and `infer` simulated, others measured (`serving`: composed of measured "
    "times). Limits were set on every other workload of the alphabet (setting); bounds, on those between "
    f"(judging): of those within at least {LEAST_TRUSTED_PERCENT:g} % are trusted, of the trusted at least "
    f"{LEAST_RIGHT_PERCENT:g} % are within, of those beyond at least {LEAST_WARNED_PERCENT:g} % 'do not'; "
    "no trusted selection by a method's defaults is off by more than "
    f"{MOST_ERROR_OF_TRUSTED_PERCENT:g} %."
)
_SEEDS = 2
_LEAST_CHANCE = 0.05
_SHORT = ("infer", "virtual solver")


@dataclass(frozen=True)
class Case:
    """A method with parameters, and the number of seeds to try; without a method the recommended one."""

    method: str
    parameters: Mapping[str, Any]
    seeds: int = 1

    @property
    def is_default(self) -> bool:
        return not self.parameters


@dataclass(frozen=True)
class Judged:
    """A verdict, and the errors of its selection on another GPU in percent."""

    workload: str
    case: Case
    level: VerdictLevel
    error_percent: float
    group_error_percent: float

    @property
    def within(self) -> bool:
        return (
            self.error_percent <= GOAL_ERROR_PERCENT and self.group_error_percent <= GOAL_GROUP_ERROR_PERCENT
        )


def cases(effort: Effort) -> list[Case]:
    """Methods with their budgets and weights."""
    if effort is Effort.SHORT:
        return [Case("", {}), Case("stem", {}), Case("pks", {}), Case("balanced", {"speedup": 2.5})]
    found = [Case("", {}), Case("single_iteration", {}), Case("systematic", {})]
    found += [Case(name, {}) for name in ("pks", "sieve", "tbpoint")]
    found += [Case("pks", {"k": k}) for k in (1, 3, 8, 20)]
    found += [Case(name, {"weights": "launches"}) for name in ("pks", "tbpoint")]
    found += [Case("stem", given, _SEEDS) for given in ({}, {"least_samples": 2}, {"weights": "launches"})]
    found += [Case("stratified", given, _SEEDS) for given in ({}, {"weights": "light_time"})]
    for name in ("random", "proportional"):
        found += [Case(name, {} if n is None else {"launches": n}, _SEEDS) for n in (None, 20, 100, 400)]
    found += [Case("balanced", {}, _SEEDS)]
    found += [Case("balanced", {"speedup": each}, _SEEDS) for each in (2.5, 6, 20, 50, 150, 400)]
    return found


def section(effort: Effort) -> Section:
    """The confusion table of each workload and half, and which bounds the judging half misses."""
    known = sources()
    halves = {name: "setting" if index % 2 == 0 else "judging" for index, name in enumerate(known)}
    chosen = (
        known if effort is Effort.FULL else {n: known[n] for n in ("infer", "virtual solver") if n in known}
    )
    found = [each for name, source in chosen.items() for each in judged(name, source, cases(effort))]
    rows = [_row(halves[name], name, [one for one in found if one.workload == name]) for name in chosen]
    missed = trusted_too_far(found)
    for half in ("setting", "judging"):
        of_half = [one for one in found if halves[one.workload] == half]
        if effort is Effort.FULL:
            rows.append(_row(half, "all", of_half))
            missed += missed_bounds(of_half) if half == "judging" else []
    if effort is Effort.SHORT:
        missed += missed_bounds(found, least_trusted=0.0, beyond_chance=True)
    return Section("Verdicts", _ABOUT, _COLUMNS, rows, missed)


def judged(name: str, source: Source, of: Sequence[Case]) -> Iterator[Judged]:
    """The verdict and the errors elsewhere of every case that applies."""
    for pair in source():
        operations = pair.operations()
        target = None
        for case, seed in [(each, seed) for each in of for seed in range(each.seeds)]:
            try:
                made = _made(pair, operations, case, seed)
            except AssayError:
                continue
            if made.labels is None:
                continue
            if target is None:
                target = pair.target(operations, made.evaluation.quantity)
            score = target.score(made, made.weights.elsewhere)
            assert score.part_error_percent is not None
            yield Judged(
                name, case, made.verdict.level, abs(score.signed_error_percent), score.part_error_percent
            )


def _made(pair: GpuPair, operations: Any, case: Case, seed: int) -> Selection:
    if not case.method:
        unit = "launch" if operations is None else "operation"
        return select_recommended(unit, pair.profile, seed).selection
    if operations is not None:
        return select_operations(operations, case.method, case.parameters, seed)
    return select(case.method, pair.profile, case.parameters, seed)


def _row(half: str, workload: str, found: Sequence[Judged]) -> tuple[str, ...]:
    counts = Counter((one.within, one.level) for one in found)
    trusted = [one.error_percent for one in found if one.level == "trust"]
    return (
        half, workload, str(len(found)),
        *(str(counts[within, level]) for within in (True, False) for level in LEVELS),
        f"{max(trusted):.1f}" if trusted else "-",
    )  # fmt: skip


def trusted_too_far(found: Sequence[Judged]) -> list[str]:
    return [
        f"{one.workload}: {one.case.method or 'the recommended method'} was trusted, and is "
        f"{one.error_percent:.1f} % off"
        for one in found
        if one.case.is_default and one.level == "trust" and one.error_percent > MOST_ERROR_OF_TRUSTED_PERCENT
    ]


def missed_bounds(
    found: Sequence[Judged], least_trusted: float = LEAST_TRUSTED_PERCENT, *, beyond_chance: bool = False
) -> list[str]:
    """What is missed; ``beyond_chance``: only where so few of so many have a probability below 5 %, if each
    is kept with that of the bound. The short form has some twenty pairs, of which one is worth 5 %."""
    within = [one for one in found if one.within]
    trusted = [one for one in found if one.level == "trust"]
    beyond = [one for one in found if not one.within]
    shares = (
        ("of those within, trusted", [one.level == "trust" for one in within], least_trusted),
        ("of the trusted, within", [one.within for one in trusted], LEAST_RIGHT_PERCENT),
        ("of those beyond, 'do not'", [one.level == "do_not" for one in beyond], LEAST_WARNED_PERCENT),
    )
    return [
        f"{what}: {100 * sum(kept) / len(kept):.1f} % ({sum(kept)} of {len(kept)}), at least {least:g} %"
        for what, kept, least in shares
        if kept
        and 100 * sum(kept) / len(kept) < least
        and not (beyond_chance and _chance(sum(kept), len(kept), least / 100) >= _LEAST_CHANCE)
    ]


def _chance(kept: int, of: int, probability: float) -> float:
    """The probability that at most so many are kept."""
    return math.fsum(
        math.comb(of, each) * probability**each * (1 - probability) ** (of - each) for each in range(kept + 1)
    )
