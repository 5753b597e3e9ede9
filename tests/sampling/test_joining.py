"""Which recordings may be joined, and what the joined table holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import LaunchTableError, NotJoinableError
from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import join
from assay_sampling.running.identity import Condition, Device, may_be_one_kind
from tests.support.sampling.made_launches import CYCLES, made_launches

OTHER_CYCLES = lt.CounterColumn("cycles_gpc_avg", "cycle", "another_metric", "hardware")
VOLTA = Device(0, "Tesla V100-SXM2-16GB", "", "7.0", 80)


def recording(
    launches: list[int],
    kernel: str = "k",
    *,
    level: lt.Level = "light",
    devices: tuple[Device, ...] = (VOLTA,),
    metadata: dict[str, Any] | None = None,
    **columns: Any,
) -> Launches:
    described = lt.TableMetadata(level, devices=devices, **(metadata or {}))
    columns = {"launch": launches, "device": [d.index for d in devices] * len(launches)} | columns
    columns = {"start_ns": [1000 * launch for launch in launches]} | columns
    return made_launches([kernel] * len(launches), metadata=described, source=kernel, **columns)


def reason_of(*parts: Launches, ranks: bool = False) -> str:
    with pytest.raises(NotJoinableError) as raised:
        join(parts, ranks=ranks)
    return raised.value.reason


def test_windows_of_one_run_keep_their_identities() -> None:
    joined = join([recording([5, 6]), recording([0, 1], "z")])
    assert joined.column("process").tolist() == [0] * 4
    assert joined.column("launch").tolist() == [0, 1, 5, 6]
    assert (joined.ranks, joined.kernels(), joined.sources) == (1, 2, ("k", "z"))


def test_ranks_take_the_processes_in_the_order_of_the_files() -> None:
    first = recording([0, 1, 0], process=[0, 0, 1], duration_ns=[1, 2, 3])
    second = recording([0, 1], duration_ns=[4, 5])
    joined = join([first, second], ranks=True)
    assert joined.column("process").tolist() == [0, 0, 1, 2, 2]
    assert joined.column("duration_ns").tolist() == [1, 2, 3, 4, 5]
    assert joined.ranks == 2
    assert join([second, first], ranks=True).column("duration_ns").tolist() == [4, 5, 1, 2, 3]


def test_the_first_reason_is_given() -> None:
    one = recording([0, 1], duration_ns=[5, 6])
    turing = recording([0, 1], devices=(Device(0, "NVIDIA GeForce RTX 2060", "", "7.5", 30),))
    again = recording([0, 1], duration_ns=[5, 6])
    slower = recording([1, 2], duration_ns=[7, 8])
    other = recording([1, 2], "z", duration_ns=[7, 8])
    for ranks in (False, True):
        assert reason_of(one, turing, ranks=ranks) == "two_kinds_of_gpu"
        assert reason_of(one, slower, turing, ranks=ranks) == "two_kinds_of_gpu"
        assert reason_of(one, again, ranks=ranks) == "same_content"
        assert reason_of(one, slower, again, ranks=ranks) == "same_content"
    assert reason_of(one, slower) == "overlapping_launches"
    assert reason_of(one, other) == "two_workloads"
    with pytest.raises(NotJoinableError, match="both hold launch 1 of process 0, so they are not windows"):
        join([one, slower])
    with pytest.raises(NotJoinableError, match="launch 0 of process 0 and 1 more in common"):
        join([one, recording([0, 1], duration_ns=[7, 8])])


def test_an_offset_makes_no_other_recording_of_a_file() -> None:
    one, moved = recording([0, 1], start_ns=[5, 6]), recording([7, 8], start_ns=[5, 6])
    assert reason_of(one, moved) == "same_content"


def test_equal_windows_of_a_loop_are_joined_where_no_time_says_that_they_are_one() -> None:
    nothing = {"start_ns": [None, None]}
    assert len(join([recording([0, 1], **nothing), recording([2, 3], **nothing)])) == 4


@given(st.lists(st.integers(0, 40), min_size=1, unique=True), st.data())
def test_windows_join_exactly_where_no_launch_is_in_two(launches: list[int], data: st.DataObject) -> None:
    owner = data.draw(st.lists(st.integers(0, 3), min_size=len(launches), max_size=len(launches)))
    windows = [sorted(n for n, of in zip(launches, owner, strict=True) if of == i) for i in range(4)]
    parts = [recording(window, start_ns=[100 * n for n in window]) for window in windows if window]
    assert join(parts).column("launch").tolist() == sorted(launches)
    twice = data.draw(st.sampled_from(launches))
    extra = recording([twice, 99], start_ns=[100 * twice + 1, 9])
    assert reason_of(*parts, extra) == "overlapping_launches"


def test_devices_that_are_one_keep_one_ordinal() -> None:
    mine, theirs = Device(0, "V100", "GPU-1", "7.0", 80), Device(0, "Tesla V100", "GPU-2", "7.0", 80)
    joined = join([recording([0], devices=(mine,)), recording([1], devices=(theirs,))])
    assert joined.column("device").tolist() == [0, 1]
    assert [device.uuid for device in joined.metadata.devices] == ["GPU-1", "GPU-2"]
    joined = join([recording([0], devices=(mine,)), recording([1], devices=(mine,))])
    assert joined.column("device").tolist() == [0, 0]


def test_what_a_file_does_not_say_of_its_gpu_speaks_against_nothing() -> None:
    bare = Device(0)
    assert may_be_one_kind(VOLTA, bare)
    assert may_be_one_kind(Device(0, "virtual V100-SXM2-16GB"), VOLTA)
    for other in (Device(0, "A100"), Device(0, "", "", "8.0"), Device(0, "", "", "7.0", 14)):
        assert not may_be_one_kind(VOLTA, other)
    assert len(join([recording([0]), recording([1], devices=(bare,))])) == 2
    ampere = (Device(0, "A100", "", "8.0", 108),)
    parts = recording([0]), recording([1], devices=(bare,)), recording([2], devices=ampere)
    assert reason_of(*parts) == "two_kinds_of_gpu"
    unlisted = recording([1], devices=(), device=[3])
    assert len(join([recording([0]), unlisted])) == 2


def test_a_counter_that_one_file_lacks_is_null_there() -> None:
    counted = made_launches(["b"], counters=[CYCLES], launch=[1], cycles_gpc_avg=[1.0])
    assert join([recording([0], devices=(), device=[None]), counted]).table["cycles_gpc_avg"].to_pylist() == [
        None,
        1.0,
    ]


def test_what_differs_in_kind_is_not_joined() -> None:
    light = recording([0])
    for other, what in (
        (recording([1], level="detailed"), "level"),
        (recording([1], metadata={"origin": "synthetic"}), "synthetic"),
        (recording([1], metadata={"condition": Condition("all")}), "condition"),
    ):
        with pytest.raises(LaunchTableError, match=what):
            join([light, other])
    with pytest.raises(LaunchTableError, match="another metric"):
        join(
            [
                made_launches(["a"], counters=[counter], launch=[launch], cycles_gpc_avg=[1.0])
                for launch, counter in enumerate((CYCLES, OTHER_CYCLES))
            ]
        )


def test_many_windows_are_joined_in_columns() -> None:
    parts = [recording([i], start_ns=[i]) for i in range(300)]
    assert np.array_equal(join(parts).column("launch"), np.arange(300))
