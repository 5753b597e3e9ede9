"""Made ratios of cost there to light time here: what an interval on another GPU must and cannot hold.

Synthetic, seeded. Kernels last a different time (lognormal, 1.0) and scale within a factor of two; their
launches spread in size (lognormal, 0.8 unless it says otherwise). Unlike ratios spread by 10 % besides, and
come as they are, and cut off at f times the kernel's ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

LAUNCHES = 8_000
_ROUNDS = 200

# From a source of randomness, sizes and kernels: the launches' ratios to that of their kernel.
_Ratios = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


def made_ratios(
    kernels: int, scales_at_most: float, first_seed: int = 0
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Name, light time, cost there and kernel of every launch, of each population.

    Those that were cut off scale at most ``scales_at_most`` times as their kernel does. Another
    ``first_seed`` makes others of the same kinds.
    """
    for seed, (name, ratios) in enumerate(_ALIKE.items(), first_seed):
        yield (name, *population(seed, kernels, ratios))
    for seed, (name, ratios) in enumerate(_UNLIKE.items(), first_seed + 100):
        time, cost, kernel = population(seed, kernels, _spread_by(ratios))
        yield name, time, cost, kernel
        if over(time, cost, kernel, scales_at_most).any():
            yield f"{name}, cut off", time, _cut_off(time, cost, kernel, scales_at_most), kernel


def over(time: np.ndarray, cost: np.ndarray, kernel: np.ndarray, scales_at_most: float) -> np.ndarray:
    """Which launches scale more than so many times as their kernel does, shape (n,)."""
    scale = np.bincount(kernel, cost) / np.bincount(kernel, time)
    found: np.ndarray = cost > scales_at_most * scale[kernel] * time * (1 + 1e-9)
    return found


def population(seed: int, kernels: int, ratios: _Ratios) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Light time, cost there and kernel of every launch; ``ratios`` of them to that of their kernel."""
    rng = np.random.default_rng([24, seed])
    kernel = rng.integers(0, kernels, LAUNCHES)
    time = np.exp(rng.normal(3, 1, kernels))[kernel] * np.exp(rng.normal(0, 0.8, LAUNCHES)) + 0.5
    if ratios is _on_heavy_times:
        time = (1 + rng.pareto(1.2, LAUNCHES)) * 10
    scale = 2 ** rng.uniform(-0.5, 0.5, kernels)
    return time, time * scale[kernel] * ratios(rng, time, kernel), kernel


def _cut_off(time: np.ndarray, cost: np.ndarray, kernel: np.ndarray, scales_at_most: float) -> np.ndarray:
    """Costs of at most so many times the kernel's ratio; cutting lowers that, so it is repeated."""
    found = cost
    for _ in range(_ROUNDS):
        if not over(time, found, kernel, scales_at_most).any():
            break
        scale = np.bincount(kernel, found) / np.bincount(kernel, time)
        found = np.minimum(found, scales_at_most * scale[kernel] * time)
    return found


def _lognormal(spread: float) -> _Ratios:
    return lambda rng, time, _: np.exp(rng.normal(0, spread, len(time)))


def _spread_by(ratios: _Ratios) -> _Ratios:
    def found(rng: np.random.Generator, time: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        spread: np.ndarray = ratios(rng, time, kernel) * np.exp(rng.normal(0, 0.1, len(time)))
        return spread

    return found


def _some(share: float, times: float) -> _Ratios:
    return lambda rng, time, _: np.where(rng.random(len(time)) < share, times, 1.0)


def _pareto(rng: np.random.Generator, time: np.ndarray, _: np.ndarray) -> np.ndarray:
    return 1 + rng.pareto(1.5, len(time))


def _longest(_: np.random.Generator, time: np.ndarray, __: np.ndarray) -> np.ndarray:
    return np.where(time >= np.quantile(time, 0.98), 4.0, 1.0)


def _on_heavy_times(rng: np.random.Generator, time: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.exp(rng.normal(0, 0.15, len(time)))


def _unequal(rng: np.random.Generator, time: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return np.exp(rng.normal(0, 1, len(time)) * np.array([0.02, 0.3, 0.05, 0.1, 0.2])[kernel % 5])


def _shorter_half(_: np.random.Generator, time: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    middle = np.array([np.median(time[kernel == each]) for each in range(int(kernel.max()) + 1)])
    return np.where(time < middle[kernel], 2.0, 1.0)


_ALIKE: dict[str, _Ratios] = {
    "spread of 5 %": _lognormal(0.05),
    "spread of 15 %": _lognormal(0.15),
    "spread of 30 %": _lognormal(0.3),
    "15 %, Pareto durations of index 1.2": _on_heavy_times,
    "gamma, 20 %": lambda rng, time, _: rng.gamma(25, 1 / 25, len(time)),
    "another spread for each kernel, 2 to 30 %": _unequal,
}
_UNLIKE: dict[str, _Ratios] = {
    "0.3 % of launches x 30": _some(0.003, 30),
    "2 % of launches x 10": _some(0.02, 10),
    "Pareto 1.5": _pareto,
    "longest 2 % x 4": _longest,
    "half of the launches x 2": _some(0.5, 2),
    "the shorter half of a kernel's launches x 2": _shorter_half,
}
