"""A check of a whole state folder: every published file against its hash, every row against its rules.

It changes nothing. The rows are read from a copy of the database, so a server may run meanwhile; then what
is found is looked at a second time, because a file may have been replaced since the copy was made.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from assay_core.records.campaign import AttemptState
from assay_core.records.upload import Bundle
from assay_sampling.errors import AssayError, StorageError
from assay_sampling.launches.checks import check_schema
from assay_server.analysis.runs.intact import what_changed
from assay_server.campaigns.bundles import bundle_fault
from assay_server.database.opening import AskedDatabase
from assay_server.identity.authority import read_authority
from assay_server.maintenance.rules import (
    Checked,
    Finding,
    FindingKind,
    RunRows,
    broken_in_campaign,
    broken_in_run,
    broken_tokens,
    rows_of,
)
from assay_server.maintenance.stored_files import (
    METADATA,
    copy_database,
    foreign_keys_broken,
    has_metadata,
    last_token,
)
from assay_server.records.opening import look_at_records
from assay_server.state_lock import locked_state
from assay_server.store.model import Slice
from assay_server.store.record_store import BUNDLES, PACKED
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

LookedAt = Callable[[int, int], None]
_COLUMNS = b"ARROW:schema"  # the key under which Arrow keeps a table's whole schema in Parquet
_UNDER_WAY = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


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
    return Checked(
        again.campaigns,
        again.runs,
        again.files,
        again.file_bytes,
        tuple(finding for finding in again.findings if finding in first_findings),
    )


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
        for row in foreign_keys_broken(database):
            self._find(FindingKind.RULE, row, "it belongs to a record that is not there")
        with contextlib.closing(SqliteStore(database)) as store, store.snapshot() as read:
            ids = [overview.campaign_id for overview in read.campaigns()]
            self._all_runs = sum(sum(each.values()) for each in read.counts_of_runs(ids).values())
            newest_token = last_token(database)
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
                rows = rows_of(store, run)
                self._findings += broken_in_run(rows)
                self._findings += broken_tokens(list(rows.attempts), newest_token)
                for piece in rows.slices:
                    if piece.file:
                        self._published(piece)
                self._staged(store, rows)

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

    def _staged(self, store: SqlTransaction, rows: RunRows) -> None:
        """The segments of attempts under way: numbered without a gap, each as it was acknowledged."""
        for attempt in rows.attempts:
            if attempt.state not in _UNDER_WAY:
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
