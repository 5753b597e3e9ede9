"""Random numbers by counter: the number of launch i is a pure function of a key and i.

So a slice of a run draws the same numbers as the whole run, in any order, on any machine. Hashing is
SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the rest uses only + - * /, which IEEE 754 defines to the
last bit: no logarithm, cosine or exponential of a mathematical library that differs between machines.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_KNOT_LAUNCHES = 2048


def key_of(*parts: object) -> np.uint64:
    """A 64-bit key from texts and numbers."""
    text = "\x1f".join(map(str, parts))
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def bits(key: np.uint64, counters: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 random bits for each counter."""
    mixed = np.asarray(counters).astype(np.uint64) * _GOLDEN + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def uniform(key: np.uint64, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Uniform in [0, 1) for each counter."""
    return (bits(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def lognormal(key: np.uint64, counters: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """Approximately lognormal with median 1 for each counter, never more than 3.5 sigma away.

    The normal is a sum of four uniforms of 16 bits (Irwin-Hall); the exponential is a quotient
    (Pade) raised to the 16th power by squaring.
    """
    drawn = bits(key, counters)
    total = sum((drawn >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4))
    normal = (np.asarray(total).astype(np.float64) - 131_070.0) / 65_536.0 * 1.7320508075688772
    x = normal * (sigma / 32.0)
    result = (1.0 + x) / (1.0 - x)
    for _ in range(4):
        result = result * result
    return np.asarray(result)


def drift(key: np.uint64, launches: NDArray[np.int64]) -> NDArray[np.float64]:
    """A slow walk in [0, 1): straight lines between random knots 2,048 launches apart."""
    knot, step = launches // _KNOT_LAUNCHES, (launches % _KNOT_LAUNCHES) / _KNOT_LAUNCHES
    return uniform(key, knot) * (1.0 - step) + uniform(key, knot + 1) * step
