"""A million distinct kernels, most of them launched once: no method may loop over them in Python."""

from __future__ import annotations

import time

import numpy as np
import pytest

from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.sieve.sampler import SieveParameters, sieve
from assay_sampling.methods.stem.sampler import StemParameters, draw, stem

KERNELS = 1_000_000


@pytest.fixture(scope="module")
def launches() -> tuple[np.ndarray, np.ndarray, float]:
    """Kernel ids, instructions or durations, and the CPU seconds of one sort of both."""
    rng = np.random.default_rng(0)
    identifiers = rng.permutation(2 * KERNELS)[:KERNELS].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # Every fifth is launched twice, half of these with ten times the work.
    kernel = np.concatenate([identifiers, identifiers[::5]])
    values = np.concatenate([np.full(KERNELS, 100.0), np.where(np.arange(KERNELS // 5) % 2, 110.0, 1000.0)])
    began = time.process_time()
    np.lexsort((values, kernel))
    return kernel, values, time.process_time() - began


def test_sieve_of_a_million_kernels(launches: tuple[np.ndarray, np.ndarray, float]) -> None:
    from tests.support.sampling.made_launches import made_launches  # noqa: PLC0415

    kernel, executed, sort_seconds = launches
    shapes = made_launches(["k"] * len(kernel))
    began = time.process_time()
    values = kernel_values(kernel, executed)
    chosen = sieve(
        shapes, values, SieveParameters(representative="first_dominant", dominant_key="block_threads"), 0
    )
    seconds = time.process_time() - began
    twice = KERNELS // 5
    assert np.bincount(chosen.strata.tier[1:]).sum() == KERNELS + twice // 2 - 1
    assert [t["kernels"] for t in chosen.strata.tiers(values.kernel_start)] == [
        KERNELS - twice,
        twice // 2,
        twice // 2,
    ]
    assert (chosen.weights * executed[chosen.rows]).sum() == pytest.approx(executed.sum(), rel=1e-12)
    assert seconds < 50 * sort_seconds  # ten is usual; a loop over kernels takes some hundred


def test_stem_of_a_million_kernels(launches: tuple[np.ndarray, np.ndarray, float]) -> None:
    kernel, duration, sort_seconds = launches
    began = time.process_time()
    values = kernel_values(kernel, duration)
    clusters = stem(values, StemParameters())
    rows, groups = draw(values.groups(clusters.start), clusters, 0)
    seconds = time.process_time() - began
    projected = (clusters.moments.launches[groups] / clusters.sampled[groups] * duration[rows]).sum()
    assert projected == pytest.approx(duration.sum(), rel=0.05)
    assert seconds < 50 * sort_seconds
