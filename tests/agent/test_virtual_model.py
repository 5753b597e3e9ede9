"""The model of the virtual GPU: exact where it can be computed by hand, physically sane elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import InputError
from assay_sampling.launches.table import Condition
from assay_virtual.architectures import ARCHITECTURES, architecture
from assay_virtual.model.demand import blocks_per_sm, demand_of
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.model.memory import walk
from assay_virtual.model.sequence import launch_sequence
from assay_virtual.model.timing import COLD_CODE_NS, time_of
from assay_virtual.workloads.workload import Workload
from tests.support.agent.virtual_workloads import COMPUTE, compute_bound, streaming, written

FLUSHED = Condition("all", "none", 100.0)
BASE = Condition("none", "base", 100.0)


def _ideal_ns(kind: str, workload: Workload, sm_count: int | None = None) -> np.ndarray:
    """Durations without noise, at the base clock."""
    gpu = architecture(kind)
    sequence = launch_sequence(workload, 0, gpu.compute_capability, stop=10**6, autotune=False)
    demand = demand_of(gpu, workload, sequence, flushed=False)
    clock = np.full(len(sequence), float(gpu.base_clock_hz))
    return time_of(gpu, demand, sm_count or gpu.sm_count, clock).duration_ns


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
    workload = compute_bound(tmp_path, list(by_hand))
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
    workload = written(
        tmp_path,
        f'workload = "fit"\n{replaced}[[phases]]\nsteps = [{{ kernel = "k", grid = 1 }}]\n',
    )
    assert blocks_per_sm(architecture(kind), workload.kernels["k"]) == blocks
    if not blocks:
        with pytest.raises(InputError, match="its blocks do not fit") as caught:
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
    workload = written(
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


# Physical sanity


def test_compute_bound_launches_get_faster_with_sms_and_clock(tmp_path: Path) -> None:
    workload = compute_bound(tmp_path, [20_000])
    full, half = _ideal_ns("V100", workload)[0], _ideal_ns("V100", workload, 40)[0]
    assert half / full == pytest.approx(2.0, rel=0.02)
    by_rate = sorted(ARCHITECTURES.values(), key=lambda gpu: gpu.sm_count * gpu.base_clock_hz)
    times = [_ideal_ns(gpu.kind, workload)[0] for gpu in by_rate]
    assert times == sorted(times, reverse=True)


def test_launches_bound_by_device_memory_do_not_feel_half_of_the_sms(tmp_path: Path) -> None:
    workload = streaming(tmp_path, 256)
    for kind, gpu in ARCHITECTURES.items():
        full, half = (_ideal_ns(kind, workload, share)[1] for share in (None, gpu.sm_count // 4 * 2))
        assert half / full == pytest.approx(1.0, rel=0.01), kind
        # 256 MiB at 88 % of the bandwidth, and nothing else but the launch.
        missed = 256 * 2**20 - gpu.l2_bytes
        assert full == pytest.approx(gpu.launch_ns + missed / (0.88e-9 * gpu.dram_bytes_per_second))


def test_small_launches_cost_little_but_the_launch_and_do_not_feel_half_of_the_sms(tmp_path: Path) -> None:
    workload = compute_bound(tmp_path, [1, 4])
    assert _ideal_ns("V100", workload, 40).tolist() == _ideal_ns("V100", workload, 80).tolist()


def test_a_tail_makes_the_last_block_dear(tmp_path: Path) -> None:
    workload = compute_bound(tmp_path, [640, 640, 641])
    _, wave, tail = _ideal_ns("V100", workload)
    assert tail - wave == pytest.approx(4000 / 1.312)


def test_flushing_costs_what_would_have_been_found(tmp_path: Path) -> None:
    workload = streaming(tmp_path, 3, repeat=4)
    (warm,) = VirtualGPU("V100").execute(workload, level="detailed")
    (cold,) = VirtualGPU("V100").execute(workload, level="detailed", condition=FLUSHED)
    assert warm.counters["dram_read_bytes"].tolist() == [3 << 20, 0, 0, 0]
    assert cold.counters["dram_read_bytes"].tolist() == [3 << 20] * 4
    assert warm.counters["l2_hit_percent"].tolist() == [0.0, 100.0, 100.0, 100.0]
    cycles = cold.counters["cycles_gpc_avg"] / warm.counters["cycles_gpc_avg"]
    assert cycles[0] == pytest.approx(1.0, abs=0.03)
    assert (cycles[1:] > 1.3).all()


def test_what_exceeds_the_cache_does_not_profit_from_it(tmp_path: Path) -> None:
    workload = streaming(tmp_path, 512)
    (warm,) = VirtualGPU("RTX 2060").execute(workload, level="detailed")
    (cold,) = VirtualGPU("RTX 2060").execute(workload, level="detailed", condition=FLUSHED)
    assert warm.counters["cycles_gpc_avg"].sum() == pytest.approx(
        cold.counters["cycles_gpc_avg"].sum(), rel=0.02
    )


def test_a_locked_clock_holds_and_a_free_one_drifts_below_boost(tmp_path: Path) -> None:
    workload = compute_bound(tmp_path, [50_000] * 400)
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
    workload = written(
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
