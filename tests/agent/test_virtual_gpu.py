"""The virtual GPU: exact where the model is exact, physically sane elsewhere, and the same everywhere."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_agent.virtual import (
    ARCHITECTURES,
    CALL_DURATION_NS,
    ProcessLaunches,
    VirtualGPU,
    Workload,
    architecture,
    load_workload,
)
from assay_agent.virtual.memory import walk
from assay_agent.virtual.randomness import drift, key_of, lognormal, uniform
from assay_agent.virtual.sequence import launch_sequence
from assay_agent.virtual.timing import COLD_CODE_NS, blocks_per_sm, demand_of, time_of
from assay_sampling.counters import registry
from assay_sampling.errors import InputError, ParameterError
from assay_sampling.launch_table import BASELINE, Condition
from assay_sampling.readers.nesting import Ranges

EXAMPLES = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
FLUSHED = Condition("all", "none", 100.0)
HALF = Condition("none", "none", 50.0)
BASE = Condition("none", "base", 100.0)

COMPUTE = """
[kernels.{key}]
name = "compute_{key}"
block = 256
registers = 32
instructions = 1000
"""

MIXED = """
workload = "mixed"
seed = 5
processes = 2
[buffers]
a = "2 MiB"
b = "3 MiB"
c = "64 MiB"
[kernels.tile]
name = "void tile<float>(float*)"
block = [16, 16]
registers = 64
static_shared_bytes = 8192
instructions = 900
global_loads = 60
global_stores = 4
shared_loads = 100
async_copies = 3
reads = { a = 1.0 }
writes = { b = 1.0 }
[kernels.stream]
name = "void stream<float>(float*)"
block = 256
instructions = 40
global_loads = 8
global_stores = 8
reads = { b = 1.0, c = 0.4 }
writes = { a = 0.5 }
[kernels.tried]
name = "void tried<float>(float*)"
block = 128
instructions = 60
grid_factor = 0.5
[autotune]
kernel = "tile"
candidates = ["tried", "tile"]
launches = 5
[[phases]]
repeat = 12
nvtx = "step"
host_ns = 20_000
synchronize = true
variables.size = { choices = [1, 3], hold = 0.5 }
variables.skew = { spread = 0.3 }
[[phases.steps]]
repeat = 3
nvtx = "layer"
steps = [
  { kernel = "tile", grid = [[40], [20, 4], [7]], grid_by = "size", stream = 7 },
  { kernel = "stream", grid = 64, work_spread = 0.2, stream = 8 },
]
[[phases.steps]]
graph = true
steps = [
  { kernel = "tile", grid = 30 },
  { kernel = "stream", grid = 200, work_by = "skew" },
  { kernel = "tile", grid = 9 },
]
"""


def _workload(directory: Path, text: str) -> Workload:
    path = directory / "workload.toml"
    path.write_text(text)
    return load_workload(path)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Variables, tables, graphs, streams, two processes, autotuning."""
    return _workload(tmp_path_factory.mktemp("mixed"), MIXED)


def _compute_bound(directory: Path, grids: list[int]) -> Workload:
    steps = ", ".join(f'{{ kernel = "k", grid = {grid} }}' for grid in grids)
    return _workload(
        directory,
        f'workload = "compute"\n{COMPUTE.format(key="k")}[[phases]]\nsteps = [{steps}]\n',
    )


def _streaming(directory: Path, megabytes: int, repeat: int = 2) -> Workload:
    """A kernel that reads a buffer once, front to back: 16 loads of 512 bytes a warp."""
    grid = megabytes * (1 << 20) // (16 * 512 * 8)
    return _workload(
        directory,
        f'workload = "stream"\nbuffers.data = "{megabytes} MiB"\n'
        '[kernels.k]\nname = "stream"\nblock = 256\ninstructions = 40\nglobal_loads = 16\n'
        "sectors_per_load = 16.0\nreads = { data = 1.0 }\n"
        f'[[phases]]\nrepeat = {repeat}\nsteps = [{{ kernel = "k", grid = {grid} }}]\n',
    )


