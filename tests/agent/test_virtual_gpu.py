"""Executing workloads on the virtual GPU: the same everywhere, in slices, in time, and marked."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.counters.definitions import registry
from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.readers.nesting import Ranges
from assay_virtual.architectures import ARCHITECTURES, architecture
from assay_virtual.model.gpu import ProcessLaunches, VirtualGPU
from assay_virtual.model.randomness import drift, key_of, lognormal, uniform
from assay_virtual.model.timeline import CALL_DURATION_NS
from assay_virtual.workloads.loading import load_workload
from assay_virtual.workloads.workload import Workload
from tests.support.agent.virtual_workloads import COMPUTE, MIXED, written

EXAMPLES = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
FLUSHED = Condition("all", "none", 100.0)
HALF = Condition("none", "none", 50.0)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Variables, tables, graphs, streams, two processes, autotuning."""
    return written(tmp_path_factory.mktemp("mixed"), MIXED)


def _same(left: ProcessLaunches, right: ProcessLaunches) -> None:
    """Every column equal to the last bit, without the ranges and the calls of operators."""
    for field in dataclasses.fields(ProcessLaunches):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.name == "counters":
            assert list(one) == list(other)
            for name, values in one.items():
                np.testing.assert_array_equal(values, other[name], err_msg=name)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        elif field.name not in ("ranges", "texts", "operators"):
            assert one == other, field.name


# Determinism


def test_the_same_numbers_come_out_on_every_machine(mixed: Workload) -> None:
    """Recorded once; a change of the model changes them on purpose, and says so in docs/virtual-gpu.md."""
    key = key_of("a", 1)
    assert int(key) == GOLDEN["key"]
    assert uniform(key, np.arange(2)).tolist() == GOLDEN["uniform"]
    assert lognormal(key, np.arange(2), 0.2).tolist() == GOLDEN["lognormal"]
    assert drift(key, np.array([0, 3000])).tolist() == GOLDEN["drift"]
    (light,) = VirtualGPU("RTX 3070").execute(mixed, level="light", process=1, skip=10, count=4)
    assert light.duration_ns.tolist() == GOLDEN["duration_ns"]
    assert light.start_ns.tolist() == GOLDEN["start_ns"]
    (detailed,) = VirtualGPU("V100").execute(mixed, level="detailed", process=0, skip=10, count=4)
    assert detailed.counters["cycles_gpc_avg"].tolist() == GOLDEN["cycles_gpc_avg"]
    assert detailed.counters["dram_bytes"].tolist() == GOLDEN["dram_bytes"]


GOLDEN = {
    "key": 13924241962069754241,
    "uniform": [0.7134313302589835, 0.819878112781872],
    "lognormal": [1.1009870857294524, 0.829598980379402],
    "drift": [0.7134313302589835, 0.7980574976712073],
    "duration_ns": [1899, 4671, 1880, 3339],
    "start_ns": [1360561, 1367217, 1372599, 1378056],
    "cycles_gpc_avg": [3161.89, 6382.66, 3275.41, 6355.26],
    "dram_bytes": [0.0, 0.0, 0.0, 0.0],
}


@settings(max_examples=40, deadline=None)
@given(
    skip=st.integers(0, 130),
    count=st.none() | st.integers(0, 130),
    level=st.sampled_from(["light", "detailed"]),
    kind=st.sampled_from(list(ARCHITECTURES)),
    process=st.none() | st.integers(0, 1),
    percent=st.sampled_from([100.0, 50.0]),
    cache=st.sampled_from(["none", "all"]),
)
def test_a_slice_is_exactly_that_part_of_the_whole_run(
    mixed: Workload,
    *,
    skip: int,
    count: int | None,
    level: str,
    kind: str,
    process: int | None,
    percent: float,
    cache: str,
) -> None:
    condition = Condition("none" if level == "light" else cache, "none", percent)  # type: ignore[arg-type]
    gpu = VirtualGPU(kind)
    whole = gpu.execute(mixed, level=level, condition=condition)  # type: ignore[arg-type]
    parts = gpu.execute(
        mixed, level=level, condition=condition, process=process, skip=skip, count=count  # type: ignore[arg-type]
    )  # fmt: skip
    assert [part.process for part in parts] == ([0, 1] if process is None else [process])
    for part in parts:
        full = whole[part.process]
        stop = None if count is None else skip + count
        assert len(part) == len(range(len(full))[skip:stop])
        cut = {
            field.name: getattr(full, field.name)[skip:stop]
            for field in dataclasses.fields(full)
            if isinstance(getattr(full, field.name), np.ndarray) and len(getattr(full, field.name))
        }
        counters = {name: values[skip:stop] for name, values in full.counters.items()}
        _same(part, dataclasses.replace(full, **cut, counters=counters))


