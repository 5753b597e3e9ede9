"""Sieve and STEM+ROOT beside one sort of their two columns, in CPU seconds of one process.

python -m tests.bench.selection [LAUNCHES ...]      ratios, time by size, memory
python -m tests.bench.selection --recordings DIR    errors and speedups on real recordings

*Selection* is from the columns to representatives and weights. *Whole* is ``select(...)``: that, the scores,
and the hashes that tell which recording it was made on. The launches are synthetic, from a seeded generator.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.counters.definitions import registry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata, launch_schema
from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.registry import select
from assay_sampling.methods.sieve import sampler as sieve_method
from assay_sampling.methods.stem import sampler as stem_method
from assay_sampling.readers.opening import read_launches
from tests.bench.made_data import light_table, names_for
from tests.bench.measure import Measurement

KERNELS = 300
SIEVE_LAUNCHES = 1_072_246
STEM_LAUNCHES = 5_300_000
DECADES = (100_000, 1_000_000, 10_000_000)
_BY_RULE = sieve_method.SieveParameters(representative="first_dominant", dominant_key="block_threads")


def made_launches(launches: int) -> Launches:
    """Detailed launches with durations: 300 kernels, two thirds with 20 distinct instruction counts each, one
    third with thousands; durations of four modes with 5 % noise."""
    light = light_table(launches, kernels=KERNELS)
    rng = np.random.default_rng(1)
    kernel = np.unique(light["kernel_id"].to_numpy(), return_inverse=True)[1]
    pool = np.round(np.exp(rng.normal(12, 1.5, (KERNELS, 20))))
    few = pool[kernel, rng.integers(0, 20, launches)]
    many = 64 + 64 * np.round(np.exp(rng.normal(10, 1, launches)) / 64)
    instructions = np.where(kernel % 3 == 0, many, few)
    modes = np.exp(rng.normal(9, 1.2, (KERNELS, 4)))[kernel, rng.integers(0, 4, launches)]
    duration = np.round(modes * np.exp(rng.normal(0, 0.05, launches)))
    columns = [registry()[n] for n in ("instructions", "cycles_gpc_avg")]
    counters = [c.column(c.metrics[0].name) for c in columns]
    schema = launch_schema(TableMetadata("detailed", origin="synthetic"), counters)
    values = dict(zip(light.schema.names, light.columns, strict=True))
    values["duration_ns"] = pa.array(duration.astype(np.int64))
    values["instructions"], values["cycles_gpc_avg"] = pa.array(instructions), pa.array(duration * 1.4)
    table = pa.Table.from_arrays([values[name] for name in schema.names], schema=schema)
    return Launches(table, names_for(KERNELS), ("generated",))


def _sieve_selection(launches: Launches) -> Any:
    values = kernel_values(launches.column("kernel_id"), launches.column("instructions"))
    return sieve_method.sieve(launches, values, _BY_RULE, 0)


def _stem_selection(launches: Launches) -> Any:
    durations = launches.column("duration_ns").astype(np.float64)
    values = kernel_values(launches.column("kernel_id"), durations)
    clusters = stem_method.stem(values, stem_method.StemParameters())
    return stem_method.draw(values.groups(clusters.start), clusters, 0)


def _light(launches: Launches) -> Profile:
    """The launches as a light run, without what only a profiler of counters gives."""
    metadata = replace(launches.metadata, level="light")
    schema = launch_schema(metadata)
    table = launches.table.select(schema.names)
    return Profile(light=replace(launches, table=table.cast(schema)))


def _pyarrow_sort(launches: Launches) -> Any:
    keys = [("kernel_id", "ascending"), ("instructions", "ascending")]
    return pc.sort_indices(launches.table.select(["kernel_id", "instructions"]), sort_keys=keys)


def _lexsort(launches: Launches) -> Any:
    return np.lexsort((launches.column("duration_ns"), launches.column("kernel_id")))


def _whole(method: str, **parameters: Any) -> Callable[[Launches], Any]:
    return lambda launches: select(method, Profile(detailed=launches), parameters)


_STEPS: dict[str, dict[str, Callable[[Launches], Any]]] = {
    "sieve": {"sort": _pyarrow_sort, "selection": _sieve_selection, "whole": _whole("sieve")},
    "stem": {
        "sort": _lexsort,
        "selection": _stem_selection,
        "whole": _whole("stem", cost="duration_ns"),
    },
    "balanced": {"whole": lambda launches: select("balanced", _light(launches), {})},
    "stem_light": {"whole": lambda launches: select("stem", _light(launches), {})},
}


def _cpu_seconds(step: Callable[[Launches], Any], launches: Launches) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        step(launches)
        best = min(best, time.process_time() - began)
    return best


def _case(method: str, step: str, launches: int) -> Measurement:
    pa.set_cpu_count(1)
    return Measurement(launches, _cpu_seconds(_STEPS[method][step], made_launches(launches)), {})


def sieve(launches: int) -> Measurement:
    """Sieve, from kernels and instructions to representatives and weights."""
    return _case("sieve", "selection", launches)


def sieve_whole(launches: int) -> Measurement:
    """Sieve as people call it: with scores and hashes."""
    return _case("sieve", "whole", launches)


def sieve_sort(launches: int) -> Measurement:
    """One pyarrow sort by kernel and instructions."""
    return _case("sieve", "sort", launches)


def stem(launches: int) -> Measurement:
    """STEM+ROOT, from kernels and durations to representatives and weights."""
    return _case("stem", "selection", launches)


def stem_whole(launches: int) -> Measurement:
    """STEM+ROOT as people call it: with scores and hashes."""
    return _case("stem", "whole", launches)


def stem_sort(launches: int) -> Measurement:
    """One numpy.lexsort by kernel and duration."""
    return _case("stem", "sort", launches)


def peak_bytes_per_launch(step: Callable[[Launches], Any], launches: Launches) -> float:
    """Most memory that ``step`` holds at once beside the launches, NumPy's and Arrow's."""
    pool = pa.proxy_memory_pool(pa.system_memory_pool())  # counts from zero
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    step(launches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    pa.set_memory_pool(before)
    return (peak + pool.max_memory()) / len(launches)


def _print_scale(sizes: list[int]) -> None:
    pa.set_cpu_count(1)
    print("| method | launches | sort, s | selection, s | / sort | whole select, s | / sort | bytes/launch |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for method, steps in _STEPS.items():
        for size in sizes or [SIEVE_LAUNCHES if method == "sieve" else STEM_LAUNCHES, *DECADES]:
            made = made_launches(size)
            sort, selection, whole = (_cpu_seconds(steps[s], made) for s in ("sort", "selection", "whole"))
            memory = peak_bytes_per_launch(steps["selection"], made)
            print(
                f"| {method} | {size:,} | {sort:.3f} | {selection:.3f} | {selection / sort:.2f} | "
                f"{whole:.3f} | {whole / sort:.2f} | {memory:.0f} |",
                flush=True,
            )


_RECORDINGS = (
    "nsys/a100_nerf_1106_kernels.sqlite",
    "kineto/a100_input_dims_8568_kernels.json.gz",
    "kineto/v100_input_dims_9876_kernels.json.gz",
    "kineto/v100_training_19370_kernels.json.gz",
)


def _print_recordings(folder: Path) -> None:
    """Mean and largest error over 50 seeds, and speedup. Sieve has no counts here: one launch a kernel."""
    print("| recording | method | mean error, % | largest, % | speedup |")
    print("|---|---|---:|---:|---:|")
    for name in _RECORDINGS:
        launches = read_launches(folder / name)
        duration = launches.column("duration_ns").astype(np.float64)
        for title, errors, speedup in _scores(launches, duration):
            print(f"| {name} | {title} | {np.mean(errors):.2f} | {np.max(errors):.2f} | {speedup:.1f} |")


def _scores(launches: Launches, duration: np.ndarray) -> list[tuple[str, list[float], float]]:
    profile, total = Profile(light=launches), duration.sum()
    found = []
    for title, method, parameters in (
        ("random, 1 %", "random", {}),
        ("stratified by name", "stratified", {}),
        ("STEM, artifact", "stem", {"variant": "artifact"}),
    ):
        each = [select(method, profile, parameters, seed).evaluation for seed in range(50)]
        found.append((title, [e.error_percent for e in each], float(np.mean([e.speedup for e in each]))))
    values = kernel_values(launches.column("kernel_id"), np.zeros(len(launches)))
    first = duration[values.first_row]
    error = 100 * abs((first * values.count).sum() / total - 1)
    found.append(("Sieve by name (first launch)", [error], total / first.sum()))
    values = kernel_values(launches.column("kernel_id"), duration)
    clusters = stem_method.stem(values, stem_method.StemParameters())
    labels = values.groups(clusters.start)
    errors, simulated = [], []
    for seed in range(50):
        rows, groups = stem_method.draw(labels, clusters, seed)
        weights = clusters.moments.launches[groups] / clusters.sampled[groups]
        errors.append(100 * abs((weights * duration[rows]).sum() / total - 1))
        simulated.append(duration[rows].sum())
    found.append(("STEM+ROOT, 5 %", errors, float(total / np.mean(simulated))))
    return found


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launches", type=int, nargs="*")
    parser.add_argument("--recordings", type=Path)
    arguments = parser.parse_args()
    if arguments.recordings:
        _print_recordings(arguments.recordings)
    else:
        _print_scale(arguments.launches)


if __name__ == "__main__":
    main()


def balanced_whole(launches: int) -> Measurement:
    """Balanced sampling of a light run as people call it: with scores and hashes."""
    return _case("balanced", "whole", launches)


def stem_of_light(launches: int) -> Measurement:
    """STEM+ROOT of the same light run."""
    return _case("stem_light", "whole", launches)
