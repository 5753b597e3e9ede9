"""What one attempt says of itself: the lines of its log, and the validity flags that it sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.launches.table import LaunchBatch, has_operations
from assay_sampling.notes.registry import Note, flags_of
from assay_sampling.operations.identity import Operation

_DOUBTS = (
    "operations_cross",
    "operations_nested_deep",
    "operations_cut",
    "operations_without_serial_numbers",
)


class AttemptNotes:
    """Notes and flags of the attempt at ``work``, as they arise."""

    def __init__(self, work: Work) -> None:
        self.light_limit_seconds = 0 if work.command is None else work.command.light_limit_s
        """After how long the program is ended; 0: never."""
        self.reached_limit = False
        self.operations = OperationsSeen(work)
        self.own_notes: list[str] = []
        self.own_flags: dict[str, ValidityFlag] = {}

    def flag(self, name: str, detail: str) -> None:
        """Set a validity flag of the registry; the first detail is kept."""
        self.own_flags.setdefault(name, ValidityFlag.of_kind(name, detail))

    def note(self, text: str) -> None:
        """Add to the log of the attempt."""
        self.own_notes.append(text)

    def take_notes(self, notes: Sequence[Note]) -> None:
        """Add a reader's notes to the log, and set their flags and those on operations."""
        for note in notes:
            self.note(f"note: {note.text}")
        for name, detail in (*flags_of(notes).items(), *self.operations.flags(notes)):
            self.flag(name, detail)

    def flag_window(self, launches: int, processes: int) -> None:
        """Say which launches were recorded, if the program was ended at its limit."""
        if self.reached_limit:
            these = f"launches 1 to {launches:,}" if processes == 1 else f"{launches:,} launches"
            of = "" if processes == 1 else f" of {processes:,} processes"
            when = f"the first {self.light_limit_seconds:,} s of the program, which was ended then"
            self.flag("light_window", f"{these}{of}, {when}")


class OperationsSeen:
    """Whether a run that was asked for operations recorded them.

    Looks at the batches of the run, and gives the flags that are due in the end. Says nothing of work that
    was not asked for operations.
    """

    def __init__(self, work: Work) -> None:
        self._needs_operations = work.command is not None and work.command.operations
        self._has_operations = False

    def add(self, batch: LaunchBatch) -> None:
        """One batch, with the names that it is the first to use."""
        if not self._needs_operations or self._has_operations or not has_operations(batch.records.schema):
            return
        used = pc.unique(batch.records.column("operation_id")).drop_null().to_pylist()
        new = (batch.new_names[identifier] for identifier in used if identifier in batch.new_names)
        self._has_operations = any(Operation.from_text(text).kind not in ("kernel", "graph") for text in new)

    def flags(self, notes: Sequence[Note] = ()) -> Iterator[tuple[str, str]]:
        """Name and detail of each flag; ``notes`` are the reader's."""
        if not self._needs_operations:
            return
        if not self._has_operations:
            yield "operations_missing", "no launch is in an operator, a library routine or a range"
        doubts = [note.text for note in notes if note.code in _DOUBTS]
        if doubts:
            yield "operations_doubtful", "; ".join(doubts)
