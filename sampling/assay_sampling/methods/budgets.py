"""The parameter by which each method simulates more or less, and its value for a speedup.

A sampler says so by an optional attribute ``budget``; methods of other packages may. Methods are compared at
one speedup by it (docs/methods/comparing.md, "On other GPUs").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from assay_sampling.errors import AssayError

# Far below what counts as equal, so that a draw's luck does not decide who is.
_NEAR_ENOUGH = 1.03
_MOST_STEPS = 24
_STRIDE = 4.0


@dataclass(frozen=True)
class Budget:
    """A parameter that decides how much a method simulates.

    Its values lie between ``least`` and ``most`` (None: the number of launches); ``start`` is where the
    search begins (None: launches / speedup); ``faster`` says whether larger or smaller values leave more
    speedup; ``whole`` that it is a whole number. With ``per_group`` more launches of each group are taken
    where the most groups still leave more speedup than wanted (the parameter ``launches_per_group``).
    """

    parameter: str
    least: float
    most: float | None
    faster: Literal["larger", "smaller"]
    start: float | None = None
    whole: bool = False
    per_group: bool = False

    def value(self, number: float) -> float | int:
        """As the method takes it: whole, or rounded to four digits that people can type."""
        return round(number) if self.whole else float(f"{number:.4g}")


LAUNCHES = Budget("launches", 1, None, "smaller", whole=True)
LAUNCHES_PER_GROUP = Budget("launches_per_group", 1, None, "smaller", start=2, whole=True)


def budget_of(sampler: Any) -> Budget | None:
    """The budget of a sampler; None if it has none."""
    budget = getattr(sampler, "budget", None)
    return budget if isinstance(budget, Budget) else None


def value_for_speedup(
    budget: Budget, speedup: float, launches: int, speedup_at: Callable[[float | int], float]
) -> float | int:
    """The value of a budget whose speedup is nearest to the one wanted.

    Args:
        budget: of the method.
        speedup: that is wanted.
        launches: of the workload.
        speedup_at: the speedup that a value leaves; values that it refuses with an AssayError are left out.

    Strides from the start until the speedup lies between two values, then halves between them. Raises what
    ``speedup_at`` raises if no value is left.
    """
    search = _Search(budget, speedup, launches, speedup_at)
    return search.run()


class _Search:
    def __init__(
        self, budget: Budget, speedup: float, launches: int, speedup_at: Callable[[float | int], float]
    ) -> None:
        self.budget = budget
        self.target_speedup = speedup
        self.speedup_at = speedup_at
        self.most = float(launches if budget.most is None else budget.most)
        self.least = min(budget.least, self.most)
        first = launches / speedup if budget.start is None else budget.start
        self.start = min(max(first, self.least), self.most)
        self.tried: dict[float | int, float] = {}
        self.error: AssayError | None = None

    def run(self) -> float | int:
        low = high = None  # the largest number tried that is too small, the smallest that is too large
        number = self.start
        for _ in range(_MOST_STEPS):
            value = self.budget.value(number)
            if value in self.tried:
                break
            speedup = self._speedup(value)
            if speedup is None or 1 / _NEAR_ENOUGH <= speedup / self.target_speedup <= _NEAR_ENOUGH:
                break
            too_large = (speedup > self.target_speedup) == (self.budget.faster == "larger")
            low, high = (low, number) if too_large else (number, high)
            if low is not None and high is not None:
                number = math.sqrt(low * high)
            else:
                number = number / _STRIDE if too_large else number * _STRIDE
            number = min(max(number, self.least), self.most)
        if not self.tried:
            assert self.error is not None
            raise self.error
        return min(self.tried, key=lambda value: abs(math.log(self.tried[value] / self.target_speedup)))

    def _speedup(self, value: float | int) -> float | None:
        try:
            self.tried[value] = speedup = self.speedup_at(value)
        except AssayError as error:
            self.error = error
            return None
        return speedup