def test_runs_differ_by_seed_process_condition_and_kind_but_not_by_gpu(mixed: Workload) -> None:
    def durations(gpu: VirtualGPU, condition: Condition = BASELINE) -> list[list[int]]:
        return [p.duration_ns.tolist() for p in gpu.execute(mixed, level="light", condition=condition)]

    first = durations(VirtualGPU("V100", 0))
    assert durations(VirtualGPU("V100", 7)) == first
    assert durations(VirtualGPU("V100", seed=1)) != first
    assert first[0] != first[1]
    # The noise of a half GPU is another run's: no launch has exactly the ratio of another.
    assert len({a / b for a, b in zip(first[0], durations(VirtualGPU("V100"), HALF)[0], strict=True)}) > 60


def test_what_is_not_recorded_of_a_condition_is_as_in_the_baseline(mixed: Workload) -> None:
    (one,) = VirtualGPU("A100").execute(mixed, level="light", condition=Condition(), process=0)
    (other,) = VirtualGPU("A100").execute(mixed, level="light", process=0)
    _same(one, other)


# Free-running time


def test_launches_of_one_stream_never_overlap_and_of_several_do() -> None:
    workload = load_workload(EXAMPLES / "pipeline.toml")
    launched = VirtualGPU("V100").execute(workload, level="light", process=0)[0]
    end_ns = launched.start_ns + launched.duration_ns
    for stream in (13, 14):
        rows = np.flatnonzero(launched.stream == stream)
        assert (launched.start_ns[rows][1:] >= end_ns[rows][:-1]).all()
    order = np.argsort(launched.start_ns, kind="stable")
    overlapping = launched.start_ns[order][1:] < np.maximum.accumulate(end_ns[order])[:-1]
    assert overlapping.mean() > 0.05


def test_launches_that_fill_the_gpu_take_turns(tmp_path: Path) -> None:
    text = (
        f'workload = "streams"\n{COMPUTE.format(key="k")}[[phases]]\nrepeat = 20\n'
        'steps = [{ kernel = "k", grid = GRID, stream = 1 }, { kernel = "k", grid = GRID, stream = 2 }]\n'
    )
    for grid, alone in ((640, True), (320, False)):
        workload = written(tmp_path, text.replace("GRID", str(grid)))
        (launched,) = VirtualGPU("V100").execute(workload, level="light")
        ends = launched.start_ns + launched.duration_ns
        assert bool((launched.start_ns[1:] >= ends[:-1]).all()) is alone


def test_calls_come_before_starts_and_nodes_of_a_graph_start_in_order(mixed: Workload) -> None:
    for launched in VirtualGPU("H100").execute(mixed, level="light"):
        assert (np.diff(launched.call_ns) >= 0).all()
        assert (launched.start_ns > launched.call_ns + CALL_DURATION_NS).all()
        same = np.diff(launched.call) == 0
        assert (np.diff(launched.call_ns)[same] == 0).all()
        assert (np.diff(launched.call_ns)[~same] >= 4000).all()
        assert (np.diff(launched.start_ns)[same] > 0).all()
        assert same.sum() == 12 * 2


def test_the_ranges_give_each_launch_its_nvtx_path(mixed: Workload) -> None:
    for launched in VirtualGPU("V100").execute(mixed, level="light", skip=17):
        ranges = launched.ranges
        labels = ranges.text.astype(np.int32)
        call_ns = launched.call_ns
        stacks = Ranges(ranges.start_ns, ranges.end_ns, labels).stacks(call_ns, call_ns + CALL_DURATION_NS)
        paths = ["/".join(ranges.texts[i] for i in row[::-1] if i >= 0) for row in stacks.tolist()]
        assert paths == [launched.texts[i] for i in launched.nvtx.tolist()]
        assert set(paths) == {"step", "step/layer"}


