"""Campaigns to analyse: workloads with detailed runs whose numbers differ, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from assay_core.files.launch_file import new_launch_file
from assay_sampling.counters.definitions import COST_COUNTERS, features_of, registry
from assay_sampling.launches import table as lt
from assay_server.analysis.runs.request import AnalysisRequest, RunData

_KERNELS = 12
# Of these, none loads scikit-learn, which takes seconds.
_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (("random", {}), ("systematic", {}))


def made_request(folder: Path, workloads: int, launches: int, **changes: Any) -> AnalysisRequest:
    """A request with one detailed run for each workload; equal arguments give equal files."""
    folder.mkdir(exist_ok=True)
    runs = tuple(_run(folder, number, launches) for number in range(workloads))
    return AnalysisRequest("made-1", "made", **{"methods": _METHODS, **changes}, runs=runs)


def _run(folder: Path, number: int, launches: int) -> RunData:
    names = lt.Names()
    kernels = np.array([names.intern(f"kernel{i}<w{number}>") for i in range(_KERNELS)], np.uint64)
    random = np.random.default_rng(number)
    which = random.integers(0, _KERNELS, launches)
    counters = [*dict.fromkeys((*features_of("table2"), *COST_COUNTERS))]
    values: dict[str, Any] = {
        "process": np.zeros(launches, np.int32),
        "launch": np.arange(launches),
        "kernel_id": kernels[which],
        **{f"{what}_{axis}": np.ones(launches, np.int32) for what in ("grid", "block") for axis in "xyz"},
        **{name: (which + 1) * random.uniform(900, 1_100, launches) for name in counters},
        "threads_per_instruction": random.uniform(20, 32, launches),
    }
    columns = [registry()[name].column(registry()[name].metrics[0].name) for name in counters]
    schema = lt.launch_schema(lt.TableMetadata("detailed", condition=lt.BASELINE), columns)
    path = folder / f"made-1.{number:04d}.parquet"
    with new_launch_file(path, schema) as writer:
        writer.write(lt.LaunchBatch(lt.make_batch(schema, values), dict(names.items())))
    return RunData(
        f"made-1.{number:04d}", f"w{number}", "V100", "detailed",
        files=(str(path),), launches=launches, content_hash=f"hash{number}",
    )  # fmt: skip
