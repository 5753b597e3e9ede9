"""Archives of campaigns: one tar file with the rows, the published files and the reports, as they are.

    manifest.json          format, version, and every file with size and hash
    metadata.sqlite        the campaign's rows alone, in the schema of the server that wrote it
    records/RUN/slice-00000.parquet
    reports/CAMPAIGN/report.json, report.html
    bundles/SHA256.tar.z   the files of its submitter that its workloads ran in

The rows are a database of our own schema, so that a later release reads them with its migrations. An archive
that comes in is checked before anything of it is stored, and comes whole or not at all. Whoever has one may
delete the campaign.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict

from assay_core.files.durable import make_folder, storage_errors, sync_file
from assay_core.files.private_folders import private_opener
from assay_core.program import distribution_version
from assay_core.records.archive import DeletedCampaign, DeleteRequest, ImportedCampaign
from assay_core.records.campaign import ENDED_CAMPAIGNS
from assay_core.records.upload import Bundle
from assay_sampling.errors import AssayError, CampaignError, InputError, ParameterError, StorageError
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.campaigns.bundles import holder
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.content_hash import fresh_hash_of
from assay_server.maintenance.check import LaunchTables, broken_in_campaign, broken_in_run
from assay_server.maintenance.database_copy import METADATA
from assay_server.maintenance.manifest import MANIFEST, HashedReader, KeptFile, kept_file_of, parse_manifest
from assay_server.store.migrate import HEAD
from assay_server.store.model import Attempt, Campaign, Run, Slice
from assay_server.store.record_store import BUNDLES, PACKED, REPORT_FORMS
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

_log = logging.getLogger(__name__)

ARCHIVE_VERSION = 1
_CHUNK_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_RUNS_AT_A_TIME = 200
_IMPORTS = "importing"
_SUBJECT = "archive"
_BY_CHANCE = secrets.token_hex(6)  # servers in containers may have one process number
_counter = itertools.count()


class ArchiveManifest(BaseModel):
    """An archive of one campaign."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["assay-campaign-archive"] = "assay-campaign-archive"
    version: int = ARCHIVE_VERSION
    campaign_id: str
    release: str
    schema_revision: str
    files: tuple[KeptFile, ...]


@dataclass(frozen=True)
class _CampaignRows:
    """All rows of a campaign that matter once it has ended: segments do not."""

    campaign: Campaign
    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]
    snapshot: Callable[[], contextlib.AbstractContextManager[SqlTransaction]]

    def attempts(self, run_id: str) -> list[Attempt]:
        """Those of one run; all together, with their logs, may be more than memory holds."""
        with self.snapshot() as read:
            return read.attempts(run_id)

    @property
    def published_bytes(self) -> int:
        return sum(piece.file_bytes for piece in self.slices)

    @property
    def files(self) -> int:
        return sum(bool(piece.file) for piece in self.slices)


def require_ended(campaign: Campaign, what: str) -> None:
    """Raises CampaignError for a campaign that has not ended."""
    if campaign.state not in ENDED_CAMPAIGNS:
        raise CampaignError(
            f"campaign {campaign.campaign_id}",
            f"it is {campaign.state}, and only a campaign that has ended may be {what}",
            f"wait for it, or cancel it: assay lab cancel {campaign.campaign_id}",
        )


def export_campaign(coordinator: Coordinator, campaign_id: str) -> Iterator[bytes]:
    """The archive of a campaign that has ended, in pieces.

    Raises CampaignError before the first piece, and StorageError if a file is not as it was published.
    """
    with coordinator.snapshot() as store:
        campaign = known_campaign(store.campaign(campaign_id), campaign_id)
        require_ended(campaign, "exported")
        rows = _rows_of(store, campaign, coordinator.snapshot)
    with tempfile.TemporaryDirectory(prefix="assay-export-") as folder:
        database = Path(folder) / METADATA
        _write_rows(database, rows)
        sources: list[tuple[KeptFile, contextlib.AbstractContextManager[Path]]] = [
            (kept_file_of(METADATA, database), contextlib.nullcontext(database))
        ]
        for piece in rows.slices:
            if piece.file:
                kept_file = KeptFile(
                    name=f"records/{piece.file}", bytes=piece.file_bytes, hash=piece.content_hash
                )
                sources.append((kept_file, coordinator.records.reading(piece.file)))
        for form in REPORT_FORMS if rows.campaign.has_report else ():
            path = coordinator.records.report_path(campaign_id, form)
            sources.append(
                (kept_file_of(f"reports/{campaign_id}/{path.name}", path), contextlib.nullcontext(path))
            )
        for each in campaign.compiled.bundles:
            with coordinator.bundles.reading(each.sha256) as path:
                kept_file = kept_file_of(_bundle_name(each), path)
            sources.append((kept_file, coordinator.bundles.reading(each.sha256)))
        manifest = ArchiveManifest(
            campaign_id=campaign_id,
            release=distribution_version(),
            schema_revision=HEAD,
            files=tuple(kept_file for kept_file, _ in sources),
        )
        data = json.dumps(manifest.model_dump(), indent=1).encode()
        yield _header(MANIFEST, len(data)) + data + _padding(len(data))
        for kept_file, source in sources:
            with source as path:
                yield from _member(kept_file, path)
        yield bytes(2 * _BLOCK)


