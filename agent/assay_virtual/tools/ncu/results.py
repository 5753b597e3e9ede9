"""The results of a profile run: data of the launches, as the columns of a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay_virtual.model.gpu import ProcessLaunches, VirtualGPU
from assay_virtual.tools.announced import announced
from assay_virtual.tools.columns import Column, Columns, Texts, numbers, repeated
from assay_virtual.tools.environment import version_key
from assay_virtual.tools.ncu.metrics import Request, unit_of
from assay_virtual.tools.ncu.report import PRODUCT, Results
from assay_virtual.tools.ncu.selection import Selected
from assay_virtual.tools.program import Program

Floats = NDArray[np.float64]


def results_of(
    selected: Selected,
    request: Request,
    gpu: VirtualGPU,
    program: Program,
    *,
    version: str,
    nvtx: bool,
    missing_values: bool,
) -> Results:
    """All columns of the launches; values that ``missing_values`` names are missing."""
    columns = _identity(selected, gpu, program)
    if nvtx:
        columns["nvtx"] = _texts(selected, lambda p: _ranges(p, program))
    units: dict[str, str] = {}
    for metric, counter in request.counters.items():
        values = _counter(selected, counter.name).astype(np.float64)
        if missing_values:
            values[2::3] = np.nan
        columns[metric], units[metric] = numbers(values), unit_of(counter)
    for metric, (unit, column) in _free(selected, request, gpu, version).items():
        columns[metric], units[metric] = column, unit
    return Results(Columns(columns), units, _process_name(program), version, nvtx)


def _counter(selected: Selected, name: str) -> Floats:
    return _joined(selected, lambda part, rows: part.counters[name][rows])


def _process_name(program: Program) -> str:
    assert program.workload is not None
    return f"{PRODUCT} {program.workload.workload}"


def _joined(
    selected: Selected, get: Callable[[ProcessLaunches, NDArray[np.int64]], NDArray[Any]]
) -> NDArray[Any]:
    """A column over all parts in the order of ``selected``, shape (n,)."""
    column: NDArray[Any] | None = None
    for number, part in enumerate(selected.parts):
        rows = np.flatnonzero(selected.part == number)
        values = get(part, selected.row[rows])
        if column is None:
            column = np.zeros(len(selected), values.dtype)
        column[rows] = values
    return np.zeros(0) if column is None else column


def _texts(selected: Selected, get: Callable[[ProcessLaunches], tuple[list[str], Any]]) -> Texts:
    """A text column from the distinct texts of each part and the index of each launch into them."""
    texts: list[str] = []
    index = np.zeros(len(selected), np.int64)
    for number, part in enumerate(selected.parts):
        rows = np.flatnonzero(selected.part == number)
        distinct, indices = get(part)
        index[rows] = indices[selected.row[rows]] + len(texts)
        texts += distinct
    return Texts(tuple(texts), numbers(index))


def _triple(sizes: tuple[int, ...]) -> str:
    return f"({sizes[0]}, {sizes[1]}, {sizes[2]})"


def _grids(part: ProcessLaunches) -> tuple[list[str], NDArray[np.int64]]:
    distinct, inverse = np.unique(part.grid, axis=0, return_inverse=True)
    return [_triple(tuple(row)) for row in distinct.tolist()], inverse.reshape(-1)


def _ranges(part: ProcessLaunches, program: Program) -> tuple[list[str], NDArray[np.int64]]:
    """Cells of the column of push/pop ranges: of the program's own, and of operators that it announces."""
    around = _operators_around(part, announced(part.operators, program.arguments))
    cells: dict[str, int] = {}
    index = []
    for nvtx, thread, operators in zip(part.nvtx.tolist(), part.thread.tolist(), around, strict=True):
        names = [*(part.texts[nvtx].split("/") if nvtx >= 0 else ()), *operators]
        ranges = [f'"<default domain>:{name}:none:none:none:none:none:none"' for name in names]
        cell = f"{program.thread_id(part.process, thread)}  {'  '.join(ranges)} " if ranges else ""
        index.append(cells.setdefault(cell, len(cells)))
    return list(cells), np.array(index, np.int64)


def _operators_around(part: ProcessLaunches, texts: list[str] | None) -> list[list[str]]:
    """The texts of the operators around each launch, outermost first; ``texts``: of each call."""
    around: list[list[str]] = [[] for _ in range(len(part))]
    if texts is None or not len(part):
        return around
    base = int(part.launch[0])
    spans = zip(texts, part.operators.first.tolist(), part.operators.last.tolist(), strict=True)
    for text, first, last in spans:
        for row in range(max(first - base, 0), min(last - base + 1, len(part))):
            around[row].append(text)
    return around


