"""An IPC series as a CSV file: ``cycles,instructions,ctas``, one sample a row, for other simulators.

``cycles`` and ``instructions`` count since the start of the launch, ``ctas`` are the blocks completed since
the row before. Other columns are ignored.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.errors import InputError, RefusedError
from assay_sampling.files.reading import open_binary, reading, require_file
from assay_sampling.projection.projector import Series

COLUMNS = ("cycles", "instructions", "ctas")
_FORM = "write a header with cycles,instructions,ctas and one sample a row"
# Above this a float64 no longer holds every whole number.
_LARGEST = 2**53


def looks_like_series(head: bytes) -> bool:
    """Whether the first line of a file (decompressed) is the header of a series."""
    names = head.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").split(",")
    return set(COLUMNS) <= {name.strip() for name in names}


def read_series(path: str | Path) -> Series:
    """A series from a CSV file, plain or compressed.

    Raises InputError with line and field for a cell that is not a number from 0 to 2^53, for cycles or
    instructions that decrease, and for samples at uneven distances (the last may be nearer).
    """
    path = Path(path)
    require_file(path)
    rows: list[tuple[float, float, float]] = []
    lines: list[int] = []
    with reading(path), open_binary(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        reader = _rows(path, csv.reader(text))
        names = [name.strip() for name in next(reader, (1, []))[1]]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise InputError(path, f"it has no column {missing[0]!r}", _FORM, line=1)
        places = [names.index(name) for name in COLUMNS]
        for line, row in reader:
            if row:
                cells = [_number(path, line, row, place, names[place]) for place in places]
                rows.append((cells[0], cells[1], cells[2]))
                lines.append(line)
        text.detach()
    if not rows:
        raise InputError(path, "it holds no sample", _FORM)
    columns = np.array(rows, np.float64)
    _check_spacing(path, columns[:, 0], lines)
    try:
        return Series(columns[:, 0], columns[:, 1], columns[:, 2])
    except RefusedError as error:
        raise InputError(path, error.cause, error.remedy) from error


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row ends, and its cells."""
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(path, f"it is not CSV ({error})", _FORM, line=reader.line_num) from error
        if row is None:
            return
        yield reader.line_num, row


def _number(path: Path, line: int, row: list[str], place: int, name: str) -> float:
    text = row[place] if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LARGEST:
        raise InputError(
            path, f"{text[:40]!r} is not a number from 0 to {_LARGEST:,}", _FORM, line=line, field=name
        )
    return value


def _check_spacing(path: Path, cycles: np.ndarray, lines: list[int]) -> None:
    steps = np.diff(cycles)
    if not len(steps):
        return
    wrong = steps <= 0
    # The window is a number of samples, so samples must cover the same time; the last may be shorter.
    wrong[:-1] |= np.abs(steps[:-1] - steps[0]) > 1e-6 * steps[0]
    wrong[-1] |= steps[-1] > steps[0] * (1 + 1e-6)
    if wrong.any():
        row = int(np.argmax(wrong)) + 1
        raise InputError(
            path,
            f"{steps[row - 1]:g} cycles after the sample before, the samples are {steps[0]:g} cycles apart",
            "sample at even distances, one launch a file",
            line=lines[row],
            field="cycles",
        )
