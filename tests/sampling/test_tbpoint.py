"""TBPoint between launches, as a selection method."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import CounterUnavailableError, InputError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata
from assay_sampling.methods.registry import select
from assay_sampling.methods.tbpoint.features import tbpoint_features
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.published import PUBLISHED_TBPOINT


def launches_of(instructions: Any, cycles: Any = None, **more: Any) -> Launches:
    """Launches whose thread instructions and sectors follow their warp instructions, unless given."""
    executed = np.array(instructions, float)
    return counted_launches(
        {
            "instructions": executed,
            "thread_instructions": 32 * executed,
            "global_load_sectors": 4 * executed,
            "global_store_sectors": executed,
            "cycles_gpc_avg": executed if cycles is None else cycles,
            **more,
        }
    )


def tbpoint(launches: Launches, seed: int = 0, **parameters: Any) -> Selection:
    return select("tbpoint", Profile(detailed=launches), {**PUBLISHED_TBPOINT, **parameters}, seed)


def test_features_are_in_units_of_their_means() -> None:
    launches = counted_launches(
        {
            "instructions": [10.0, 30.0],
            "thread_instructions": [320.0, 320.0],
            "global_load_sectors": [1.0, 2.0],
            "global_store_sectors": [1.0, 1.0],
            "local_load_sectors": [0.0, 5.0],
            "local_store_sectors": [0.0, 0.0],
        }
    )
    features = tbpoint_features(launches)
    # Requests are 2 and 8 sectors.
    assert features.matrix == pytest.approx(np.array([[1, 0.5, 0.4, 0], [1, 1.5, 1.6, 0]]), rel=1e-14)
    assert features.instructions.tolist() == [10, 30]
    assert features.counters[0] == "instructions"
    assert "local_load_sectors" in features.counters
    assert features.notes == (make_note("block_sizes_unknown"),)


def test_thread_instructions_follow_from_the_active_threads() -> None:
    launches = counted_launches(
        {
            "instructions": [10.0, 10.0],
            "threads_per_instruction": [32.0, 16.0],
            "global_load_sectors": [1.0, 1.0],
            "global_store_sectors": [0.0, 0.0],
        }
    )
    assert tbpoint_features(launches).matrix[:, 0] == pytest.approx([4 / 3, 2 / 3])


def test_requests_instead_of_sectors() -> None:
    requests = {"global_load_requests": [1.0, 2.0], "global_store_requests": [0.0, 1.0]}
    launches = launches_of([10, 10], **requests)
    assert tbpoint_features(launches, memory="requests").matrix[:, 2] == pytest.approx([0.5, 1.5])
    assert len(tbpoint(launches).group_launches) == 1
    assert len(tbpoint(launches, memory="requests").group_launches) == 2


def test_by_hand() -> None:
    # Means are 100: features 0.97 (twice), 1.03 and 1.03 lie within 0.1 x sqrt(3) of each other.
    launches = launches_of([97, 97, 103, 103, 100], cycles=[10, 12, 20, 21, 15])
    selection = tbpoint(launches, threshold=0.11)
    assert selection.labels is not None
    assert selection.labels.tolist() == [0] * 5
    # The centre is 100, where the last launch lies: 500 instructions are projected by its 100.
    assert selection.representatives.row.tolist() == [4]
    assert selection.representatives.weight.tolist() == [5.0]
    assert selection.evaluation.projected == 75.0
    assert selection.evaluation.total == 78.0
    apart = tbpoint(launches, threshold=0.05)
    assert len(apart.group_launches) == 3  # 0.03 in three features is 0.052
    assert apart.representatives.row.tolist() == [0, 2, 4]
    assert apart.representatives.weight.tolist() == [2.0, 2.0, 1.0]


def test_kernels_share_a_cluster_only_where_that_is_allowed() -> None:
    launches = made_launches(
        list("abacba"),
        counters=list_of_columns(),
        metadata=TableMetadata("detailed", origin="synthetic"),
        **{column.name: [100.0] * 6 for column in list_of_columns()},
    )
    assert tbpoint(launches).group_launches.tolist() == [6]
    default = select("tbpoint", Profile(detailed=launches), {})
    assert default.labels is not None
    assert default.labels.tolist() == [0, 1, 0, 2, 1, 0]
    assert default.representatives.weight.tolist() == [3.0, 2.0, 1.0]
    swept = select("tbpoint", Profile(detailed=launches), {"sweep": True})
    assert swept.group_launches.tolist() == [3, 2, 1]


def test_the_weight_is_the_share_of_instructions() -> None:
    launches = launches_of([1000, 1040, 1060], cycles=[100, 300, 200])
    selection = tbpoint(launches, threshold=0.2)
    assert selection.representatives.row.tolist() == [1]
    assert selection.representatives.weight.tolist() == [3100 / 1040]
    # Total CPI x all instructions.
    assert selection.evaluation.projected == pytest.approx(300 / 1040 * 3100)


def test_the_centre_counts_every_launch() -> None:
    # Six launches of 100 and one each of 98 and 104: without multiplicity the centre would be 100.67.
    launches = launches_of([104, 98, 100.6, *[100] * 6])
    assert tbpoint(launches, threshold=0.2).representatives.row.tolist() == [3]


@pytest.mark.parametrize("factor", [0.3, 1.1, 1.7])
def test_of_two_launches_the_first_stands_for_both(factor: float) -> None:
    # Both are as far from their centre, whatever rounding says.
    for second in np.linspace(101, 109, 7):
        launches = launches_of([100 * factor, second * factor, 900 * factor])
        assert tbpoint(launches, threshold=0.2).representatives.row.tolist() == [0, 2]


def test_the_sweep_takes_the_fewest_clusters_below_the_target() -> None:
    # Three kinds near 1: 0.94, 1.00 and 1.06 (0.104 apart), with costs that only the split of all explains.
    executed = [94.0] * 10 + [100.0] * 10 + [106.0] * 10
    cycles = [100.0] * 10 + [200.0] * 10 + [400.0] * 10
    selection = tbpoint(launches_of(executed, cycles), sweep=True)
    sweep = selection.extra["sweep"]
    assert [entry["threshold"] for entry in sweep] == [round(0.01 * i, 2) for i in range(1, 21)]
    groups = [entry["groups"] for entry in sweep]
    assert groups[0] == 3
    assert groups[-1] == 2  # the ends are 0.208 apart
    assert all(a >= b for a, b in pairwise(groups))
    assert len(selection.group_launches) == 3
    assert selection.parameters["threshold"] == 0.01
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-9)
    # With a loose target the fewest win, of one number of clusters the smallest threshold.
    loose = tbpoint(launches_of(executed, cycles), sweep=True, target_error_percent=60)
    assert len(loose.group_launches) == 2
    assert loose.parameters["threshold"] == 0.11
    entry = next(e for e in sweep if e["threshold"] == 0.11)
    assert loose.evaluation.error_percent == pytest.approx(entry["error_percent"])
    assert loose.evaluation.speedup == pytest.approx(entry["speedup"])


def test_without_a_threshold_below_the_target_the_least_error_wins() -> None:
    # Equal launches of unequal cost: no threshold tells them apart.
    selection = tbpoint(launches_of([100.0] * 4, [1.0, 2.0, 3.0, 30.0]), sweep=True)
    assert len(selection.group_launches) == 1
    assert selection.parameters["threshold"] == 0.01
    assert selection.evaluation.error_percent == pytest.approx(100 * 32 / 36)


def test_several_random_launches_of_each_group_give_an_interval() -> None:
    random = np.random.default_rng(5)
    executed = np.repeat([100.0, 400.0], 200) * random.uniform(0.99, 1.01, 400)
    launches = launches_of(executed, executed * random.uniform(0.9, 1.1, 400))
    held = 0
    for seed in range(40):
        selection = tbpoint(launches, seed, threshold=0.2, launches_per_group=8)
        assert selection.representatives.row.shape == (16,)
        assert selection.representatives.group.tolist() == [0] * 8 + [1] * 8
        assert selection.interval is not None
        assert selection.interval.basis == "known_design"
        held += selection.interval.low <= selection.evaluation.total <= selection.interval.high
        assert selection.interval.low < selection.evaluation.projected < selection.interval.high
    assert held >= 34
    again = tbpoint(launches, 39, threshold=0.2, launches_per_group=8)
    assert np.array_equal(again.representatives.row, selection.representatives.row)
    assert tbpoint(launches).document().to_dict()["interval_reason"]["code"] == "interval_of_fixed_rule"


def test_sizes_of_thread_blocks_tell_launches_apart(tmp_path: Path) -> None:
    launches = launches_of([260, 260])
    assert len(tbpoint(launches).group_launches) == 1
    path = tmp_path / "blocks.csv"
    path.write_text("launch,block,thread_instructions\n0,0,100\n0,1,100\n1,0,160\n1,1,40\n")
    selection = tbpoint(launches, thread_blocks=str(path))
    assert len(selection.group_launches) == 2
    assert selection.extra["notes"] == []
    assert tbpoint_features(launches, block_sizes=path).matrix[:, 3] == pytest.approx([0, 0.6])
    with pytest.raises(InputError, match="it lacks 1 of the 3 launches"):
        tbpoint(launches_of([1, 1, 1]), thread_blocks=str(path))


def test_clusters_know_nothing_of_the_order(shared_data: Path) -> None:
    launches = read_launches(shared_data / "sieve" / "syn5000_raw.csv")
    instructions = launches.column("instructions")
    made = launches_of(instructions, launches.column("cycles_gpc_avg"))
    shuffled = np.random.default_rng(1).permutation(len(instructions))
    other = launches_of(instructions[shuffled], launches.column("cycles_gpc_avg")[shuffled])
    ours, theirs = tbpoint(made), tbpoint(other)
    assert ours.labels is not None
    assert theirs.labels is not None
    pairs = set(zip(ours.labels[shuffled].tolist(), theirs.labels.tolist(), strict=True))
    assert len(pairs) == len(ours.group_launches) == len(theirs.group_launches)


# ---- what does not apply, and edges


def test_no_launches_are_refused() -> None:
    with pytest.raises(RefusedError, match="holds no launches"):
        tbpoint(launches_of([1.0]).slice(0, 0))


def test_no_counters_are_refused() -> None:
    light = made_launches(["k"], duration_ns=[1], source="l.sqlite")
    with pytest.raises(RefusedError, match=r"l\.sqlite: TBPoint not applicable: no counters"):
        select("tbpoint", Profile(light=light), {})
    with pytest.raises(
        CounterUnavailableError,
        match=r"it has none of memory \(of use are instructions, thread_instructions\); collect l1tex__t_sec",
    ):
        tbpoint(
            counted_launches({"instructions": [1.0], "thread_instructions": [32.0], "cycles_gpc_avg": [1.0]})
        )


def test_counters_that_are_not_numbers_are_named() -> None:
    with pytest.raises(CounterUnavailableError, match=r"'global_load_sectors' .* 1 of 2 .* launch 1"):
        tbpoint(launches_of([10, 10], global_load_sectors=[1.0, None]))
    with pytest.raises(CounterUnavailableError, match="'global_load_sectors' is nan for launch 1"):
        tbpoint(launches_of([10, 10], global_load_sectors=np.array([1.0, np.nan])))
    with pytest.raises(RefusedError, match="'global_load_sectors' is negative"):
        tbpoint(launches_of([10, 10], global_load_sectors=[1.0, -1.0]))


def test_one_launch_stands_for_itself() -> None:
    for parameters in ({}, {"sweep": True}, {"launches_per_group": 3}):
        selection = tbpoint(launches_of([7.0]), **parameters)
        assert selection.representatives.weight.tolist() == [1.0]
        assert selection.evaluation.error_percent == 0
        assert selection.evaluation.speedup == 1


def test_equal_launches_are_one_group() -> None:
    selection = tbpoint(launches_of([7.0] * 40), sweep=True)
    assert selection.group_launches.tolist() == [40]
    assert selection.representatives.row.tolist() == [0]
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-12)
    assert selection.evaluation.speedup == 40


def test_huge_numbers_and_names() -> None:
    launches = made_launches(
        ["k" * 1_000_000] * 3,
        counters=list_of_columns(),
        metadata=TableMetadata("detailed", origin="synthetic"),
        instructions=[1e12, 1e12, 2e12],
        thread_instructions=[3.2e13, 3.2e13, 6.4e13],
        global_load_sectors=[1e13, 1e13, 2e13],
        global_store_sectors=[0.0, 0.0, 0.0],
        cycles_gpc_avg=[1e12, 1e12, 3e12],
    )
    selection = tbpoint(launches)
    assert selection.group_launches.tolist() == [2, 1]
    assert selection.representatives.weight.tolist() == [2.0, 1.0]
    assert len(selection.document().to_dict()["groups"][0]["representatives"][0]["kernel"]) == 1_000_000
    largest = tbpoint(launches_of([1e300, 1.5e300, 1.0], cycles=[1.0, 1.0, 1.0]))
    assert len(largest.group_launches) == 3


def list_of_columns() -> list[Any]:
    from assay_sampling.counters.definitions import registry  # noqa: PLC0415

    names = (
        "instructions", "thread_instructions", "global_load_sectors", "global_store_sectors", "cycles_gpc_avg"
    )  # fmt: skip
    return [registry()[name].column(registry()[name].metrics[0].name) for name in names]


def test_launches_without_instructions_count_by_their_number() -> None:
    launches = launches_of([0, 0, 100, 100], cycles=[5, 7, 50, 50])
    selection = tbpoint(launches)
    assert selection.representatives.row.tolist() == [0, 2]
    assert selection.representatives.weight.tolist() == [2.0, 2.0]
    nothing = tbpoint(launches_of([0, 0], cycles=[5, 5]))
    assert nothing.representatives.weight.tolist() == [2.0]


def test_too_many_distinct_launches_are_refused_with_an_alternative() -> None:
    launches = launches_of(np.linspace(100, 101, 50))
    with pytest.raises(RefusedError, match=r"counted\.csv: 50 of 50 distinct .* use pks.*max_distinct"):
        tbpoint(launches, max_distinct=49)
    assert len(tbpoint(launches, max_distinct=50).group_launches) == 1


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"sweep": True, "threshold": 0.1}, "leave threshold or sweep out"),
        ({"target_error_percent": 3}, "applies to the sweep only"),
        ({"threshold": 0}, "greater than 0"),
        ({"threshold": "nan"}, "finite number"),
        ({"memory": "bytes"}, "'sectors' or 'requests'"),
        ({"launches_per_group": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], shown: str) -> None:
    with pytest.raises(ParameterError, match=shown):
        tbpoint(launches_of([1.0]), **parameters)


def test_with_a_light_recording_of_the_same_launches() -> None:
    counted = launches_of([100, 100, 200], cycles=[1, 1, 2])
    light = made_launches(
        ["kernel"] * 3,
        duration_ns=[50, 70, 90],
        metadata=TableMetadata("light", origin="synthetic"),
        source="l.sqlite",
    )
    selection = select("tbpoint", Profile(detailed=counted, light=light), {})
    assert (selection.evaluation.quantity, selection.evaluation.total) == ("duration_ns", 210)
    assert selection.representatives.weight.tolist() == [2.0, 1.0]
    assert selection.instruction_share is not None
    assert selection.instruction_share.tolist() == [0.5, 0.5]
    window = Profile(detailed=counted.slice(0, 2), light=light)
    with pytest.raises(RefusedError, match=r"has 2 launches, 2 of them among the 3 .*; .* pks"):
        select("tbpoint", window, {})


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 1000)), min_size=1, max_size=60), st.floats(0.01, 2)
)
@settings(max_examples=80, deadline=None)
def test_what_holds_for_every_profile(launches: list[tuple[int, int]], threshold: float) -> None:
    executed, cycles = (np.array(column, float) for column in zip(*launches, strict=True))
    selection = tbpoint(launches_of(executed, cycles), threshold=threshold)
    labels, rows = selection.labels, selection.representatives.row
    assert labels is not None
    assert selection.group_launches.sum() == len(launches)
    assert np.array_equal(labels[rows], np.arange(len(rows)))
    projected = selection.representatives.weight * executed[rows]
    assert projected == pytest.approx(np.bincount(labels, weights=executed))
    features = np.repeat((executed / executed.mean())[:, None], 3, axis=1)
    for group in range(len(rows)):
        members = features[labels == group]
        spread = np.linalg.norm(members[:, None] - members[None], axis=2).max()
        assert spread <= threshold * (1 + 1e-9)
        apart = np.linalg.norm(members - members.mean(axis=0), axis=1)
        ours = np.linalg.norm(features[rows[group]] - members.mean(axis=0))
        assert ours <= apart.min() + 1e-9
