"""Notes: remarks that accompany numbers, from the reader of a file to the last page of a report.

A note is a code of the registry below with parameters; the sentence for people is made from both. A code
stands for at most one validity flag (:mod:`assay_sampling.running.validity`). Code that acts on a note uses
its code or its flag, never the sentence. ``docs/notes.md`` has the same table; a test keeps them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay_sampling.errors import AssayError
from assay_sampling.notes import measuring, reading, runs, selecting, simulating, targets
from assay_sampling.notes.base import NoteKind, NoteValue
from assay_sampling.parameters import Unit
from assay_sampling.running.validity import invalidates

__all__ = ["NOTES", "SUBJECTS", "Note", "distinct_notes", "flags_of", "in_unit", "make_note",
           "note_of_error", "note_table", "note_text"]  # fmt: skip


@dataclass(frozen=True)
class Note:
    """A remark on a number; made by :func:`make_note`, which checks each code's parameters.

    ``parameters`` are (name, value) in the order given; equal notes have equal sentences.
    """

    code: str
    parameters: tuple[tuple[str, NoteValue], ...] = ()

    @property
    def text(self) -> str:
        """The sentence for people, without a full stop."""
        return NOTES[self.code].sentence(**dict(self.parameters))

    @property
    def flag(self) -> str | None:
        """The name of the validity flag that the note stands for, or None."""
        return NOTES[self.code].flag

    @property
    def invalidates(self) -> bool:
        """Whether results refuse to rest on launches that come with the note."""
        return self.flag is not None and invalidates(self.flag)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: ``code``, ``text``, ``flag``, ``invalidates``, and the parameters by their names."""
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in self.parameters}
        return {
            "code": self.code, "text": self.text, "flag": self.flag, "invalidates": self.invalidates,
            **values,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.text


def make_note(code: str, **parameters: NoteValue) -> Note:
    """A note of the registry; raises KeyError or TypeError for an unknown code or parameters."""
    made = Note(code, tuple(parameters.items()))
    made.text  # noqa: B018  # a wrong parameter must show here, not where somebody prints the note
    return made


def in_unit(note: Note, unit: Unit) -> Note:
    """The note of a selection by ``unit``, which it names where it counts what was selected from."""
    if unit == "launch" or not NOTES[note.code].has_unit:
        return note
    return make_note(note.code, **dict(note.parameters), unit=unit)


def distinct_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each note once, in the order of its first appearance."""
    return tuple(dict.fromkeys(notes))


def flags_of(notes: Iterable[Note]) -> dict[str, str]:
    """The validity flags that notes stand for, each with the sentences of its notes as detail."""
    texts_of: dict[str, list[str]] = {}
    for note in notes:
        if note.flag is not None:
            texts_of.setdefault(note.flag, []).append(note.text)
    return {flag: "; ".join(texts) for flag, texts in texts_of.items()}


def note_of_error(code: str, error: AssayError, **parameters: NoteValue) -> Note:
    """A note with an error as its parameters: its code as ``error``, its subject, cause and remedy."""
    return make_note(
        code,
        error=error.code,
        subject=error.subject,
        cause=error.explained,
        remedy=error.remedy,
        **parameters,
    )


def note_text(note: Mapping[str, Any]) -> str:
    """The sentence of a note of a document."""
    return str(note["text"])


SUBJECTS: Mapping[str, tuple[NoteKind, ...]] = MappingProxyType(
    {
        "Reading recordings": reading.READING,
        "Shapes and counters": reading.SHAPES_AND_COUNTERS,
        "Doubtful numbers": reading.DOUBTFUL_NUMBERS,
        "NVTX ranges and operators": reading.RANGES_AND_OPERATORS,
        "Several files of one workload": reading.SEVERAL_FILES,
        "Several runs of a campaign": runs.SEVERAL_RUNS,
        "Selections and their scores": selecting.SELECTIONS,
        "Methods compared": selecting.COMPARISONS,
        "Why there is no interval": selecting.INTERVALS,
        "Why there is no interval on another GPU": targets.TARGET_INTERVALS,
        "What to measure": measuring.MEASURING,
        "Logs of simulators": simulating.SIMULATOR_LOGS,
        "Why a projection does not stop": simulating.PROJECTIONS,
        "Cold starts": simulating.COLD_STARTS,
        "Hand-over to simulators, and back": simulating.HAND_OVERS,
        "Scale models": simulating.SCALE_MODELS,
    }
)
NOTES: Mapping[str, NoteKind] = MappingProxyType(
    {kind.code: kind for kinds in SUBJECTS.values() for kind in kinds}
)


def note_table() -> str:
    """The reference tables of docs/notes.md, one a subject, as Markdown."""
    parts = []
    for subject, kinds in SUBJECTS.items():
        lines = [f"## {subject}", "", "| code | flag | meaning |", "|---|---|---|"]
        for kind in kinds:
            lines.append(f"| `{kind.code}` | {f'`{kind.flag}`' if kind.flag else ''} | {kind.meaning} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