def _ideal_ns(kind: str, workload: Workload, sm_count: int | None = None) -> np.ndarray:
    """Durations without noise, at the base clock."""
    gpu = architecture(kind)
    sequence = launch_sequence(workload, 0, gpu.compute_capability, stop=10**6, autotune=False)
    demand = demand_of(gpu, workload, sequence, flushed=False)
    clock = np.full(len(sequence), float(gpu.base_clock_hz))
    return time_of(gpu, demand, sm_count or gpu.sm_count, clock).duration_ns


def _same(left: ProcessLaunches, right: ProcessLaunches) -> None:
    """Every column equal to the last bit, without the ranges."""
    for field in dataclasses.fields(ProcessLaunches):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.name == "counters":
            assert list(one) == list(other)
            for name, values in one.items():
                np.testing.assert_array_equal(values, other[name], err_msg=name)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        elif field.name not in ("ranges", "texts"):
            assert one == other, field.name


# Exactness


def test_waves_and_tail_are_as_computed_by_hand(tmp_path: Path) -> None:
    # V100: 80 SMs; 8 warps a block and 64 warps an SM make 8 blocks an SM, 640 a wave.
    # An SM issues min(4, warps x 0.25) instructions a cycle, so a full one takes 64 x 1000 / 4 cycles.
    by_hand = {
        1: 8 * 1000 / 2,  # one block: 8 warps issue 2 a cycle
        80: 8 * 1000 / 2,  # one block on every SM
        81: 16 * 1000 / 4,  # two on one SM: 16 warps issue 4 a cycle
        161: 24 * 1000 / 4,  # three on one SM
        640: 64 * 1000 / 4,  # one full wave
        641: 64 * 1000 / 4 + 8 * 1000 / 2,  # and a tail of one block
        1281: 2 * 64 * 1000 / 4 + 8 * 1000 / 2,
        1600: 2 * 64 * 1000 / 4 + 32 * 1000 / 4,  # and a tail of four blocks on every SM
    }
    workload = _compute_bound(tmp_path, list(by_hand))
    gpu = architecture("V100")
    sequence = launch_sequence(workload, 0, "7.0", stop=99, autotune=False)
    demand = demand_of(gpu, workload, sequence, flushed=False)
    timing = time_of(gpu, demand, 80, np.full(len(by_hand), 1e9))
    assert timing.compute_cycles.tolist() == list(by_hand.values())
    cold = [COLD_CODE_NS] + [0.0] * (len(by_hand) - 1)
    assert timing.duration_ns.tolist() == pytest.approx(
        [1600.0 + extra + cycles for extra, cycles in zip(cold, by_hand.values(), strict=True)]
    )
    assert timing.waves.tolist() == [blocks / 640 for blocks in by_hand]
    (launched,) = VirtualGPU("V100").execute(workload, level="detailed", condition=BASE)
    assert launched.counters["waves_per_sm"].tolist() == [round(blocks / 640, 2) for blocks in by_hand]