def _bundle_name(bundle: Bundle) -> str:
    return f"{BUNDLES}/{bundle.sha256}{PACKED}"


def _rows_of(
    store: SqlTransaction,
    campaign: Campaign,
    snapshot: Callable[[], contextlib.AbstractContextManager[SqlTransaction]],
) -> _CampaignRows:
    runs = store.runs(campaign.campaign_id)
    slices = [piece for run in runs for piece in store.slices(run.run_id)]
    return _CampaignRows(campaign, tuple(runs), tuple(slices), snapshot)


def _write_rows(database: Path, rows: _CampaignRows) -> None:
    with contextlib.closing(SqliteStore(database)) as store, store.transaction() as transaction:
        transaction.add_campaign(rows.campaign, rows.runs, rows.slices)
        for run in rows.runs:
            for attempt in rows.attempts(run.run_id):
                # The secret of a lease that has ended proves nothing, and is nobody else's business.
                transaction.add_attempt(replace(attempt, write_secret=b""))


@contextlib.contextmanager
def _read_rows(database: Path) -> Iterator[_CampaignRows]:
    """The rows of an archive, brought to this release's schema.

    Raises StorageError if a newer release wrote them, or they are not those of one campaign.
    """
    with contextlib.closing(SqliteStore(database)) as store:
        with store.snapshot() as read:
            overviews = read.campaigns()
            campaign = read.campaign(overviews[0].campaign_id) if len(overviews) == 1 else None
            if campaign is None:
                raise StorageError(METADATA, f"it has {len(overviews)} campaigns instead of one")
            rows = _rows_of(read, campaign, store.snapshot)
        yield rows


def _member(kept_file: KeptFile, path: Path) -> Iterator[bytes]:
    """A file as it is in the tar; raises StorageError if it is not as the manifest says."""
    with storage_errors(path), path.open("rb") as file:
        yield _header(kept_file.name, kept_file.bytes)
        reader = HashedReader(file, kept_file.bytes)
        while data := reader.read(_CHUNK_BYTES):
            yield data
        if file.read(1) or reader.kept_file(kept_file.name) != kept_file:
            raise StorageError(
                kept_file.name,
                "it is not as it was published, so there is no archive of its campaign",
                "look at the server's state with: assay-server check --state DIR",
            )
    yield _padding(kept_file.bytes)


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def delete_campaign(coordinator: Coordinator, request: DeleteRequest) -> DeletedCampaign:
    """Delete a campaign that has ended: its rows in pieces, each followed by its files, and itself last.

    Between two pieces leases and heartbeats have their turn. A crash in between leaves the campaign in the
    list with the runs that are left: deleting it again goes on. Files whose rows are gone are set aside at
    the next start. Raises ParameterError, CampaignError, StorageError.
    """
    if not request.confirmed:
        raise ParameterError(
            f"campaign {request.campaign_id}",
            "its records and its report would be gone for good",
            "confirm that with --yes; keep them in a file with: assay lab campaigns archive",
        )
    runs = files = size = 0
    while True:
        with coordinator.schedule() as schedule:
            campaign = known_campaign(schedule.store.campaign(request.campaign_id), request.campaign_id)
            require_ended(campaign, "deleted")
            piece = schedule.store.runs(request.campaign_id)[:_RUNS_AT_A_TIME]
            slices = [each for run in piece for each in schedule.store.slices(run.run_id) if each.file]
            if piece:
                schedule.store.delete_runs([run.run_id for run in piece])
            else:
                schedule.store.delete_campaign(campaign)
            schedule.effects.campaigns.add(request.campaign_id)
        for run in piece:
            coordinator.records.delete_run(run.run_id)
        for each in slices:
            coordinator.changed_records.forget(f"records/{each.file}")
        runs, files = runs + len(piece), files + len(slices)
        size += sum(each.file_bytes for each in slices)
        if not piece:
            coordinator.records.delete_report(request.campaign_id)
            _log.warning("campaign %s is deleted: %d runs, %d files", request.campaign_id, runs, files)
            return DeletedCampaign(request.campaign_id, runs, files, size)


