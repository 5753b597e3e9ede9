"""A check of a whole state folder: every published file against its hash, every row against its rules.

It changes nothing. The rows are read from a copy of the database, so a server may run meanwhile; then what
is found is looked at a second time, because a file may have been replaced since the copy was made.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.upload import Bundle
from assay_sampling.errors import AssayError, StorageError
from assay_sampling.launches.checks import check_schema
from assay_server.analysis.runs.intact import what_changed
from assay_server.campaigns.bundles import bundle_fault
from assay_server.database.opening import AskedDatabase
from assay_server.identity.authority import read_authority
from assay_server.maintenance.database_copy import (
    METADATA,
    copy_database,
    has_metadata,
)
from assay_server.records.opening import UNDER_WAY, look_at_records
from assay_server.state_lock import locked_state
from assay_server.store import tables
from assay_server.store.model import ACTIVE_ATTEMPTS, OPEN_RUNS, Attempt, Campaign, Run, Slice, SliceState
from assay_server.store.record_store import BUNDLES, PACKED
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

LookedAt = Callable[[int, int], None]
_LAST_TOKEN = sa.select(tables.tokens.c.value).where(tables.tokens.c.name == "lease")
_COLUMNS = b"ARROW:schema"  # the key under which Arrow keeps a table's whole schema in Parquet


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


def check_state(
    state: Path, looked_at: LookedAt = lambda runs, of: None, settings: AskedDatabase | None = None
) -> Checked:
    """Check a state folder. Raises StorageError only if it has no state, or cannot be looked at.

    ``looked_at`` is told how many runs were looked at, and how many there are. ``settings``: where the
    database is, if the state folder does not say it.
    """
    if not has_metadata(state):
        raise StorageError(str(state), "there is no state of an assay-server", "name its --state folder")
    checked = _checked(state, looked_at, settings)
    if not checked.findings or not _in_use(state):
        return checked
    again = _checked(state, looked_at, settings)
    first_findings = set(checked.findings)
    findings = tuple(finding for finding in again.findings if finding in first_findings)
    return replace(again, findings=findings)


def _checked(state: Path, looked_at: LookedAt, settings: AskedDatabase | None) -> Checked:
    """Files of a bucket are fetched anew, and not from the server's copies of them."""
    with tempfile.TemporaryDirectory(prefix="assay-check-files-") as cache:
        return _Check(state, looked_at, settings, Path(cache)).run()


def _in_use(state: Path) -> bool:
    try:
        with locked_state(state):
            return False
    except StorageError:
        return True


class LaunchTables:
    """Looks at launch tables; of files with the same columns, whose bytes say so, it reads these once."""

    def __init__(self) -> None:
        self._sound: set[bytes] = set()

    def fault(self, path: Path, piece: Slice) -> str:
        """Why a file is not the launch table that the database says it is; "" if it is."""
        try:
            # Given an open file, pyarrow does not look for the path in its file systems.
            with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:
                size, launches = source.size(), file.metadata.num_rows
                columns = (file.metadata.metadata or {}).get(_COLUMNS, b"")
                if columns not in self._sound:
                    check_schema(file.schema_arrow)
                    if columns:
                        self._sound.add(columns)
        except (AssayError, pa.ArrowException, OSError) as error:
            return f"it is not a launch table ({error})"
        if (launches, size) != (piece.launches, piece.file_bytes):
            return f"it has {launches:,} launches, the database says {piece.launches:,}"
        return ""


