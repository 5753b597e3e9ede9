"""Warm against cold runs, launch by launch: recordings, and Accel-Sim's own output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.cold_start.comparison import compare_outputs, compare_recordings
from assay_sampling.errors import CounterUnavailableError, MisalignedError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition, TableMetadata, origin_of
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import CYCLES, made_launches


def launches(
    cycles: Sequence[float], instructions: Sequence[float] = (100, 200, 300, 400), grid: Sequence[int] = ()
) -> Launches:
    columns = {"grid_x": list(grid)} if grid else {}
    return counted_launches({"instructions": instructions, "cycles_gpc_avg": cycles}, **columns)


def test_differences_shares_and_total_by_hand() -> None:
    # IPC falls by 0, 5, 20 and rises by 25 %.
    document = compare_recordings(launches([100, 95, 80, 100]), launches([100, 100, 100, 80])).to_dict()
    np.testing.assert_allclose(
        document["per_launch"]["ipc_difference_percent"], [0.0, -5.0, -20.0, 25.0], atol=1e-12
    )
    assert document["weighted_shares_percent"] == pytest.approx(
        {"5": 90.0, "10": 70.0, "15": 70.0, "20": 70.0}
    )
    assert document["weighted_mean_ipc_difference_percent"] == pytest.approx(0.2 * -5 + 0.3 * -20 + 0.4 * 25)
    # All instructions in 375 and in 380 cycles.
    assert document["weighted_total_ipc_difference_percent"] == pytest.approx(100 * (375 / 380 - 1))
    assert (document["launches"], document["quantity"]) == (4, "cycles_gpc_avg")


def test_ipc_counts_what_each_run_executed() -> None:
    found = compare_recordings(launches([100] * 4), launches([200] * 4, (200, 400, 600, 800)))
    assert found.differences_percent.tolist() == [0.0] * 4


def test_launches_are_aligned_and_not_joined_by_position() -> None:
    warm = launches([10.0] * 200, [1.0] * 200, range(1, 201))
    flushed = launches([20.0] * 199, [1.0] * 199, [*range(1, 101), *range(102, 201)])
    found = compare_recordings(warm, flushed)
    assert len(found.launch) == 199
    assert 100 not in found.launch.tolist()
    assert found.unmatched == (1, 0)
    with pytest.raises(MisalignedError, match="99 %"):
        compare_recordings(warm, launches([20.0] * 150, [1.0] * 150, range(1, 151)))


def with_condition(cache: str, *, synthetic: bool = False) -> Launches:
    return made_launches(
        ["kernel"],
        counters=[CYCLES],
        metadata=TableMetadata(
            "detailed", condition=Condition(cache=cache), origin=origin_of(synthetic=synthetic)
        ),
        cycles_gpc_avg=[1.0],
    )


def test_runs_that_are_not_what_they_are_given_as_are_refused() -> None:
    with pytest.raises(RefusedError, match="given as the warm run"):
        compare_recordings(with_condition("all"), with_condition("all"))
    with pytest.raises(RefusedError, match="given as the flushed run"):
        compare_recordings(with_condition("none"), with_condition("none"))
    with pytest.raises(RefusedError, match="synthetic"):
        compare_recordings(with_condition("none"), with_condition("all", synthetic=True))
    with pytest.raises(CounterUnavailableError, match="instructions"):
        compare_recordings(with_condition("none"), with_condition("all"))
    with pytest.raises(ParameterError, match="no cost"):
        compare_recordings(launches([1.0] * 4), launches([1.0] * 4), "joules")


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("warm", "cold", "launch", "cycles"),
    [
        ("reuse.base", "reuse.only3", 3, (16_541, 19_263)),
        ("reuse.base", "reuse.memwarm3", 3, (16_541, 16_587)),
        ("stencil.base", "stencil.only2", 2, (8_919, 9_325)),
        ("stencil.base", "stencil.memwarm2", 2, (8_919, 8_919)),
    ],
)
def test_simulated_launches_take_the_cycles_that_the_spec_names(
    shared_data: Path, warm: str, cold: str, launch: int, cycles: tuple[int, int]
) -> None:
    """Joined by traced launch: in its own simulation each is the first or the second."""
    folder = shared_data / "accel_sim"
    found = compare_outputs(folder / f"{warm}.out.gz", folder / f"{cold}.out.gz")
    assert found.launch.tolist() == [launch]
    assert (found.warm_cost[0], found.flushed_cost[0]) == cycles
    assert found.differences_percent[0] == pytest.approx(100 * (cycles[0] / cycles[1] - 1))
    assert found.notes == ()
    active = compare_outputs(folder / f"{warm}.out.gz", folder / f"{cold}.out.gz", active_cycles=True)
    assert (active.warm_cost[0], active.flushed_cost[0]) == (cycles[0] - 5000, cycles[1] - 5000)


@pytest.mark.shared_data
def test_the_simulators_own_flush_is_no_cold_cache(shared_data: Path) -> None:
    folder = shared_data / "accel_sim"
    found = compare_outputs(folder / "reuse.base.out.gz", folder / "reuse.flushL1L2.out.gz")
    assert found.differences_percent.tolist() == [0.0] * 4
    assert found.notes[0].code == "flushed_by_switch"


@pytest.mark.shared_data
def test_outputs_of_other_traces_are_refused(shared_data: Path) -> None:
    folder = shared_data / "accel_sim"
    with pytest.raises(MisalignedError, match="_Z9irregular"):
        compare_outputs(folder / "reuse.base.out.gz", folder / "stencil.only2.out.gz")
    with pytest.raises(MisalignedError, match="no traced launch"):
        compare_outputs(folder / "reuse.only3.out.gz", folder / "stencil.only2.out.gz")