class Import:
    """One archive on its way in: :meth:`write` its pieces, then :meth:`finish`, and :meth:`close` it."""

    def __init__(self, coordinator: Coordinator, state: Path, most_bytes: int) -> None:
        self._coordinator = coordinator
        self._most_bytes = most_bytes
        self._folder = state / _IMPORTS / f"{os.getpid()}-{_BY_CHANCE}-{next(_counter)}"
        self._received = 0
        with storage_errors(self._folder):
            make_folder(self._folder)
            # Open over several messages; closed by close().
            self._file: IO[bytes] = open(  # noqa: SIM115
                self._folder / "archive.tar", "xb", opener=private_opener
            )

    def close(self) -> None:
        """Remove what was received; what was taken in stays."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, data: bytes) -> None:
        """Take a piece. Raises StorageError if there is no room for it."""
        self._received += len(data)
        if self._received > self._most_bytes:
            raise StorageError(
                _SUBJECT,
                f"it has more than {self._most_bytes:,} bytes, for which this server has room",
                "free space, or raise --records-limit",
            )
        with storage_errors(_SUBJECT):
            self._file.write(data)

    def finish(self) -> ImportedCampaign:
        """Check the archive and take it in. Raises InputError, CampaignError or StorageError."""
        with storage_errors(_SUBJECT):
            self._file.close()
            files = self._folder / "files"
            make_folder(files)
            manifest = _unpacked(self._folder / "archive.tar", files)
        with _read_rows(files / METADATA) as rows:
            _check(rows, manifest, files)
            return self._take_in(rows, files)

    def _take_in(self, rows: _CampaignRows, files: Path) -> ImportedCampaign:
        records, campaign = self._coordinator.records, rows.campaign
        self._require_new(campaign.campaign_id)
        placed: list[Slice] = []
        try:
            for piece in rows.slices:
                if piece.file:
                    source = files / "records" / piece.file
                    with storage_errors(source):
                        sync_file(source)
                    records.take_in(source, piece.file)
                    placed.append(piece)
            for path in sorted((files / "reports" / campaign.campaign_id).glob("report.*")):
                records.write_report(campaign.campaign_id, path.suffix[1:], path.read_bytes())
            self._take_in_bundles(rows, files)
            self._store(rows)
        except BaseException:
            for piece in placed:
                records.withdraw(piece.file)
            raise
        return ImportedCampaign(campaign.campaign_id, len(rows.runs), rows.files, rows.published_bytes)

    def _take_in_bundles(self, rows: _CampaignRows, files: Path) -> None:
        """Each is checked as if somebody sent it."""
        for bundle in rows.campaign.compiled.bundles:
            with self._coordinator.bundles.begin(holder(), bundle) as incoming:
                path = files / _bundle_name(bundle)
                with storage_errors(path), path.open("rb") as file:
                    while data := file.read(_CHUNK_BYTES):
                        incoming.feed(data)
                incoming.finish()

    def _require_new(self, campaign_id: str) -> None:
        with self._coordinator.snapshot() as store:
            if store.campaign(campaign_id) is not None:
                raise CampaignError(
                    f"campaign {campaign_id}",
                    "this server has a campaign of that name already",
                    "export and delete that one first; nothing was changed",
                )

    def _store(self, rows: _CampaignRows) -> None:
        """The rows in one transaction; attempts get new tokens, for theirs may be taken here."""
        caller = current_caller()
        owner, name = ("", "") if caller is None else (caller.identity_id, caller.name)
        campaign = replace(rows.campaign, owner=owner, owner_name=name, submission="")
        note_subject(f"campaign {campaign.campaign_id}", f"{len(rows.runs)} runs")
        with self._coordinator.schedule() as schedule:
            schedule.store.add_campaign(campaign, rows.runs, rows.slices)
            for run in rows.runs:
                for attempt in sorted(rows.attempts(run.run_id), key=lambda each: each.key.token):
                    key = replace(attempt.key, token=schedule.store.next_token())
                    schedule.store.add_attempt(replace(attempt, key=key))
            schedule.effects.campaigns.add(campaign.campaign_id)


def remove_leftovers(state: Path) -> None:
    """Remove what a crash left of archives on their way in; call this before anything is imported."""
    shutil.rmtree(state / _IMPORTS, ignore_errors=True)


def _unpacked(archive: Path, files: Path) -> ArchiveManifest:
    """Unpack an archive whose files are exactly those of its manifest."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(files, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise _not_ours(f"it is not a tar file, or cut off ({error})") from error
    if not (files / MANIFEST).is_file():
        raise _not_ours(f"it has no {MANIFEST}")
    manifest = parse_manifest(
        (files / MANIFEST).read_bytes(), ArchiveManifest, Path(_SUBJECT), ARCHIVE_VERSION
    )
    names = {str(path.relative_to(files)) for path in files.rglob("*") if not path.is_dir()} - {MANIFEST}
    named = {kept_file.name: kept_file for kept_file in manifest.files}
    if names != set(named):
        raise _not_ours(f"it does not hold the files of its manifest ({sorted(names ^ set(named))[0]})")
    for kept_file in manifest.files:
        path = files / kept_file.name
        if (
            path.is_symlink()
            or path.stat().st_size != kept_file.bytes
            or fresh_hash_of(path) != kept_file.hash
        ):
            raise _not_ours(f"{kept_file.name} has changed since it was exported")
    return manifest


