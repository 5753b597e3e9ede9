"""The closed form of TBPoint's warp model, against the Markov chain that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError
from assay_sampling.projection.tbpoint.model import instructions_per_cycle, ipc_variation


def transition_matrix(p: float, stall_cycles: list[float]) -> np.ndarray:
    """Equation 3 of the paper, entry by entry; warp 1 is the most significant bit, 1 is runnable."""
    warps = len(stall_cycles)
    matrix = np.ones((2**warps, 2**warps))
    for i in range(2**warps):
        for j in range(2**warps):
            for x, length in enumerate(stall_cycles):
                now, then = i >> (warps - 1 - x) & 1, j >> (warps - 1 - x) & 1
                if now == 1:
                    matrix[i, j] *= p if then == 0 else 1 - p
                else:
                    matrix[i, j] *= 1 / length if then == 1 else 1 - 1 / length
    return matrix


def stationary(matrix: np.ndarray) -> np.ndarray:
    """The stationary distribution by the elimination of Grassmann, Taksar and Heyman: no subtractions."""
    work = matrix.copy()
    states = len(work)
    for last in range(states - 1, 0, -1):
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    found = np.ones(states)
    for state in range(1, states):
        found[state] = found[:state] @ work[:state, state]
    return found / found.sum()


@pytest.mark.parametrize("warps", range(1, 9))
@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
def test_the_closed_form_is_the_chain_s(warps: int, p: float) -> None:
    lengths = np.random.default_rng(warps).uniform(2, 400, warps)
    matrix = transition_matrix(p, lengths.tolist())
    assert matrix.sum(axis=1) == pytest.approx(1, abs=1e-12)
    expected = 1 - stationary(matrix)[0]
    assert instructions_per_cycle(p, lengths) == pytest.approx(expected, abs=1e-12)


def test_the_chain_gets_there_from_all_warps_runnable() -> None:
    lengths = [3.0, 5.0, 9.0]
    state = np.zeros(8)
    state[-1] = 1.0
    matrix = transition_matrix(0.2, lengths)
    for _ in range(2000):
        state = state @ matrix
    assert instructions_per_cycle(0.2, np.array(lengths)) == pytest.approx(1 - state[0], abs=1e-12)


def test_by_hand() -> None:
    # One warp: runnable for 1 / (1 + pM) of the time. Two of them: both stalled is (pM / (1 + pM))^2.
    assert instructions_per_cycle(0.1, np.array([100.0])) == pytest.approx(1 / 11, rel=1e-14)
    assert instructions_per_cycle(0.1, np.array([100.0, 100.0])) == pytest.approx(1 - (10 / 11) ** 2)
    assert instructions_per_cycle(0.0, np.array([100.0])) == 1.0
    assert instructions_per_cycle(1.0, np.array([1.0])) == 0.5


# The text of the paper names one setting of its figure 5 (p 0.05, M 100, N 4) and one example (10 % memory
# instructions of 400 cycles); the figure itself is not in it, so these span both and the warps of an SM.
@pytest.mark.parametrize("p", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("mean", [100.0, 200.0, 400.0])
@pytest.mark.parametrize("warps", [4, 8, 16, 48])
def test_lemma_4_1(p: float, mean: float, warps: int) -> None:
    variation = ipc_variation(p, mean, warps, seed=1)
    assert variation.samples.shape == (10_000,)
    assert variation.share_within(0.1) > 0.95


def test_the_lemma_s_share_of_the_paper_s_own_example() -> None:
    variation = ipc_variation(0.05, 100, 4, seed=0)
    assert variation.mean == pytest.approx(0.5180, abs=5e-4)
    assert variation.share_within(0.1) == 1.0
    assert 0.9 < variation.share_within(0.03) < 0.9999


def test_one_warp_alone_varies_as_its_stalls_do() -> None:
    # With one warp and long stalls the IPC is about 1 / (p M): 95 % of M within 10 % is 95 % of the IPC.
    variation = ipc_variation(0.5, 1000, 1, samples=50_000, seed=3)
    assert variation.share_within(0.1) == pytest.approx(0.95, abs=0.01)


@given(
    st.floats(0, 1),
    st.lists(st.floats(1, 1e6), min_size=1, max_size=40),
)
@settings(max_examples=100, deadline=None)
def test_what_holds_for_every_ipc(p: float, lengths: list[float]) -> None:
    ipc = float(instructions_per_cycle(p, np.array(lengths)))
    assert 0 <= ipc <= 1
    # One more warp never lowers it, and longer stalls never raise it.
    assert instructions_per_cycle(p, np.array([*lengths, 7.0])) >= ipc - 1e-15
    assert instructions_per_cycle(p, np.array(lengths) * 2) <= ipc + 1e-15


def test_blocks_of_samples_are_drawn_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ipc_variation(0.1, 50, 3, samples=100, seed=4).samples
    monkeypatch.setattr("assay_sampling.projection.tbpoint.model._BLOCK_VALUES", 21)
    assert np.array_equal(ipc_variation(0.1, 50, 3, samples=100, seed=4).samples, whole)


def test_stalls_last_at_least_a_cycle() -> None:
    assert ipc_variation(0.5, 1, 2, samples=1000).samples.max() <= 1 - (1 / 3) ** 2 + 1e-12


@pytest.mark.parametrize(
    ("p", "mean", "warps", "samples"),
    [(-0.1, 10, 1, 1), (1.1, 10, 1, 1), (float("nan"), 10, 1, 1), (0.5, 0.5, 1, 1), (0.5, float("inf"), 1, 1),
     (0.5, 10, 0, 1), (0.5, 10, 1, 0)],
)  # fmt: skip
def test_what_the_model_refuses(p: float, mean: float, warps: int, samples: int) -> None:
    with pytest.raises(ParameterError, match="warp model"):
        ipc_variation(p, mean, warps, samples=samples)


def test_a_stall_below_one_cycle_is_refused() -> None:
    with pytest.raises(ParameterError, match="less than one cycle"):
        instructions_per_cycle(0.5, np.array([1.0, float("nan")]))
