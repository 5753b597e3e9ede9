"""Small runs in Parquet, written as the store writes them, with numbers that are easy to add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_core.files.launch_file import new_launch_file
from assay_sampling.counters.definitions import features_of, registry
from assay_sampling.launches import table as lt
from assay_server.analysis.runs.request import RunData

StoreRun = Callable[..., RunData]


def _schema(level: lt.Level, counters: Sequence[str], metadata: Mapping[str, Any]) -> Any:
    columns = [registry()[name].column(registry()[name].metrics[0].name) for name in counters]
    table = lt.TableMetadata(level, **{"condition": lt.BASELINE, **metadata})
    return lt.launch_schema(table, columns)


@pytest.fixture
def store_run(tmp_path: Path) -> StoreRun:
    """Writes a run of given kernels; ``slices`` cuts it into several files.

    ``columns`` are columns of the launch table; counters among them become counter columns.
    """
    written = 0

    def store(
        device_kind: str,
        level: lt.Level,
        kernels: Sequence[str],
        *,
        workload: str = "training",
        slices: int = 1,
        metadata: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> RunData:
        nonlocal written
        run_id = f"c-1.{written:04d}"
        written += 1
        names = lt.Names()
        identifiers = np.array([names.intern(kernel) for kernel in kernels], np.uint64)
        count = len(kernels)
        values: dict[str, Any] = {
            "process": np.zeros(count, np.int32), "launch": np.arange(count), "kernel_id": identifiers,
            **{f"{what}_{axis}": np.ones(count, np.int32) for what in ("grid", "block") for axis in "xyz"},
            **{name: np.asarray(value) for name, value in columns.items()},
        }  # fmt: skip
        schema = _schema(level, [name for name in columns if name in registry()], metadata or {})
        files = []
        for index, rows in enumerate(np.array_split(np.arange(count), slices)):
            path = tmp_path / f"{run_id}-slice-{index:05d}.parquet"
            with new_launch_file(path, schema) as writer:
                batch = lt.make_batch(schema, {name: value[rows] for name, value in values.items()})
                writer.write(lt.LaunchBatch(batch, dict(names.items())))
            files.append(str(path))
        data = RunData(
            run_id,
            workload,
            device_kind,
            level,
            files=tuple(files),
            launches=count,
            content_hash=f"hash{written}",
        )
        return replace(data, **(run or {}))

    return store


def table2_counters(instructions: Sequence[float]) -> dict[str, np.ndarray]:
    """All counters of the default feature set; only the instructions tell launches apart."""
    values = np.asarray(instructions, float)
    return {
        name: values if name == "instructions" else np.ones(len(values)) for name in features_of("table2")
    }


@pytest.fixture
def counters() -> Callable[[Sequence[float]], dict[str, np.ndarray]]:
    return table2_counters
