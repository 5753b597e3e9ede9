"""What a check of a state folder finds wrong: closed kinds, each with what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """What is wrong; docs/server-state.md has the table."""

    DATABASE = "database"
    ROW = "row"
    RULE = "rule"
    MISSING = "missing"
    CHANGED = "changed"
    UNREADABLE = "unreadable"
    SEGMENT = "segment"
    REPORT = "report"
    UNKNOWN = "unknown"
    AUTHORITY = "authority"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]


_MEASURED_AGAIN = (
    "check the disk; a start of the server, or the campaign's analysis, measures it again; if the campaign "
    "has ended, restore the file from a backup"
)
_REMEDIES = {
    FindingKind.DATABASE: "check the disk, then: assay-server restore BACKUP --state DIR",
    FindingKind.ROW: "restore a backup, or ask the authors of Assay with this message",
    FindingKind.RULE: "restore a backup, or ask the authors of Assay with this message",
    FindingKind.MISSING: _MEASURED_AGAIN,
    FindingKind.CHANGED: _MEASURED_AGAIN,
    FindingKind.UNREADABLE: _MEASURED_AGAIN,
    FindingKind.SEGMENT: "check the disk; its attempt fails when it is published, and is made again",
    FindingKind.REPORT: "restore it from a backup",
    FindingKind.UNKNOWN: "the next start of the server moves it to set-aside, and removes nothing",
    FindingKind.AUTHORITY: "restore the folder 'authority' from a backup",
}


@dataclass(frozen=True)
class Finding:
    """``subject``: a file of the state folder, or a record of the database."""

    kind: FindingKind
    subject: str
    cause: str


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what is wrong with it."""

    campaigns: int
    runs: int
    files: int
    file_bytes: int
    findings: tuple[Finding, ...]