def _check(rows: _CampaignRows, manifest: ArchiveManifest, files: Path) -> None:
    """Raises InputError unless the rows hold to their rules and name exactly the files that are there."""
    campaign = rows.campaign
    require_ended(campaign, "imported")
    if campaign.campaign_id != manifest.campaign_id:
        raise _not_ours(f"its rows are of campaign {campaign.campaign_id}")
    broken = list(broken_in_campaign(campaign, rows.runs))
    slices: dict[str, list[Slice]] = {run.run_id: [] for run in rows.runs}
    for piece in rows.slices:
        slices[piece.run_id].append(piece)
    for run in rows.runs:
        if not run.run_id.startswith(f"{campaign.campaign_id}."):
            raise _not_ours(f"its run {run.run_id} is of another campaign")
        broken += broken_in_run(run, slices[run.run_id], rows.attempts(run.run_id))
    if broken:
        raise _not_ours(f"{broken[0].subject}: {broken[0].cause}")
    _check_files(rows, manifest, files)
    named = {kept_file.name for kept_file in manifest.files}
    for bundle in campaign.compiled.bundles:
        if _bundle_name(bundle) not in named:
            raise _not_ours(f"it lacks the bundle {bundle.sha256}, which its campaign names")


def _check_files(rows: _CampaignRows, manifest: ArchiveManifest, files: Path) -> None:
    """Raises InputError unless every published slice has its file under its name, as it was published."""
    hashes, tables = {kept_file.name: kept_file.hash for kept_file in manifest.files}, LaunchTables()
    for piece in rows.slices:
        if not piece.file:
            continue
        if not _is_name_of(piece):
            raise _not_ours(f"the file of slice {piece.index} of run {piece.run_id} is {piece.file!r}")
        if hashes.get(f"records/{piece.file}") != piece.content_hash:
            raise _not_ours(f"records/{piece.file} is not what was published")
        fault = tables.fault(files / "records" / piece.file, piece)
        if fault:
            raise _not_ours(f"records/{piece.file}: {fault}")


def _is_name_of(piece: Slice) -> bool:
    """Whether a published file has a name that a server gives it, alone or beside others."""
    name = re.escape(f"{piece.run_id}/slice-{piece.index:05d}")
    return re.fullmatch(rf"{name}(-[0-9a-f]+-[0-9a-f]+)?\.parquet", piece.file) is not None


def _not_ours(cause: str) -> AssayError:
    return InputError(_SUBJECT, cause, "export the campaign again; nothing was changed")
