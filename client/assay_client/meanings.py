"""What a code in Assay's output means: notes, validity flags, classes of failures."""

from __future__ import annotations

from typing import Annotated, Literal

from assay_sampling.documents.base import Part, says
from assay_sampling.notes.registry import NOTES
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS

_FAILURES = frozenset(each.value for each in FailureClass)


class Meaning(Part):
    """``assay explain CODE --json``."""

    kind: Literal["note", "flag", "failure"]
    code: Annotated[str, says("the code, as output and reports have it")]
    meaning: Annotated[str, says("what it says, Markdown")]
    remedy: Annotated[str, says("what to do about it, Markdown; empty if nothing is needed")]
    effect: Annotated[str, says("what it does to runs and results")]
    page: Annotated[str, says("page of `assay docs` that lists it")]


def meanings_of(code: str) -> list[Meaning]:
    """What a code means; several where a note and its flag share a name, none for an unknown code."""
    meanings = []
    if code in FLAGS:
        meanings.append(_flag(code))
    if code in NOTES and not meanings:
        meanings.append(_note(code))
    if code in _FAILURES:
        meanings.append(_failure(FailureClass(code)))
    return meanings


def all_codes() -> list[str]:
    """Every code that :func:`meanings_of` knows, in alphabetical order."""
    return sorted({*FLAGS, *NOTES, *_FAILURES})


def _flag(code: str) -> Meaning:
    kind = FLAGS[code]
    again = f"; the run is tried again as after {kind.retry_as.value}" if kind.retry_as else ""
    rests = "results exclude the run" if kind.invalidates else "shown next to the numbers"
    return Meaning(
        kind="flag",
        code=code,
        meaning=kind.cause,
        remedy=kind.remedy,
        effect=rests + again,
        page="validity",
    )


def _note(code: str) -> Meaning:
    kind = NOTES[code]
    flag = FLAGS.get(kind.flag or "")
    return Meaning(
        kind="note",
        code=code,
        meaning=kind.meaning,
        remedy=flag.remedy if flag else "",
        effect=f"sets the flag {kind.flag}" if kind.flag else "shown next to the numbers",
        page="notes",
    )


def _failure(failure: FailureClass) -> Meaning:
    tried = "the server tries the run again" if failure.retryable else "the run is not tried again"
    return Meaning(
        kind="failure",
        code=failure.value,
        meaning=failure.meaning,
        remedy=failure.remedy,
        effect=f"{tried}; it counts against the {failure.fault.value}"
        if failure.fault.value != "nobody"
        else tried,
        page="failures",
    )
