"""What one attempt says of itself: the lines of its log, and the validity flags that it sets."""

from __future__ import annotations

from collections.abc import Sequence

from assay_agent.profilers.operations_seen import OperationsSeen
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.notes.registry import Note, flags_of


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
