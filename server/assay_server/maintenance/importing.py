"""Taking in an archive: it is checked before anything of it is stored, and comes whole or not at all."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import IO

from assay_core.files.durable import make_folder, storage_errors, sync_file
from assay_core.files.private_folders import private_opener
from assay_core.records.archive import ImportedCampaign
from assay_sampling.errors import AssayError, CampaignError, InputError, StorageError
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.campaigns.bundles import holder
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.content_hash import fresh_hash_of
from assay_server.maintenance.archives import (
    ARCHIVE_VERSION,
    ArchiveManifest,
    CampaignRows,
    read_rows,
    require_ended,
)
from assay_server.maintenance.check import LaunchTables
from assay_server.maintenance.manifest import MANIFEST, parse_manifest
from assay_server.maintenance.rules import RunRows, broken_in_campaign, broken_in_run
from assay_server.maintenance.stored_files import METADATA
from assay_server.store.model import Slice
from assay_server.store.record_store import BUNDLES, PACKED

FOLDER = "importing"
_SUBJECT = "archive"
_PIECE_BYTES = 1 << 20
_BY_CHANCE = secrets.token_hex(6)  # servers in containers may have one process number
_counter = itertools.count()


class Import:
    """One archive on its way in: :meth:`write` its pieces, then :meth:`finish`, and :meth:`close` it."""

    def __init__(self, coordinator: Coordinator, state: Path, most_bytes: int) -> None:
        self._coordinator = coordinator
        self._most_bytes = most_bytes
        self._folder = state / FOLDER / f"{os.getpid()}-{_BY_CHANCE}-{next(_counter)}"
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
        with read_rows(files / METADATA) as rows:
            _check(rows, manifest, files)
            return self._take_in(rows, files)

    def _take_in(self, rows: CampaignRows, files: Path) -> ImportedCampaign:
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

    def _take_in_bundles(self, rows: CampaignRows, files: Path) -> None:
        """Each is checked as if somebody sent it."""
        store = self._coordinator.bundles
        for bundle in rows.campaign.compiled.bundles if store is not None else ():
            assert store is not None
            with store.begin(holder(), bundle) as incoming:
                path = files / BUNDLES / f"{bundle.sha256}{PACKED}"
                with storage_errors(path), path.open("rb") as file:
                    while data := file.read(_PIECE_BYTES):
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

    def _store(self, rows: CampaignRows) -> None:
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
    shutil.rmtree(state / FOLDER, ignore_errors=True)


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


def _check(rows: CampaignRows, manifest: ArchiveManifest, files: Path) -> None:
    """Raises InputError unless the rows hold to their rules and name exactly the files that are there."""
    campaign = rows.campaign
    require_ended(campaign, "imported")
    if campaign.campaign_id != manifest.campaign_id:
        raise _not_ours(f"its rows are of campaign {campaign.campaign_id}")
    broken = list(broken_in_campaign(campaign, list(rows.runs)))
    slices: dict[str, list[Slice]] = {run.run_id: [] for run in rows.runs}
    for piece in rows.slices:
        slices[piece.run_id].append(piece)
    for run in rows.runs:
        if not run.run_id.startswith(f"{campaign.campaign_id}."):
            raise _not_ours(f"its run {run.run_id} is of another campaign")
        broken += broken_in_run(RunRows(run, tuple(slices[run.run_id]), tuple(rows.attempts(run.run_id))))
    if broken:
        raise _not_ours(f"{broken[0].subject}: {broken[0].cause}")
    _check_files(rows, manifest, files)
    named = {kept_file.name for kept_file in manifest.files}
    for bundle in campaign.compiled.bundles:
        if f"{BUNDLES}/{bundle.sha256}{PACKED}" not in named:
            raise _not_ours(f"it lacks the bundle {bundle.sha256}, which its campaign names")


def _check_files(rows: CampaignRows, manifest: ArchiveManifest, files: Path) -> None:
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