class _Check:
    """One pass over one copy of the database."""

    def __init__(self, state: Path, looked_at: LookedAt, settings: AskedDatabase | None, cache: Path) -> None:
        self._state, self._settings = state, settings
        self._looked_at = looked_at
        self._tables = LaunchTables()
        self._records = look_at_records(state, cache)
        self._findings: list[Finding] = []
        self._published_files: set[str] = set()
        self._bundles: set[str] = set()
        self._campaigns = self._runs = self._all_runs = self._files = self._bytes = 0

    def run(self) -> Checked:
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            database = Path(folder) / METADATA
            try:
                copy_database(self._state, database, self._settings)
                self._look(database)
            except StorageError as error:
                self._find(FindingKind.DATABASE, METADATA, error.cause)
        try:
            read_authority(self._state)
        except StorageError as error:
            self._find(FindingKind.AUTHORITY, "authority", error.cause)
        return Checked(self._campaigns, self._runs, self._files, self._bytes, tuple(self._findings))

    def _find(self, kind: FindingKind, subject: str, cause: str) -> None:
        self._findings.append(Finding(kind, subject, cause))

    def _look(self, database: Path) -> None:
        with contextlib.closing(SqliteStore(database)) as store, store.snapshot() as read:
            for table, row, *_ in read.connection.exec_driver_sql("PRAGMA foreign_key_check"):
                self._find(
                    FindingKind.RULE, f"{table}, row {row}", "it belongs to a record that is not there"
                )
            ids = [overview.campaign_id for overview in read.campaigns()]
            self._all_runs = sum(sum(each.values()) for each in read.counts_of_runs(ids).values())
            newest_token = read.connection.scalar(_LAST_TOKEN) or 0
            for campaign_id in ids:
                self._campaigns += 1
                with self._rows(f"campaign {campaign_id}"):
                    self._campaign(read, campaign_id, newest_token)
            for kept_bundle in read.bundles():
                self._bundle(kept_bundle.bundle, kept_bundle.file)
        for file in sorted(set(self._records.listed()) - self._published_files):
            self._find(FindingKind.UNKNOWN, f"records/{file}", "the database does not know it")

    @contextlib.contextmanager
    def _rows(self, subject: str) -> Iterator[None]:
        """Rows that no release of ours can have written become a finding."""
        try:
            yield
        except (AssayError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._find(FindingKind.ROW, subject, f"a row cannot be read ({type(error).__name__}: {error})")

    def _campaign(self, store: SqlTransaction, campaign_id: str, newest_token: int) -> None:
        campaign = store.campaign(campaign_id)
        if campaign is None:
            return
        runs = store.runs(campaign_id)
        self._findings += broken_in_campaign(campaign, runs)
        if campaign.has_report:
            self._report(campaign_id)
        for bundle in campaign.compiled.bundles:
            kept_bundle = store.bundle(bundle.sha256)
            # Before a server of this release has started, an earlier one's folder says what is there.
            self._bundle(bundle, f"{bundle.sha256}{PACKED}" if kept_bundle is None else kept_bundle.file)
        for run in runs:
            self._runs += 1
            self._looked_at(self._runs, self._all_runs)
            with self._rows(f"run {run.run_id}"):
                slices, attempts = store.slices(run.run_id), store.attempts(run.run_id)
                self._findings += broken_in_run(run, slices, attempts)
                self._findings += _broken_tokens(attempts, newest_token)
                for piece in slices:
                    if piece.file:
                        self._published(piece)
                self._staged(store, attempts)

    def _report(self, campaign_id: str) -> None:
        path = self._records.report_path(campaign_id, "json")
        name = f"reports/{campaign_id}/{path.name}"
        try:
            json.loads(path.read_bytes())
        except FileNotFoundError:
            self._find(FindingKind.REPORT, name, "it is missing")
        except (OSError, ValueError) as error:
            self._find(FindingKind.REPORT, name, f"it cannot be read ({error})")

    def _bundle(self, bundle: Bundle, file: str) -> None:
        """A bundle is named by its content, so its name says whether it changed."""
        if bundle.sha256 in self._bundles:
            return
        self._bundles.add(bundle.sha256)
        with self._records.reading_bundle(file) as path:
            cause = bundle_fault(path, bundle)
            kind = FindingKind.CHANGED if path.exists() else FindingKind.MISSING
        if cause:
            self._find(kind, f"{BUNDLES}/{file}", cause)

    def _published(self, piece: Slice) -> None:
        name = f"records/{piece.file}"
        self._published_files.add(piece.file)
        self._files += 1
        with self._records.reading(piece.file) as path:
            change = what_changed(path, piece.content_hash)
            if change is not None:
                self._find(FindingKind(str(change)), name, f"it is {change} since it was published")
                return
            self._bytes += path.stat().st_size
            fault = self._tables.fault(path, piece)
        self._records.let_go(piece.file)
        if fault:
            self._find(FindingKind.UNREADABLE, name, fault)

    def _staged(self, store: SqlTransaction, attempts: Sequence[Attempt]) -> None:
        """The segments of attempts under way: numbered without a gap, each as it was acknowledged."""
        for attempt in attempts:
            if attempt.state not in UNDER_WAY:
                continue
            segments = store.segments(attempt.key)
            if [each.index for each in segments] != list(range(attempt.segments)):
                cause = f"it has {attempt.segments} segments, of which {len(segments)} are there"
                self._find(FindingKind.RULE, str(attempt.key), cause)
            for segment in segments:
                try:
                    self._records.staged(segment)
                except StorageError as error:
                    self._find(FindingKind.SEGMENT, str(attempt.key), error.cause)
                    break


def broken_in_campaign(campaign: Campaign, runs: Sequence[Run]) -> Iterator[Finding]:
    """The rules of a campaign and its runs' states."""
    if campaign.state in (CampaignState.DONE, CampaignState.FAILED, CampaignState.ANALYSING):
        for run in runs:
            if run.state in OPEN_RUNS:
                yield _broken(f"run {run.run_id}", f"it is {run.state}, but its campaign is {campaign.state}")
    if campaign.state is CampaignState.DONE and not campaign.has_report:
        yield _broken(f"campaign {campaign.campaign_id}", "it is done and has no report")


def broken_in_run(run: Run, slices: Sequence[Slice], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """The rules of a run, its slices and their attempts."""
    states = {piece.state for piece in slices}
    if run.state is RunState.DONE and states != {SliceState.DONE}:
        yield _broken(f"run {run.run_id}", "it is done, but not all of its slices are")
    if run.state in OPEN_RUNS and SliceState.FAILED in states:
        yield _broken(f"run {run.run_id}", f"it is {run.state}, but a slice of it has failed")
    if [piece.index for piece in slices] != list(range(len(slices))):
        yield _broken(f"run {run.run_id}", "its slices are not numbered from 0 without a gap")
    for piece in slices:
        mine = [attempt for attempt in attempts if attempt.key.slice_index == piece.index]
        yield from _broken_in_slice(piece, mine)


def _broken_in_slice(piece: Slice, attempts: Sequence[Attempt]) -> Iterator[Finding]:
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


def _broken_tokens(attempts: Sequence[Attempt], last_token: int) -> Iterator[Finding]:
    """Attempts with a fencing token that was never given out."""
    for attempt in attempts:
        if attempt.key.token > last_token:
            yield _broken(str(attempt.key), f"its token {attempt.key.token} is after the last, {last_token}")


def _broken(subject: str, cause: str) -> Finding:
    return Finding(FindingKind.RULE, subject, cause)