@pytest.mark.parametrize(
    ("kind", "fields", "blocks"),
    [
        ("V100", {}, 8),  # 64 warps / 8
        ("RTX 2060", {}, 4),  # 32 warps / 8
        ("RTX 3070", {}, 6),  # 48 warps / 8
        ("V100", {"block": 32}, 32),  # at most 32 blocks
        ("RTX 3070", {"block": 32}, 16),  # at most 16 blocks
        ("V100", {"registers": 128}, 2),  # 65,536 / (128 x 32) = 16 warps
        ("V100", {"registers": 65}, 3),  # 65 x 32 rounded up to 2,304: 28 warps
        ("V100", {"static_shared_bytes": 24576}, 4),  # 96 KiB / 24 KiB
        ("V100", {"dynamic_shared_bytes": '"96 KiB"'}, 1),
        ("A100", {"static_shared_bytes": 49152}, 3),  # 164 KiB / (48 KiB + 1 KiB reserved)
        ("RTX 2060", {"dynamic_shared_bytes": '"96 KiB"'}, 0),  # more than a block may have
        ("RTX 2060", {"block": 1024, "registers": 128}, 0),  # 32 warps need 131,072 registers
    ],
)
def test_blocks_of_an_sm_are_limited_by_warps_registers_and_shared_memory(
    tmp_path: Path, kind: str, fields: dict[str, object], blocks: int
) -> None:
    replaced = COMPUTE.format(key="k")
    for name, value in fields.items():
        if f"{name} =" in replaced:
            replaced = "\n".join(
                f"{name} = {value}" if line.startswith(f"{name} =") else line for line in replaced.split("\n")
            )
        else:
            replaced += f"{name} = {value}\n"
    workload = _workload(
        tmp_path,
        f'workload = "fit"\n{replaced}[[phases]]\nsteps = [{{ kernel = "k", grid = 1 }}]\n',
    )
    assert blocks_per_sm(architecture(kind), workload.kernels["k"]) == blocks
    if not blocks:
        with pytest.raises(InputError, match="no block of it fits") as caught:
            VirtualGPU(kind).execute(workload, level="light")
        assert caught.value.field == "kernels.k"


def test_the_cache_is_walked_as_by_hand() -> None:
    launches = [
        ((0,), [60], [0]),  # all of buffer 0 is missed
        ((1,), [0], [60]),  # written whole, so not read; 20 clean bytes of buffer 0 go
        ((0,), [60], [0]),  # 20 missed; 20 of the 60 dirty bytes of buffer 1 are written back
        ((1,), [60], [0]),  # 20 missed; 20 clean bytes of buffer 0 go
        ((), [], []),
        ((2,), [250], [0]),  # more than the cache: everything else goes, 40 dirty bytes of buffer 1 too
        ((2,), [250], [0]),  # only 100 stayed
    ]
    missed, written = walk(launches, 100, flushed=False)
    assert missed.tolist() == [60, 0, 20, 20, 0, 250, 150]
    assert written.tolist() == [0, 0, 20, 0, 0, 40, 0]
    missed, written = walk(launches, 100, flushed=True)
    assert missed.tolist() == [60, 0, 60, 60, 0, 250, 250]
    assert written.tolist() == [0, 0, 0, 0, 0, 0, 0]


