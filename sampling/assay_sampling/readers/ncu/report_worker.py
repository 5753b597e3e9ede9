"""The process that reads a ``.ncu-rep`` with the package ``ncu_report``:
``python -m ... REPORT OUT METRIC...``.

It is a separate process because the package's library takes much memory (0.1 GB at least) and may crash on
what it does not know. It writes two files: ``OUT.arrow``, one row a result with text cells named by metric,
and ``OUT.json``: ``error``, or else the ``units`` of all metrics found (each a list of those it came in) and
``not_numbers``, by metric the first value that is not a number.

Source: docs/reading-recordings.md, "Reports".
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay_sampling.counters.definitions import registry
from assay_sampling.readers.ncu.columns import LAUNCH_METRICS, base_unit_of

NAME, MANGLED, RANGES = "Kernel Name", "Mangled Name", "NVTX"
# Launch metrics that a raw page has as separate fields.
FIELDS = {"launch__stream_id": "Stream", "launch__device_id": "Device"}
_ROWS = 4096
_SHOWN_CHARACTERS = 60
_KERNEL = 0


class _ReadError(Exception):
    """The report cannot be read; the text says why."""


def wanted_metrics(own: Sequence[str] = ()) -> list[str]:
    """Every metric that a launch table can hold or that describes a launch or its device, and ``own``."""
    counters = [metric.name for counter in registry().values() for metric in counter.metrics]
    return list(dict.fromkeys([*FIELDS, *LAUNCH_METRICS, *counters, *own]))


class _Sheet:
    """Rows of text cells, written in blocks."""

    def __init__(self, path: Path, own: Sequence[str]) -> None:
        self.units: dict[str, list[str]] = {}
        self.not_numbers: dict[str, str] = {}
        self._metrics = wanted_metrics(own)
        names = [NAME, MANGLED, RANGES, *self._metrics]
        self._schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])
        self._columns: list[list[str]] = [[] for _ in names]
        self._writer = pa.ipc.new_file(str(path), self._schema)

    def add(self, action: Any, number: int) -> None:
        kind = action.workload_type()
        if kind != _KERNEL:
            raise _ReadError(
                f"result {number} is of kind {kind}: a range or a whole graph, not a kernel launch"
            )
        name = action.name(action.NameBase_DEMANGLED) or action.name(action.NameBase_FUNCTION)
        cells = [name, action.name(action.NameBase_MANGLED) or "", _range_names(action)]
        cells += [self._cell(action, metric) for metric in self._metrics]
        for column, cell in zip(self._columns, cells, strict=True):
            column.append(cell)
        if len(self._columns[0]) == _ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _cell(self, action: Any, metric: str) -> str:
        entry = action.metric_by_name(metric)
        if entry is None or not entry.has_value():
            return ""
        unit, value = entry.unit() or "", entry.value()
        units = self.units.setdefault(metric, [])
        if unit not in units:
            units.append(unit)
        if not isinstance(value, int | float) and base_unit_of(metric) is not None:
            self.not_numbers.setdefault(metric, str(value)[:_SHOWN_CHARACTERS])
        return _text(value)

    def _flush(self) -> None:
        arrays = [pa.array(column, pa.string()) for column in self._columns]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._columns = [[] for _ in self._columns]


def _text(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def _range_names(action: Any) -> str:
    """The push/pop ranges around the launch as a JSON list, outermost first, one domain after the other; ""
    for none."""
    state = action.nvtx_state()
    if state is None:
        return ""
    names: list[str] = []
    for domain in state.domains():
        names += [str(name) for name in state[domain].push_pop_ranges()]
    return json.dumps(names) if names else ""


def _convert(module: Any, report: Path, out: Path, own: Sequence[str]) -> dict[str, Any]:
    context = module.load_report(str(report))
    sheet = _Sheet(out.with_suffix(".arrow"), own)
    number = 0
    for range_index in range(context.num_ranges()):
        profiled = context.range_by_idx(range_index)
        for index in range(profiled.num_actions()):
            sheet.add(profiled.action_by_idx(index), number)
            number += 1
    sheet.close()
    return {"units": sheet.units, "not_numbers": sheet.not_numbers}


def main(arguments: list[str]) -> int:
    """Convert the report; returns 0 once ``OUT.json`` holds the outcome."""
    report, out, own = Path(arguments[0]), Path(arguments[1]), arguments[2:]
    try:
        answer = _convert(importlib.import_module("ncu_report"), report, out, own)
    except ImportError as error:
        answer = {"error": f"the package ncu-report cannot be loaded ({error})"}
    except (_ReadError, OSError, RuntimeError, ValueError) as error:
        answer = {"error": str(error)}
    out.with_suffix(".json").write_text(json.dumps(answer))
    return 0


class _WithoutPandas:
    """PyArrow loads pandas, where that is installed, for the first text: a third of this process's time."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas)
    sys.exit(main(sys.argv[1:]))