@pytest.mark.parametrize("kind", list(ARCHITECTURES))
def test_every_canonical_counter_that_the_architecture_has_is_counted(kind: str, mixed: Workload) -> None:
    gpu = VirtualGPU(kind)
    (launched,) = gpu.execute(mixed, level="detailed", process=0, count=3)
    capability = gpu.device.compute_capability
    expected = {
        name
        for name, counter in registry().items()
        if any(metric.exists_on(capability, "") for metric in counter.metrics)
    }
    assert set(launched.counters) == expected - {"replay_passes"}
    assert ("async_copy_instructions" in expected) == (kind in ("A100", "RTX 3070", "H100"))


# Autotuning, marks, bad requests, speed


def test_an_autotuner_launches_other_kernels_under_a_profiler_alone(mixed: Workload) -> None:
    gpu = VirtualGPU("V100")

    def names(**options: object) -> list[str]:
        (launched,) = gpu.execute(mixed, process=0, **options)  # type: ignore[arg-type]
        return [launched.kernels[i].name.split("<")[0].split()[-1] for i in launched.kernel.tolist()]

    free, seen = names(level="light"), names(level="detailed")
    tiles = [row for row, name in enumerate(free) if name == "tile"]
    assert [seen[row] for row in tiles[:6]] == ["tried", "tile", "tried", "tile", "tried", "tile"]
    assert [row for row, (a, b) in enumerate(zip(free, seen, strict=True)) if a != b] == tiles[:5:2]
    assert names(level="light", profiled=True) == seen
    assert names(level="detailed", profiled=False) == free
    off = dataclasses.replace(mixed, autotune=dataclasses.replace(mixed.autotune, enabled=False))  # type: ignore[type-var]
    (launched,) = gpu.execute(off, level="detailed", process=0)
    assert "tried" not in {launched.kernels[i].name for i in launched.kernel[:20]}


@pytest.mark.parametrize("kind", list(ARCHITECTURES))
def test_everything_is_marked_synthetic_and_named_virtual(kind: str) -> None:
    gpu = VirtualGPU(kind, 3)
    for level in ("light", "detailed"):
        metadata = gpu.metadata(level, HALF)  # type: ignore[arg-type]
        assert metadata.synthetic is True
        assert metadata.condition == HALF
        assert metadata.devices == (gpu.device,)
    assert gpu.device.name == f"virtual {kind}"
    assert gpu.device.uuid == f"GPU-virtual-{kind.replace(' ', '-')}-3"
    assert gpu.device.index == 3
    assert gpu.device.sm_count == ARCHITECTURES[kind].sm_count


def test_kinds_are_found_however_they_are_written() -> None:
    assert architecture("rtx-2060") is architecture("virtual RTX 2060") is ARCHITECTURES["RTX 2060"]
    with pytest.raises(ParameterError, match=r"there is no kind 'K80'.*V100, RTX 2060"):
        VirtualGPU("K80")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"skip": -1}, "skip=-1"),
        ({"count": -1}, "count=-1"),
        ({"process": 2}, "2 is not in 0 to 1"),
        ({"process": -1}, "-1 is not in 0 to 1"),
        ({"condition": FLUSHED}, "nothing flushes"),
        ({"condition": Condition("none", "none", 0.0)}, "not above 0"),
        ({"condition": Condition("none", "none", 101.0)}, "at most 100"),
        ({"condition": Condition("none", "none", float("nan"))}, "not above 0"),
    ],
)
def test_what_cannot_be_executed_is_refused(mixed: Workload, options: dict[str, object], cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        VirtualGPU("V100").execute(mixed, level="light", **options)  # type: ignore[arg-type]


def test_a_slice_past_the_end_is_empty(mixed: Workload) -> None:
    for level in ("light", "detailed"):
        for slice_ in ({"skip": 1000}, {"skip": 3, "count": 0}, {"skip": 0, "count": 0}):
            (launched,) = VirtualGPU("V100").execute(mixed, level=level, process=0, **slice_)  # type: ignore[arg-type]
            assert len(launched) == 0
            assert launched.total_launches == 108
            assert launched.grid.shape == (0, 3)


def test_a_hundred_thousand_launches_take_about_a_second(tmp_path: Path) -> None:
    """About half a second of one core; the bound leaves room for a slow and busy machine."""
    text = MIXED.replace("repeat = 12", "repeat = 11_112").replace("processes = 2", "processes = 1")
    workload = written(tmp_path, text)
    for level in ("light", "detailed"):
        begin = time.process_time()
        (launched,) = VirtualGPU("V100").execute(workload, level=level)  # type: ignore[arg-type]
        assert len(launched) == 100_008
        assert time.process_time() - begin < 4.0
