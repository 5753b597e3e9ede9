"""What a check of a state folder finds wrong, and the rules that its rows hold to, campaign by campaign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_server.store.model import ACTIVE_ATTEMPTS, OPEN_RUNS, Attempt, Campaign, Run, Slice, SliceState
from assay_server.store.sql import SqlTransaction


@dataclass(frozen=True)
class RunRows:
    """A run with its slices and attempts."""

    run: Run
    slices: tuple[Slice, ...]
    attempts: tuple[Attempt, ...]


def rows_of(store: SqlTransaction, run: Run) -> RunRows:
    """All rows of a run."""
    return RunRows(run, tuple(store.slices(run.run_id)), tuple(store.attempts(run.run_id)))


def broken_in_campaign(campaign: Campaign, runs: list[Run]) -> Iterator[Finding]:
    """The rules of a campaign and its runs' states."""
    if campaign.state in (CampaignState.DONE, CampaignState.FAILED, CampaignState.ANALYSING):
        for run in runs:
            if run.state in OPEN_RUNS:
                yield _broken(f"run {run.run_id}", f"it is {run.state}, but its campaign is {campaign.state}")
    if campaign.state is CampaignState.DONE and not campaign.has_report:
        yield _broken(f"campaign {campaign.campaign_id}", "it is done and has no report")


def broken_in_run(rows: RunRows) -> Iterator[Finding]:
    """The rules of a run, its slices and their attempts."""
    states = {piece.state for piece in rows.slices}
    if rows.run.state is RunState.DONE and states != {SliceState.DONE}:
        yield _broken(f"run {rows.run.run_id}", "it is done, but not all of its slices are")
    if rows.run.state in OPEN_RUNS and SliceState.FAILED in states:
        yield _broken(f"run {rows.run.run_id}", f"it is {rows.run.state}, but a slice of it has failed")
    if [piece.index for piece in rows.slices] != list(range(len(rows.slices))):
        yield _broken(f"run {rows.run.run_id}", "its slices are not numbered from 0 without a gap")
    for piece in rows.slices:
        mine = [attempt for attempt in rows.attempts if attempt.key.slice_index == piece.index]
        yield from _broken_in_slice(piece, mine)


def _broken_in_slice(piece: Slice, attempts: list[Attempt]) -> Iterator[Finding]:
    subject = f"slice {piece.index} of run {piece.run_id}"
    published = [attempt for attempt in attempts if attempt.state is AttemptState.PUBLISHED]
    active = [attempt for attempt in attempts if attempt.state in ACTIVE_ATTEMPTS]
    if (piece.state is SliceState.DONE) != (len(published) == 1):
        yield _broken(subject, f"it is {piece.state} with {len(published)} published attempts")
    if piece.file and piece.state is not SliceState.DONE:
        yield _broken(subject, f"it is {piece.state} and has a published file")
    if piece.state is SliceState.DONE and bool(piece.file) != bool(piece.launches):
        yield _broken(subject, f"it has {piece.launches:,} launches and the file {piece.file!r}")
    if (piece.state is SliceState.LEASED) != bool(active):
        yield _broken(subject, f"it is {piece.state} with {len(active)} attempts under way")
    for attempt in published:
        if attempt.launches != piece.launches:
            yield _broken(
                subject, f"it has {piece.launches:,} launches, its published attempt {attempt.launches:,}"
            )


def broken_tokens(attempts: list[Attempt], last_token: int) -> Iterator[Finding]:
    """Attempts with a fencing token that was never given out."""
    for attempt in attempts:
        if attempt.key.token > last_token:
            yield _broken(str(attempt.key), f"its token {attempt.key.token} is after the last, {last_token}")


def _broken(subject: str, cause: str) -> Finding:
    return Finding(FindingKind.RULE, subject, cause)


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