def test_counters_of_a_kernel_are_as_computed_by_hand(tmp_path: Path) -> None:
    workload = _workload(
        tmp_path,
        'workload = "count"\n[buffers]\ndata = "1 MiB"\n[kernels.k]\nname = "k"\nblock = [24, 4]\n'
        "instructions = 100\nactive_threads = 16.0\nglobal_loads = 8\ngeneric_loads = 2\nglobal_stores = 3\n"
        "global_atomics = 1\nlocal_loads = 4\nlocal_stores = 2\nshared_loads = 6\nshared_stores = 5\n"
        "sectors_per_load = 8.0\nsectors_per_store = 2.0\nl1_hit_percent = 25.0\nreads = { data = 1.0 }\n"
        '[[phases]]\nsteps = [{ kernel = "k", grid = [5, 2], work = 2.0 }]\n',
    )
    (launched,) = VirtualGPU("V100").execute(workload, level="detailed", condition=BASE)
    counters = {name: values[0] for name, values in launched.counters.items()}
    warps = 10 * 3 * 2.0  # blocks x warps x work
    load_sectors, local_sectors = warps * 10 * 8, warps * 4 * 4
    expected = {
        "thread_blocks": 10,
        "instructions": warps * 100,
        "sm_instructions": warps * 100,
        "thread_instructions": warps * 100 * 16,
        "threads_per_instruction": 16,
        "global_load_instructions": warps * 8,
        "global_load_instructions_sass": warps * 10,
        "artifact_global_loads": warps * 10,
        "global_store_instructions": warps * 3,
        "global_atomic_instructions": warps,
        "local_load_instructions": warps * 4,
        "shared_load_instructions": warps * 6,
        "shared_store_instructions": warps * 5,
        "global_load_sectors": load_sectors,
        "global_store_sectors": warps * 3 * 2,
        "local_load_sectors": local_sectors,
        "local_store_sectors": warps * 2 * 4,
        "dram_read_bytes": (load_sectors + local_sectors) * 0.75 * 32,  # less than the buffer
        "dram_write_bytes": (warps * 3 * 2 + warps * 2 * 4 + warps * 16) * 32,  # no buffer named: it streams
        "l1_hit_percent": round(
            25 * (load_sectors + local_sectors) / (load_sectors + local_sectors + warps * 14), 2
        ),
    }
    assert {name: counters[name] for name in expected} == expected
    assert counters["dram_bytes"] == counters["dram_read_bytes"] + counters["dram_write_bytes"]
    assert counters["clock_gpc_hz"] == pytest.approx(1.312e9, rel=0.02)
    assert counters["cycles_gpc_max"] == pytest.approx(1.312 * counters["profiled_duration_ns"], rel=0.02)
    assert 0.99 * counters["cycles_gpc_max"] < counters["cycles_gpc_avg"] < counters["cycles_gpc_max"]
    assert counters["profiled_duration_ns"] % 32 == 0


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


# Physical sanity


def test_compute_bound_launches_get_faster_with_sms_and_clock(tmp_path: Path) -> None:
    workload = _compute_bound(tmp_path, [20_000])
    full, half = _ideal_ns("V100", workload)[0], _ideal_ns("V100", workload, 40)[0]
    assert half / full == pytest.approx(2.0, rel=0.02)
    by_rate = sorted(ARCHITECTURES.values(), key=lambda gpu: gpu.sm_count * gpu.base_clock_hz)
    times = [_ideal_ns(gpu.kind, workload)[0] for gpu in by_rate]
    assert times == sorted(times, reverse=True)


