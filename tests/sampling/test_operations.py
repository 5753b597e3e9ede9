"""Launches added up to operations, put in strata, and matched with those of another recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import LaunchTableError, MisalignedError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import CounterColumn
from assay_sampling.operations.aliases import aliases, canonical
from assay_sampling.operations.collapsing import operations_of
from assay_sampling.operations.identity import KINDS, Operation
from assay_sampling.operations.kernel_names import base_name
from assay_sampling.operations.matching import (
    OperationSequence,
    match_operations,
    require_operations_match,
)
from assay_sampling.operations.strata import stratum_names
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.made_operations import Call, made_calls, sequence

INSTRUCTIONS = CounterColumn("instructions", "inst", "smsp__inst_executed.sum", "hardware")
THREADS = CounterColumn("threads_per_instruction", "1", "ratio", "hardware")


def test_costs_and_counters_of_an_operation_are_the_sums_of_its_launches() -> None:
    launches = made_calls(
        [("aten::linear", "[[4]]", [10, 20]), ("aten::relu", "[[4]]", [5])],
        counters=(INSTRUCTIONS, THREADS),
        instructions=[100.0, 300.0, 50.0],
        threads_per_instruction=[32.0, 16.0, 8.0],
        grid_x=[2, 3, 4],
        block_x=[32, 32, 64],
    )
    operations = operations_of(launches)
    rows = operations.launches
    assert rows.column("duration_ns").tolist() == [30, 5]
    assert rows.column("instructions").tolist() == [400, 50]
    # A rate is weighted by what it is a rate of: (100 x 32 + 300 x 16) / 400.
    assert rows.column("threads_per_instruction").tolist() == [20, 8]
    assert rows.column("grid_x").tolist() == [160, 256]
    assert rows.column("launch").tolist() == [0, 2]
    assert operations.of_launch.tolist() == [0, 0, 1]
    assert [one.label() for one in operations.identities] == ["aten::linear [[4]]", "aten::relu [[4]]"]


def test_a_rate_that_the_profiler_names_is_a_mean() -> None:
    warps, hits = (
        CounterColumn(metric, "1", metric, "hardware")
        for metric in ("sm__warps_active.avg.per_cycle_active", "l1tex__t_sector_hit_rate.ratio")
    )
    launches = made_calls(
        [("aten::linear", "[[4]]", [10, 30])],
        counters=(warps, hits),
        **{warps.name: [8.0, 16.0], hits.name: [0.25, 0.75]},
    )
    rows = operations_of(launches).launches
    # The mean by time: (10 x 8 + 30 x 16) / 40.
    assert rows.column(warps.name).tolist() == [14]
    assert rows.column(hits.name).tolist() == [0.625]


def test_a_counter_that_one_launch_lacks_is_unknown_for_its_operation() -> None:
    launches = made_calls(
        [("aten::linear", "", [10, 20]), ("aten::relu", "", [5])],
        counters=(INSTRUCTIONS,),
        instructions=[100.0, None, 50.0],
    )
    assert operations_of(launches).launches.table["instructions"].to_pylist() == [None, 50.0]


def test_launches_without_an_operation_are_operations_by_their_function() -> None:
    launches = made_calls([("aten::relu", "", [5])], outside=["void mine::fill<float>(float*)", "f"])
    names = [one.name for one in operations_of(launches).identities]
    assert names == ["aten::relu", "fill", "f"]


def test_a_table_with_operators_but_without_calls_has_one_launch_an_operation() -> None:
    launches = made_launches(
        ["a", "b", "c"],
        operator_id=["aten::mm", "aten::mm", None],
        input_shapes_id=["[[2]]", "[[2]]", None],
        duration_ns=[1, 2, 3],
    )
    operations = operations_of(launches)
    assert len(operations) == 3
    assert [one.label() for one in operations.identities] == ["aten::mm [[2]]", "c"]


def test_an_operation_whose_call_is_unknown_is_a_launch_of_its_own() -> None:
    calls = [("aten::mm", "[[2]]", [10]), ("aten::mm", "[[2]]", [20]), ("aten::relu", "[[2]]", [5])]
    operations = operations_of(made_calls(calls, call=pa.array([None] * 3, pa.int64())))
    assert operations.launches.column("duration_ns").tolist() == [10, 20, 5]


def test_launches_of_two_operations_are_never_one_call() -> None:
    calls = [("aten::mm", "[[2]]", [10]), ("aten::relu", "[[2]]", [5])]
    operations = operations_of(made_calls(calls, call=[0, 0]))
    assert [one.name for one in operations.identities] == ["aten::mm", "aten::relu"]
    assert operations.launches.column("duration_ns").tolist() == [10, 5]


def test_a_recording_without_operators_is_refused_with_the_way_to_record_them() -> None:
    with pytest.raises(RefusedError, match="operations are unknown") as refused:
        operations_of(made_launches(["a"]))
    assert "record_shapes=True" in refused.value.remedy


def test_aliases_of_vendors_are_one_operation() -> None:
    one, other = (
        operations_of(made_calls([(name, "[[1]]", [5])])).identities
        for name in ("aten::cudnn_convolution", "aten::miopen_convolution")
    )
    assert one == other == (Operation("operator", "aten::_convolution", "[[1]]"),)


def test_no_alias_has_an_alias() -> None:
    assert not set(aliases().values()) & set(aliases())
    assert canonical(Operation("range", "aten::miopen_convolution")).name == "aten::miopen_convolution"


@given(st.sampled_from(KINDS), st.text(), st.text(), st.integers(0, 2**31))
def test_an_identity_survives_its_text(kind: Any, name: str, shapes: str, thread: int) -> None:
    operation = Operation(kind, name, shapes, thread)
    assert Operation.from_text(operation.to_text()) == operation


@pytest.mark.parametrize(
    "text", ["", "[]", '["operator","a","",-1]', '["other","a","",0]', '{"a":1}', "[" * 9999]
)
def test_other_texts_are_no_identities(text: str) -> None:
    with pytest.raises(LaunchTableError, match="is not of the form"):
        Operation.from_text(text)


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::F<float> >(int, at::F<float>)",
         "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::reduce<512>(float*)", "reduce"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void f<(Kind)0>(int)", "f"),
        ("_Z3addPf", "_Z3addPf"),
        ("(", "("),
    ],
)  # fmt: skip
def test_the_function_of_a_kernel(kernel: str, function: str) -> None:
    assert base_name(kernel) == function


def test_shapes_that_repeat_are_strata_and_rarer_ones_share_strata_by_work_and_time() -> None:
    often = [("aten::mm", "[[2,2],[2,2]]", [10])] * 8
    rare = [("aten::mm", f"[[{n},64],[64,64]]", [1000 + n]) for n in range(1000, 1016)]
    far = [("aten::mm", f"[[{n},512],[512,512]]", [900_000 + n]) for n in range(4000, 4016)]
    operations = operations_of(made_calls([*often, *rare, *far]))
    names = stratum_names(operations)
    assert len(set(names)) == 3
    assert names[0] == "aten::mm [[2,2],[2,2]]"
    assert len({names[i] for i in range(1, 17)}) == len({names[i] for i in range(17, 33)}) == 1
    assert all(name.startswith("aten::mm, 16 shapes of 2^") for name in names[1:])


def test_dimensions_beyond_every_number_are_work_too() -> None:
    shapes = [f"[[{'9' * digits}]]" for digits in (1, 400, 5000)]
    operations = operations_of(made_calls([("aten::mm", shape, [10]) for shape in shapes]))
    assert len(stratum_names(operations)) == 3


def test_operators_never_share_a_stratum() -> None:
    operations = operations_of(made_calls([("aten::mm", "[[2]]", [10]), ("aten::bmm", "[[2]]", [10])]))
    assert len(set(stratum_names(operations))) == 2


def test_a_range_and_a_kernel_of_one_name_are_two_strata() -> None:
    launches = made_calls([("decode", "", [10])], outside=["decode"])
    assert stratum_names(operations_of(launches)) == ["decode", "decode (kernel)"]


def test_an_inserted_call_shifts_nothing() -> None:
    calls = [("aten::mm", f"[[{n}]]", [10]) for n in range(6)]
    left = sequence(made_calls(calls))
    right = sequence(made_calls([*calls[:3], ("aten::copy_", "[[9]]", [15]), *calls[3:]]))
    match = match_operations(left, right, "test")
    assert match.left_rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert match.right_rows.tolist() == [0, 1, 2, 4, 5, 6]
    assert (match.left_calls_percent, match.left_time_percent) == (100, 100)
    assert match.right_calls_percent == pytest.approx(100 * 6 / 7)
    assert match.right_time_percent == pytest.approx(100 * 60 / 75)
    assert match.differences == ("only the recording has, at launch 3, aten::copy_ [[9]]",)
    with pytest.raises(MisalignedError, match="100 % of the selection's time and 80 % of the recording's"):
        require_operations_match(match, "test")


def test_threads_are_paired_by_what_they_call_not_by_which_launches_first() -> None:
    def of(first: int, second: int) -> OperationSequence:
        forward = [("aten::mm", f"[[{n}]]", [10], first) for n in range(4)]
        backward = [("aten::mm_backward", f"[[{n}]]", [10], second) for n in range(4)]
        parts = [forward, backward] if first == 0 else [backward, forward]
        return sequence(made_calls([*parts[0], *parts[1]]))

    match = match_operations(of(0, 1), of(1, 0), "test")
    assert len(match.left_rows) == 8
    assert match.left_time_percent == 100


def test_calls_of_two_threads_in_another_order_still_match() -> None:
    ours = [("aten::a", "", [1], 0), ("aten::b", "", [1], 1), ("aten::c", "", [1], 0)]
    theirs = [("aten::a", "", [1], 0), ("aten::c", "", [1], 0), ("aten::b", "", [1], 1)]
    match = match_operations(sequence(made_calls(ours)), sequence(made_calls(theirs)), "test")
    assert sorted(zip(match.left_rows.tolist(), match.right_rows.tolist(), strict=True)) == [
        (0, 0), (1, 2), (2, 1)
    ]  # fmt: skip


def test_shapes_on_one_side_only_are_refused() -> None:
    with pytest.raises(MisalignedError, match="the recording has no input shapes"):
        match_operations(
            sequence(made_calls([("aten::mm", "[[2]]", [1])])),
            sequence(made_calls([("aten::mm", "", [1])])),
            "test",
        )


def test_other_batch_sizes_match_nothing() -> None:
    match = match_operations(
        sequence(made_calls([("aten::mm", "[[2]]", [1])] * 3)),
        sequence(made_calls([("aten::mm", "[[4]]", [1])] * 3)),
        "test",
    )
    assert (len(match.left_rows), match.left_time_percent, match.right_time_percent) == (0, 0, 0)


def test_an_operator_with_40_000_shapes_is_matched_and_put_in_strata() -> None:
    calls = [("aten::mm", f"[[{n},{n % 97 + 1}]]", [1000 + n]) for n in range(1, 40_001)]
    operations = operations_of(made_calls(calls))
    strata, counts = np.unique(np.array(stratum_names(operations)), return_counts=True)
    assert counts.min() >= 8
    assert 10 < len(strata) < 500
    here = OperationSequence.of(operations, operations.launches.floats("duration_ns"))
    match = match_operations(here, here, "test")
    assert len(match.left_rows) == 40_000


def _silicon(shared_data: Path, gpu: str, model: str) -> Launches:
    return read_launches(shared_data / "silicon" / f"{gpu}__{model}__1016002.json.gz")


@pytest.mark.parametrize(
    "model", ["Falconsai_nsfw_image_detection", "facebook_timesformer-base-finetuned-k400"]
)
def test_all_calls_of_two_vendors_match(shared_data: Path, model: str) -> None:
    one, other = (sequence(_silicon(shared_data, gpu, model)) for gpu in ("h100", "mi300"))
    match = match_operations(one, other, model)
    assert (match.left_time_percent, match.right_time_percent) == (100, 100)
    assert (match.left_calls_percent, match.right_calls_percent) == (100, 100)


def test_hundreds_of_threads_are_paired_by_their_ordinals() -> None:
    calls: list[Call] = [("aten::mm", f"[[{n}]]", [10], n) for n in range(300)]
    match = match_operations(sequence(made_calls(calls)), sequence(made_calls(calls)), "test")
    assert (match.left_time_percent, match.right_time_percent) == (100, 100)
