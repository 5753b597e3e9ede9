"""The parts of a selection by operation: what its representatives launch, and what its profile calls.

Format: ``docs/selection-format.md``, "Operations".
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.documents.reading import WRITE_AGAIN
from assay_sampling.documents.selection import (
    OperationEntry,
    OperationLaunch,
    OperationsEntry,
    RepresentativeEntry,
)
from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.operations.collapsing import Operations
from assay_sampling.operations.identity import Operation
from assay_sampling.operations.matching import OperationSequence

# Sequences in memory take 32 bytes an operation.
MOST_OPERATIONS = 50_000_000
_ARRAYS = {"identity": "<u4", "process": "<u4", "launch": "<i8", "time": "<f8"}


@dataclass(frozen=True)
class SelectedOperations:
    """The operations of the profile that a selection was made on, with the ``rows`` of its representatives,
    shape (r,), and the light time or cost of every operation, shape (m,)."""

    operations: Operations
    rows: np.ndarray
    time: np.ndarray

    @property
    def sequence(self) -> OperationSequence:
        """What the profile calls, in order."""
        return OperationSequence.of(self.operations, self.time)

    def entries(self) -> list[OperationEntry]:
        """The operation of each representative, with its launches."""
        of_launches = self.operations.rows_of(self.rows)
        parts = self._launches(np.concatenate([np.empty(0, np.int64), *of_launches]))
        operations, first = [], 0
        for row, of in zip(self.rows.tolist(), of_launches, strict=True):
            operations.append(self._entry(row, parts[first : first + len(of)]))
            first += len(of)
        return operations

    def _entry(self, row: int, launches: list[OperationLaunch]) -> OperationEntry:
        of = self.operations.identities[int(self.operations.identity[row])]
        return OperationEntry(
            kind=of.kind, name=of.name, shapes=of.shapes, thread=of.thread, row=row, launches=launches
        )

    def _launches(self, rows: np.ndarray) -> list[OperationLaunch]:
        """The launches at some rows of the recording, taken at once: each take looks through all of it."""
        launches = self.operations.source.take(rows)
        shapes = [launches.column(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
        kernels = [launches.names[i] for i in launches.column("kernel_id").tolist()]
        return [
            OperationLaunch(
                launch=launch,
                sim_id=launch + 1,
                kernel=kernel,
                grid=written_shape(shape[:3]),
                block=written_shape(shape[3:]),
            )
            for launch, kernel, shape in zip(
                launches.column("launch").tolist(), kernels, np.stack(shapes, axis=1).tolist(), strict=True
            )
        ]

    def document(self) -> OperationsEntry:
        """The sequence as a selection's document has it."""
        sequence = self.sequence
        arrays = {name: _packed(getattr(sequence, name), kind) for name, kind in _ARRAYS.items()}
        return OperationsEntry(
            calls=len(sequence),
            launches=len(self.operations.source),
            identities=[(one.kind, one.name, one.shapes, one.thread) for one in sequence.identities],
            **arrays,
        )


def written_shape(axes: Sequence[int]) -> list[int]:
    """A grid or block as documents have it: 0, 0, 0 where the recording does not know it at all."""
    if axes[0] <= 0:
        return [0, 0, 0]
    # An axis that the recording does not know is 1: the product is then still the true total.
    return [int(axis) if axis > 0 else 1 for axis in axes]


def _packed(values: np.ndarray, kind: str) -> str:
    return base64.b64encode(zlib.compress(values.astype(kind).tobytes(), 6)).decode("ascii")


def sequence_from(entry: OperationsEntry | None) -> OperationSequence:
    """What the profile of a saved selection calls. Raises InputError if it cannot be read."""
    try:
        if entry is None:
            raise ValueError("it does not say what its profile calls")
        if not 0 < entry.calls <= MOST_OPERATIONS:
            raise ValueError(f"{entry.calls:,} calls are not between 1 and {MOST_OPERATIONS:,}")
        arrays = {name: _unpacked(getattr(entry, name), kind, entry.calls) for name, kind in _ARRAYS.items()}
        identities = tuple(
            Operation.from_text(Operation(kind, name, shapes, thread).to_text())  # type: ignore[arg-type]
            for kind, name, shapes, thread in entry.identities
        )
        if int(arrays["identity"].max()) >= len(identities):
            raise ValueError("a call is of an operation that it does not name")
        if not all(one.thread < MOST_OPERATIONS for one in identities):
            raise ValueError("the ordinal of a thread is too large")
        time = arrays["time"]
        if not np.all(np.isfinite(time)) or float(time.min()) < 0:
            raise ValueError("a call has a time that is negative or not a number")
        with np.errstate(over="ignore"):
            whole = float(time.sum())
        if not 0 < whole < np.inf:
            raise ValueError(f"the times of all calls add up to {whole:g}")
    except (ValueError, binascii.Error, zlib.error, LaunchTableError) as error:
        raise InputError(
            "selection", f"its operations cannot be read: {error}", WRITE_AGAIN, field="operations"
        ) from error
    return OperationSequence(
        process=arrays["process"].astype(np.int64),
        launch=arrays["launch"],
        identity=arrays["identity"].astype(np.int64),
        identities=identities,
        time=time,
    )


def _unpacked(text: str, kind: str, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    size = count * np.dtype(kind).itemsize
    unpacked = zlib.decompressobj()
    data = unpacked.decompress(base64.b64decode(text, validate=True), size + 1)
    if len(data) != size or not unpacked.eof:
        raise ValueError(f"an array is not {size:,} bytes")
    return np.frombuffer(data, kind)


def launches_of_entries(
    entries: Sequence[RepresentativeEntry],
) -> tuple[np.ndarray, list[OperationLaunch]]:
    """The launches of representatives by operation, and the index of the representative that each is of."""
    launches, owner = [], []
    for index, entry in enumerate(entries):
        parts = [] if entry.operation is None else entry.operation.launches
        launches.extend(parts)
        owner.extend([index] * len(parts))
    return np.array(owner, np.int64), launches


def operation_of(entry: RepresentativeEntry) -> Operation | None:
    """The operation that a representative is; None for a launch."""
    operation = entry.operation
    if operation is None:
        return None
    return Operation(operation.kind, operation.name, operation.shapes, operation.thread)