def test_launches_bound_by_device_memory_do_not_feel_half_of_the_sms(tmp_path: Path) -> None:
    workload = _streaming(tmp_path, 256)
    for kind, gpu in ARCHITECTURES.items():
        full, half = (_ideal_ns(kind, workload, share)[1] for share in (None, gpu.sm_count // 4 * 2))
        assert half / full == pytest.approx(1.0, rel=0.01), kind
        # 256 MiB at 88 % of the bandwidth, and nothing else but the launch.
        missed = 256 * 2**20 - gpu.l2_bytes
        assert full == pytest.approx(gpu.launch_ns + missed / (0.88e-9 * gpu.dram_bytes_per_second))


def test_small_launches_cost_little_but_the_launch_and_do_not_feel_half_of_the_sms(tmp_path: Path) -> None:
    workload = _compute_bound(tmp_path, [1, 4])
    assert _ideal_ns("V100", workload, 40).tolist() == _ideal_ns("V100", workload, 80).tolist()


def test_a_tail_makes_the_last_block_dear(tmp_path: Path) -> None:
    workload = _compute_bound(tmp_path, [640, 640, 641])
    _, wave, tail = _ideal_ns("V100", workload)
    assert tail - wave == pytest.approx(4000 / 1.312)


def test_flushing_costs_what_would_have_been_found(tmp_path: Path) -> None:
    workload = _streaming(tmp_path, 3, repeat=4)
    (warm,) = VirtualGPU("V100").execute(workload, level="detailed")
    (cold,) = VirtualGPU("V100").execute(workload, level="detailed", condition=FLUSHED)
    assert warm.counters["dram_read_bytes"].tolist() == [3 << 20, 0, 0, 0]
    assert cold.counters["dram_read_bytes"].tolist() == [3 << 20] * 4
    assert warm.counters["l2_hit_percent"].tolist() == [0.0, 100.0, 100.0, 100.0]
    cycles = cold.counters["cycles_gpc_avg"] / warm.counters["cycles_gpc_avg"]
    assert cycles[0] == pytest.approx(1.0, abs=0.03)
    assert (cycles[1:] > 1.3).all()


def test_what_exceeds_the_cache_does_not_profit_from_it(tmp_path: Path) -> None:
    workload = _streaming(tmp_path, 512)
    (warm,) = VirtualGPU("RTX 2060").execute(workload, level="detailed")
    (cold,) = VirtualGPU("RTX 2060").execute(workload, level="detailed", condition=FLUSHED)
    assert warm.counters["cycles_gpc_avg"].sum() == pytest.approx(
        cold.counters["cycles_gpc_avg"].sum(), rel=0.02
    )


def test_a_locked_clock_holds_and_a_free_one_drifts_below_boost(tmp_path: Path) -> None:
    workload = _compute_bound(tmp_path, [50_000] * 400)
    gpu = VirtualGPU("V100")
    hz = {}
    for clock in ("none", "base", "boost"):
        (launched,) = gpu.execute(workload, level="detailed", condition=Condition("none", clock, 100.0))  # type: ignore[arg-type]
        hz[clock] = launched.counters["clock_gpc_hz"]
    assert hz["base"] == pytest.approx(1.312e9, rel=1e-3)
    assert hz["boost"] == pytest.approx(1.53e9, rel=1e-3)
    assert (hz["none"] <= 1.53e9 * 1.0001).all()
    assert (hz["none"] >= 0.97 * 1.53e9).all()
    assert np.ptp(hz["none"]) > 1e5
    assert np.abs(np.diff(hz["none"])).max() < 1e6  # slowly


def test_noise_is_small_and_smaller_under_the_profiler(tmp_path: Path) -> None:
    workload = _workload(
        tmp_path,
        f'workload = "noise"\n{COMPUTE.format(key="k")}[[phases]]\nrepeat = 5000\n'
        'steps = [{ kernel = "k", grid = 6400 }]\n',
    )
    locked = Condition("none", "base", 100.0)
    (light,) = VirtualGPU("V100").execute(workload, level="light", condition=locked)
    (detailed,) = VirtualGPU("V100").execute(workload, level="detailed", condition=locked)
    free = light.duration_ns[1:] / np.median(light.duration_ns)
    profiled = detailed.counters["cycles_gpc_max"][1:] / np.median(detailed.counters["cycles_gpc_max"])
    assert free.std() == pytest.approx(0.015, rel=0.05)
    assert profiled.std() == pytest.approx(0.003, rel=0.05)
    assert len(set(detailed.counters["instructions"].tolist())) == 1


@pytest.mark.parametrize(
    ("kind", "percent", "sms"),
    [("V100", 100, 80), ("V100", 50, 40), ("V100", 99, 78), ("V100", 1, 2), ("RTX 2060", 50, 14),
     ("RTX 3070", 50, 22), ("A100", 33, 34), ("H100", 10, 12), ("V100", 62.5, 50)],
)  # fmt: skip
def test_a_share_of_the_sms_is_rounded_down_to_pairs(kind: str, percent: float, sms: int) -> None:
    assert VirtualGPU(kind).effective_sms(percent) == sms


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
        workload = _workload(tmp_path, text.replace("GRID", str(grid)))
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
    off = mixed.model_copy(update={"autotune": mixed.autotune.model_copy(update={"enabled": False})})  # type: ignore[union-attr]
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
    workload = _workload(tmp_path, text)
    for level in ("light", "detailed"):
        begin = time.process_time()
        (launched,) = VirtualGPU("V100").execute(workload, level=level)  # type: ignore[arg-type]
        assert len(launched) == 100_008
        assert time.process_time() - begin < 4.0