def _identity(selected: Selected, gpu: VirtualGPU, program: Program) -> dict[str, Column]:
    n = len(selected)

    def pid(part: ProcessLaunches) -> int:
        return program.process_id(part.process)

    return {
        "pid": numbers(_joined(selected, lambda p, rows: np.full(len(rows), pid(p)))),
        "name": _texts(selected, lambda p: ([k.name for k in p.kernels], p.kernel)),
        "context": numbers(np.ones(n, np.int64)),
        "stream": numbers(_joined(selected, lambda p, rows: p.stream[rows])),
        "block": _texts(selected, lambda p: ([_triple(k.block) for k in p.kernels], p.kernel)),
        "grid": _texts(selected, _grids),
        "device": numbers(np.zeros(n, np.int64)),
        "cc": repeated(gpu.architecture.compute_capability, n),
        "nvtx": repeated("", n),
        # Times of day are made up too: a second for every thousand launches.
        "second": numbers(np.arange(n) // 1000),
    }


def _free(
    selected: Selected, request: Request, gpu: VirtualGPU, version: str
) -> dict[str, tuple[str, Column]]:
    """Metrics that cost nothing: of the launch, the device and the profiler itself, with their units."""
    n = len(selected)
    architecture = gpu.architecture

    def kernel(get: Callable[[Any], int]) -> Floats:
        values = _joined(selected, lambda p, rows: np.array([get(k) for k in p.kernels])[p.kernel[rows]])
        return values.astype(np.float64)

    def grid(axis: int) -> Floats:
        return _joined(selected, lambda p, rows: p.grid[rows, axis]).astype(np.float64)

    grid_size = grid(0) * grid(1) * grid(2)
    block_size = kernel(lambda k: k.block[0] * k.block[1] * k.block[2])
    waves = _counter(selected, "waves_per_sm")
    reserved = np.full(n, float(architecture.shared_bytes_reserved))
    static, dynamic = kernel(lambda k: k.static_shared_bytes), kernel(lambda k: k.dynamic_shared_bytes)
    metrics: dict[str, tuple[str, Column]] = {
        "device__attribute_compute_capability_major": ("", _constant(n, architecture.compute_capability[0])),
        "device__attribute_compute_capability_minor": ("", _constant(n, architecture.compute_capability[2])),
        "device__attribute_display_name": ("", repeated(gpu.device.name, n)),
        "device__attribute_l2_cache_size": ("", _constant(n, architecture.l2_bytes)),
        "device__attribute_max_gpu_frequency_khz": ("", _constant(n, architecture.boost_clock_hz // 1000)),
        "device__attribute_max_warps_per_multiprocessor": ("", _constant(n, architecture.warps_per_sm)),
        "device__attribute_multiprocessor_count": ("", _constant(n, architecture.sm_count)),
        "launch__block_dim_x": ("block", numbers(kernel(lambda k: k.block[0]))),
        "launch__block_dim_y": ("block", numbers(kernel(lambda k: k.block[1]))),
        "launch__block_dim_z": ("block", numbers(kernel(lambda k: k.block[2]))),
        "launch__block_size": ("", numbers(block_size)),
        "launch__context_id": ("", _constant(n, 1)),
        "launch__device_id": ("", _constant(n, 0)),
        "launch__func_cache_config": ("", repeated("cudaFuncCachePreferNone", n)),
        "launch__grid_dim_x": ("", numbers(grid(0))),
        "launch__grid_dim_y": ("", numbers(grid(1))),
        "launch__grid_dim_z": ("", numbers(grid(2))),
        "launch__grid_size": ("", numbers(grid_size)),
        "launch__registers_per_thread": ("register/thread", numbers(kernel(lambda k: k.registers))),
        "launch__shared_mem_per_block": ("byte/block", numbers(static + dynamic + reserved)),
        "launch__shared_mem_per_block_driver": ("byte/block", numbers(reserved)),
        "launch__shared_mem_per_block_dynamic": ("byte/block", numbers(dynamic)),
        "launch__shared_mem_per_block_static": ("byte/block", numbers(static)),
        "launch__stream_id": (
            "",
            numbers(_joined(selected, lambda p, rows: p.stream[rows]).astype(np.float64)),
        ),
        "launch__thread_count": ("thread", numbers(grid_size * block_size)),
        "launch__waves_per_multiprocessor": ("", numbers(waves)),
        "profiler__replayer_passes": ("pass", _constant(n, request.passes)),
    }
    if version_key(version) >= (2024, 1):
        sms = _joined(selected, lambda p, rows: np.full(len(rows), p.effective_sms))
        metrics["launch__sm_count"] = ("SM", numbers(sms.astype(np.float64)))
    return metrics


def _constant(n: int, value: str | int) -> Column:
    return numbers(np.full(n, float(value)))
