"""The period of a workload that repeats: iterations found by exact repetition of launch signatures.

A *period* of p launches over rows [start, stop) means that every launch has the signature of the launch p
before it. Setup before the first and work after the last iteration are unrestricted.

Memory: 60 bytes a launch of at most 2 million launches, besides the signatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import distinct_signatures

# Repetitions within a stretch this long determine the period of the rest too.
_SEARCHED_LAUNCHES = 1 << 21
_EVERY_LAG_UP_TO = 2_048
_LAGS_TRIED = 64
_LEAST_ITERATIONS = 2
# A smaller period is preferred if it covers this share of what the best one covers.
_NEARLY_ALL = 0.95
_LEAST_COVERED = 0.5


@dataclass(frozen=True)
class Period:
    """``launches`` of one iteration; rows [start, stop) repeat it, at least twice."""

    launches: int
    start: int
    stop: int

    @property
    def iterations(self) -> int:
        """Whole iterations."""
        return (self.stop - self.start) // self.launches


def find_period(launches: Launches) -> Period | None:
    """The smallest period that repeats over most of the workload; None if no period covers half of it.

    Launches are compared by their signatures (kernel, shape, NVTX path, operator).
    """
    if len(launches) < _LEAST_ITERATIONS:
        return None
    return period_of(distinct_signatures(launches).inverse)


def period_of(codes: np.ndarray) -> Period | None:
    """The smallest period of a sequence of codes, shape (n,); None as in :func:`find_period`."""
    periods = [_longest(codes, lag) for lag in _candidate_lags(codes)]
    covered = max(
        (each.stop - each.start for each in periods if each.iterations >= _LEAST_ITERATIONS), default=0
    )
    if covered < _LEAST_COVERED * len(codes):
        return None
    return min(
        (
            each
            for each in periods
            if each.iterations >= _LEAST_ITERATIONS and each.stop - each.start >= _NEARLY_ALL * covered
        ),
        key=lambda each: each.launches,
    )


def _candidate_lags(codes: np.ndarray) -> Iterator[int]:
    """Lags at which many launches have the signature of the launch ``lag`` before."""
    offset = max(0, (len(codes) - _SEARCHED_LAUNCHES) // 2)
    searched = codes[offset : offset + _SEARCHED_LAUNCHES]
    most = len(searched) // _LEAST_ITERATIONS
    if most <= _EVERY_LAG_UP_TO:
        yield from range(1, most + 1)
        return
    agreements = _agreements(searched)[1 : most + 1]
    best = np.argpartition(agreements, -_LAGS_TRIED)[-_LAGS_TRIED:]
    yield from (1 + np.sort(best)).tolist()


def _agreements(codes: np.ndarray) -> np.ndarray:
    """About how many launches agree with the one ``lag`` before, for every lag, shape (n,).

    Each signature gets a random sign: the autocorrelation counts agreements, and differences cancel.
    """
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), int(codes.max()) + 1)[codes]
    length = 1 << (2 * len(codes) - 1).bit_length()
    spectrum = np.fft.rfft(signs, length)
    agreements: np.ndarray = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, length)[: len(codes)]
    return agreements


def _longest(codes: np.ndarray, lag: int) -> Period:
    """The longest stretch that repeats with this lag."""
    breaks = np.flatnonzero(codes[lag:] != codes[:-lag])
    edges = np.concatenate([[-1], breaks, [len(codes) - lag]])
    gaps = np.diff(edges)
    index = int(gaps.argmax())
    start = int(edges[index]) + 1
    return Period(lag, start, start + int(gaps[index]) - 1 + lag)
