"""Kernels in the order of their launches, however they come, and frames however they are cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_agent.tracer.names import ProcessNames, demangled
from assay_agent.tracer.ordering import LaunchOrder, OrderedKernels
from assay_agent.tracer.protocol import (
    HEADER,
    HELLO,
    KERNEL,
    KERNELS_NONE,
    LAUNCH,
    NAME,
    TOTALS,
    Frame,
    FrameParser,
    FrameType,
    ProtocolError,
)


def launches(*entries: tuple[int, int]) -> np.ndarray:
    """(order, kernels) each."""
    return np.array([(order, order % 5, kernels) for order, kernels in entries], LAUNCH)


def kernels(*entries: tuple[int, int], stream: int = 7) -> np.ndarray:
    """(order, graph node) each; node 0: no graph."""
    made = np.zeros(len(entries), KERNEL)
    for row, (order, node) in zip(made, entries, strict=True):
        row["order"], row["graph_node"], row["stream"] = order, node, stream
        row["start_ns"], row["context"] = order * 100 + node, 1
    return made


def orders(ordered: OrderedKernels) -> list[int]:
    return [int(order) for order in ordered.kernels["order"]]


def test_a_kernel_waits_for_all_launches_before_it() -> None:
    order = LaunchOrder()
    order.add_launches(launches((1, 1), (2, 1), (3, 1)))
    order.add_kernels(kernels((3, 0), (1, 0)))
    assert orders(order.take()) == [1]
    order.add_kernels(kernels((2, 0)))
    taken = order.take()
    assert orders(taken) == [2, 3] and taken.launch.tolist() == [1, 2] and taken.range.tolist() == [2, 3]
    assert order.waiting == 0 and order.late == 0


def test_a_failed_call_holds_nothing_up_and_a_call_for_two_devices_waits_for_both() -> None:
    order = LaunchOrder()
    order.add_launches(launches((1, 1), (2, 2), (3, 1)))
    order.add_kernels(kernels((3, 0), (2, 0)))
    assert orders(order.take()) == []
    order.add_launches(launches((1, KERNELS_NONE)))
    assert orders(order.take()) == []
    order.add_kernels(kernels((2, 0)))
    assert orders(order.take()) == [2, 2, 3]


def test_a_kernel_whose_launch_is_not_told_yet_waits() -> None:
    order = LaunchOrder()
    order.add_kernels(kernels((5, 0)))
    assert orders(order.take()) == []
    order.add_launches(launches((4, 1), (5, 1)))
    order.add_kernels(kernels((4, 0)))
    assert orders(order.take()) == [4, 5]


def test_a_graph_launch_is_complete_when_it_is_quiet_and_its_stream_went_on() -> None:
    order = LaunchOrder()
    order.add_launches(launches((1, 0), (2, 1)))
    order.add_kernels(kernels((1, 3), (1, 9)))
    for _ in range(6):
        order.flushed()
        assert orders(order.take()) == []
    order.add_kernels(kernels((2, 0)))
    order.add_kernels(kernels((1, 12)))
    for _ in range(4):
        assert orders(order.take()) == []
        order.flushed()
    assert orders(order.take()) == []
    order.flushed()
    taken = order.take()
    assert orders(taken) == [1, 1, 1, 2]
    assert taken.graph_launch.tolist() == [0, 0, 0, -1] and taken.graph_node.tolist() == [0, 1, 2, -1]


def test_a_stream_of_another_kernel_does_not_complete_a_graph() -> None:
    order = LaunchOrder()
    order.add_launches(launches((1, 0), (2, 1)))
    order.add_kernels(kernels((1, 3)))
    order.add_kernels(kernels((2, 0), stream=8))
    order.take()
    for _ in range(9):
        order.flushed()
    assert orders(order.take()) == []
    assert orders(order.take(final=True)) == [1, 2]


def test_ordinals_of_graph_launches_go_on_from_batch_to_batch() -> None:
    order = LaunchOrder()
    for number in (1, 2):
        order.add_kernels(kernels((number, 3), (number, 8)))
        taken = order.take(final=True)
        assert taken.graph_launch.tolist() == [number - 1] * 2 and taken.graph_node.tolist() == [0, 1]
        assert taken.launch.tolist() == [2 * number - 2, 2 * number - 1]


def test_what_waits_is_bounded_and_what_comes_too_late_is_counted() -> None:
    order = LaunchOrder(window=100)
    order.add_launches(launches(*((i, 1) for i in range(1, 301))))
    order.add_kernels(kernels(*((i, 0) for i in range(2, 301))))
    taken = order.take()
    assert orders(taken) == list(range(2, 251)) and order.waiting == 50
    order.add_kernels(kernels((1, 0)))
    assert order.late == 1
    rest = order.take(final=True)
    assert orders(rest) == list(range(251, 301)) and rest.launch.tolist() == list(range(249, 299))


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_any_arrival_gives_the_order_of_the_calls(data: st.DataObject, nodes: list[int]) -> None:
    """0 nodes: a kernel outside graphs; else a graph launch of so many."""
    told = launches(*((i + 1, 0 if n else 1) for i, n in enumerate(nodes)))
    made = [(i + 1, node) for i, n in enumerate(nodes) for node in (range(1, n + 1) if n else [0])]
    arrived = data.draw(st.permutations(made))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)))
    order = LaunchOrder()
    order.add_launches(told)
    taken = []
    for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        order.add_kernels(kernels(*arrived[begin:end]))
        taken.append(order.take())
    taken.append(order.take(final=True))
    assert [o for part in taken for o in orders(part)] == sorted(o for o, _ in made)
    assert np.concatenate([part.launch for part in taken]).tolist() == list(range(len(made)))
    graph = np.concatenate([part.graph_launch for part in taken])
    assert [g for g in np.unique(graph).tolist() if g >= 0] == list(range(sum(n > 0 for n in nodes)))


def test_a_launch_that_is_told_late_takes_the_next_place() -> None:
    """Its thread got the number, and the system stopped it before its call."""
    order = LaunchOrder()
    order.add_launches(launches((2, 1), (4, 1)))
    order.add_kernels(kernels((2, 0), (4, 0)))
    assert orders(order.take()) == [2, 4]
    order.add_kernels(kernels((3, 0)))
    assert order.late == 1, "as far as is known, before its launch is told"
    order.add_launches(launches((3, 1), (1, 1), (5, 1)))
    assert order.late == 0
    assert orders(order.take()) == []
    order.add_kernels(kernels((5, 0), (1, 0)))
    taken = order.take()
    assert orders(taken) == [1, 3, 5]
    assert taken.launch.tolist() == [2, 3, 4] and taken.range.tolist() == [1, 3, 0]
    order.add_kernels(kernels((3, 0)))
    assert order.late == 1 and orders(order.take(final=True)) == []


def test_a_call_that_is_told_late_may_fail() -> None:
    order = LaunchOrder()
    order.add_launches(launches((2, 1)))
    order.add_kernels(kernels((2, 0)))
    assert orders(order.take()) == [2]
    order.add_launches(launches((1, 1), (3, 1)))
    order.add_kernels(kernels((3, 0)))
    assert orders(order.take()) == []
    order.add_launches(launches((1, KERNELS_NONE)))
    assert orders(order.take()) == [3] and order.missing == 0


def test_a_kernel_that_comes_before_its_launch_holds_up_what_is_after_it() -> None:
    order = LaunchOrder()
    order.add_launches(launches((2, 1)))
    order.add_kernels(kernels((1, 0), (2, 0)))
    assert orders(order.take()) == []
    order.add_launches(launches((1, 1)))
    taken = order.take()
    assert orders(taken) == [1, 2] and taken.range.tolist() == [1, 2]


@settings(deadline=None)
@given(st.data(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), min_size=1, max_size=12))
def test_no_kernel_is_late_whenever_threads_tell_their_calls(
    data: st.DataObject, calls: list[tuple[int, int]]
) -> None:
    """Each call has a thread, which tells its calls in their order, and so many kernels."""
    of_threads = [[(i + 1, n) for i, (of, n) in enumerate(calls) if of == thread] for thread in range(4)]
    told = [of_threads[thread].pop(0) for thread in data.draw(st.permutations([of for of, _ in calls]))]
    made = [(order, 0) for order, count in told for _ in range(count)]
    arrived = data.draw(st.permutations(made))
    steps = data.draw(st.permutations(["launch"] * len(told) + ["kernel"] * len(arrived) + ["take"] * 9))
    order, found, late = LaunchOrder(), list[int](), iter(told)
    kernel = iter(arrived)
    for step in steps:
        if step == "launch":
            order.add_launches(launches(next(late)))
        elif step == "kernel":
            order.add_kernels(kernels(next(kernel)))
        else:
            found += orders(order.take())
    found += orders(order.take(final=True))
    assert (order.late, order.missing, order.waiting) == (0, 0, 0)
    assert sorted(found) == sorted(order for order, _ in made)
    for thread in range(4):
        of_thread = [each for each in found if calls[each - 1][0] == thread]
        assert of_thread == sorted(of_thread)


def frame(kind: int, payload: bytes, count: int = 1) -> bytes:
    return np.array([(kind, count, len(payload))], HEADER).tobytes() + payload


STREAM = (
    frame(1, np.zeros(1, HELLO).tobytes())
    + frame(2, np.array([(1, 0, 0, 5)], NAME).tobytes() + b"_Z1fv")
    + frame(3, launches((1, 1), (2, 1)).tobytes(), 2)
    + frame(4, kernels((1, 0)).tobytes())
    + frame(6, np.zeros(1, TOTALS).tobytes())
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_frames_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    parser, found = FrameParser(), []
    edges = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(edges):
        found += list(parser.feed(STREAM[begin:end]))
    assert [one.type.name for one in found] == ["HELLO", "NAME", "LAUNCHES", "KERNELS", "END"]
    assert found[1].text == "_Z1fv" and found[2].records["order"].tolist() == [1, 2]
    assert parser.whole


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(9, b""), "no frame of type 9"),
        (frame(4, b"\0" * 95), "a frame of 1 records has 95 bytes"),
        (frame(5, b"\0" * 8), "TOTALS has only 8 bytes"),
        (np.array([(4, 1, 1 << 40)], HEADER).tobytes(), "1,099,511,627,776 bytes"),
    ],
)
def test_a_stream_that_is_not_the_tracers_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        list(FrameParser().feed(data))


def named(*entries: tuple[int, int, int, str]) -> ProcessNames:
    names = ProcessNames()
    for identifier, parent, kind, text in entries:
        names.add(Frame(FrameType.NAME, np.array([(identifier, parent, kind, len(text))], NAME), text))
    return names


def test_names_are_demangled_and_ranges_become_paths_with_their_operator() -> None:
    assert demangled("_Z8kernel_1Pfi") == "kernel_1(float *, int)"
    assert demangled("plain") == "plain" and demangled("_Zbroken") == "_Zbroken"
    names = named(
        (1, 0, 0, "_Z1fIfEvPT_"), (2, 0, 1, "step"), (3, 2, 1, "aten::linear"),
        (4, 3, 1, "aten::addmm, sizes = [[2], [2, 3]]"), (5, 2, 1, "my, own range"),
    )  # fmt: skip
    assert names.kernels(np.array([1, 1]))[0] == ["void f<float>(T1 *)"]
    texts, index = names.ranges(np.array([5, 4, 3, 0]))
    assert [texts[i] for i in index] == [
        ("step/my, own range", "", ""),
        ("step/aten::linear/aten::addmm, sizes = [[2], [2, 3]]", "aten::addmm", "[[2], [2, 3]]"),
        ("step/aten::linear", "aten::linear", ""),
        ("", "", ""),
    ]
