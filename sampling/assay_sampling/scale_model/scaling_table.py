"""IPC and miss rates of workloads at several sizes of one GPU design: the CSV that the scale model reads.

Columns ``workload``, ``size``, ``ipc``, and where known ``size_unit`` (``sm``, ``chiplet``), ``mpki``
(last-level cache misses for a thousand instructions) and ``f_mem`` (share of the cycles in which no warp of
an SM could be fetched because all waited for memory; read at the larger scale model). A cell may be empty: a
target's IPC is to be predicted, and a miss-rate curve extends beyond the simulated sizes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import InputError, ParameterError
from assay_sampling.files.reading import open_binary, reading, require_file

_REQUIRED = ("workload", "size", "ipc")
_FORM = "write columns workload,size,size_unit,ipc,mpki,f_mem; mpki and f_mem may be empty"


@dataclass(frozen=True)
class Workload:
    """One workload: its known numbers at each size, in SMs or chiplets."""

    name: str
    size_unit: str
    ipc: Mapping[int, float]
    mpki: Mapping[int, float]
    f_mem: Mapping[int, float]


@dataclass(frozen=True)
class ScaleModels:
    """The two scale models of a workload, and its miss-rate curve.

    Args:
        small: size S of the smaller one.
        large: size L of the larger one.
        small_ipc: IPC at S.
        large_ipc: IPC at L.
        f_mem: share of the cycles at L in which an SM waits for memory, in [0, 1); None: not measured.
        mpki: misses per thousand instructions by size; empty under weak scaling, which does not need it.
    """

    small: int
    large: int
    small_ipc: float
    large_ipc: float
    f_mem: float | None
    mpki: Mapping[int, float]

    @property
    def doublings(self) -> float:
        """log2(L / S): 1 where the larger scale model is twice the smaller."""
        return math.log2(self.large / self.small)

    @property
    def correction(self) -> float:
        """C of equation 1: the larger one's share of ideal scaling, (I_L / I_S) / (L / S)."""
        return (self.large_ipc / self.small_ipc) / (self.large / self.small)


def read_scaling_table(path: Path) -> list[Workload]:
    """Read the CSV; workloads in order of their first line. Raises InputError naming line and field."""
    require_file(path)
    with reading(path), open_binary(path) as file:
        text = file.read().decode("utf-8-sig", "surrogateescape")
    try:
        return _workloads(path, text)
    except csv.Error as error:
        raise InputError(path, f"it is not CSV ({error})", _FORM) from None


def _workloads(path: Path, text: str) -> list[Workload]:
    rows = csv.DictReader(io.StringIO(text, newline=None))
    missing = [name for name in _REQUIRED if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(path, f"column {missing[0]!r} is missing", _FORM, line=1)
    workloads: dict[str, Workload] = {}
    ipc: dict[str, dict[int, float]] = {}
    mpki: dict[str, dict[int, float]] = {}
    f_mem: dict[str, dict[int, float]] = {}
    keys: set[tuple[str, int]] = set()
    for row in rows:
        cells = _Cells(path, rows.line_num, row)
        name, size, unit = cells.text("workload"), cells.size(), cells.text("size_unit", "sm")
        if (name, size) in keys:
            raise InputError(path, f"{name} has size {size} twice", _FORM, line=rows.line_num)
        keys.add((name, size))
        of = workloads.setdefault(
            name,
            Workload(
                name, unit, ipc.setdefault(name, {}), mpki.setdefault(name, {}), f_mem.setdefault(name, {})
            ),
        )
        if of.size_unit != unit:
            raise InputError(
                path, f"{name} has sizes in {of.size_unit} and {unit}", _FORM, line=rows.line_num
            )
        cells.put(ipc[name], size, "ipc", above=0.0)
        cells.put(mpki[name], size, "mpki", least=0.0)
        cells.put(f_mem[name], size, "f_mem", least=0.0, below=1.0)
    if not workloads:
        raise InputError(path, "it has no line below its header", _FORM)
    return list(workloads.values())


@dataclass(frozen=True)
class _Cells:
    path: Path
    line: int
    row: Mapping[str, str | None]

    def text(self, column: str, absent: str | None = None) -> str:
        text = (self.row.get(column) or "").strip()
        if text or absent is not None:
            return text or str(absent)
        raise InputError(self.path, "it is empty", _FORM, line=self.line, field=column)

    def size(self) -> int:
        text = self.text("size")
        if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**9:
            raise InputError(self.path, f"{text!r} is not a size", _FORM, line=self.line, field="size")
        return int(text)

    def put(
        self,
        into: dict[int, float],
        size: int,
        column: str,
        *,
        least: float = -math.inf,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> None:
        """Store the number of a cell that is not empty."""
        text = self.text(column, "")
        if not text:
            return
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least and above < value < below):
            raise InputError(
                self.path, f"{text!r} is not a number, or out of range", _FORM, line=self.line, field=column
            )
        into[size] = value


def scale_models_of(
    workload: Workload, sizes: Sequence[int] | None = None, *, weak_scaling: bool = False
) -> ScaleModels:
    """The scale models of ``sizes`` (S, L), else the two smallest sizes with an IPC.

    Under ``weak_scaling`` the data grow with the GPU: there is no cliff, and no miss rate is looked at
    (paper, section V.C). Raises ParameterError without two sizes, or if one of them lacks its IPC.
    """
    chosen = sorted(workload.ipc)[:2] if sizes is None else list(sizes)
    if len(chosen) != 2 or not chosen[0] < chosen[1]:
        raise ParameterError(
            workload.name, "it has no two scale models, small and large", "give IPC at two sizes"
        )
    small, large = chosen
    for size in chosen:
        if size not in workload.ipc:
            raise ParameterError(
                workload.name, f"it has no IPC at {size} {workload.size_unit}", "simulate it first"
            )
    return ScaleModels(
        small=small,
        large=large,
        small_ipc=workload.ipc[small],
        large_ipc=workload.ipc[large],
        f_mem=workload.f_mem.get(large),
        mpki={} if weak_scaling else dict(workload.mpki),
    )
