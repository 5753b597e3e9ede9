"""Whether a run that was asked for operations recorded them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from assay_core.records.work import Work
from assay_sampling.launches.table import LaunchBatch, has_operations
from assay_sampling.notes.registry import Note
from assay_sampling.operations.identity import Operation

_DOUBTS = (
    "operations_cross",
    "operations_nested_deep",
    "operations_cut",
    "operations_without_serial_numbers",
)


class OperationsSeen:
    """Looks at the batches of a run, and gives the flags that are due in the end.

    Says nothing of work that was not asked for operations.
    """

    def __init__(self, work: Work) -> None:
        self._asked = work.command is not None and work.command.operations
        self._seen = False

    def add(self, batch: LaunchBatch) -> None:
        """One batch, with the names that it is the first to use."""
        if not self._asked or self._seen or not has_operations(batch.records.schema):
            return
        used = pc.unique(batch.records.column("operation_id")).drop_null().to_pylist()
        new = (batch.new_names[identifier] for identifier in used if identifier in batch.new_names)
        self._seen = any(Operation.from_text(text).kind not in ("kernel", "graph") for text in new)

    def flags(self, notes: Sequence[Note] = ()) -> Iterator[tuple[str, str]]:
        """Name and detail of each flag; ``notes`` are the reader's."""
        if not self._asked:
            return
        if not self._seen:
            yield "operations_missing", "no launch is in an operator, a library routine or a range"
        doubts = [note.text for note in notes if note.code in _DOUBTS]
        if doubts:
            yield "operations_doubtful", "; ".join(doubts)
