"""Archives of campaigns: one tar file with the rows, the published files and the reports, as they are.

    manifest.json          format, version, and every file with size and hash
    metadata.sqlite        the campaign's rows alone, in the schema of the server that wrote it
    records/RUN/slice-00000.parquet
    reports/CAMPAIGN/report.json, report.html
    bundles/SHA256.tar.z   the files of its submitter that its workloads ran in

The rows are a database of our own schema, so that a later release reads them with its migrations.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay_core.files.durable import storage_errors
from assay_core.program import distribution_version
from assay_core.records.campaign import ENDED_CAMPAIGNS
from assay_sampling.errors import CampaignError, StorageError
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.content_hash import fresh_hash_of
from assay_server.maintenance.manifest import MANIFEST, KeptFile
from assay_server.maintenance.stored_files import METADATA
from assay_server.store.migrate import HEAD
from assay_server.store.model import Attempt, Campaign, Run, Slice
from assay_server.store.record_store import BUNDLES, PACKED, REPORT_FORMS
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

ARCHIVE_VERSION = 1
_CHUNK_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE


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
class CampaignRows:
    """All rows of a campaign that matter once it has ended: segments do not.

    ``attempts``: those of one run; all together, with their logs, may be more than memory holds.
    """

    campaign: Campaign
    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]
    attempts: Callable[[str], list[Attempt]]

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
        sources = [(_file_entry(METADATA, database), _at(database))]
        for piece in rows.slices:
            if piece.file:
                kept_file = KeptFile(
                    name=f"records/{piece.file}", bytes=piece.file_bytes, hash=piece.content_hash
                )
                sources.append((kept_file, coordinator.records.reading(piece.file)))
        for form in REPORT_FORMS if rows.campaign.has_report else ():
            path = coordinator.records.report_path(campaign_id, form)
            sources.append((_file_entry(f"reports/{campaign_id}/{path.name}", path), _at(path)))
        bundles = coordinator.bundles
        for each in rows.campaign.compiled.bundles if bundles is not None else ():
            assert bundles is not None
            with bundles.reading(each.sha256) as path:
                kept_file = _file_entry(f"{BUNDLES}/{each.sha256}{PACKED}", path)
            sources.append((kept_file, bundles.reading(each.sha256)))
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


def _at(path: Path) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(path)


def _rows_of(
    store: SqlTransaction,
    campaign: Campaign,
    snapshot: Callable[[], contextlib.AbstractContextManager[SqlTransaction]],
) -> CampaignRows:
    def attempts(run_id: str) -> list[Attempt]:
        with snapshot() as read:
            return read.attempts(run_id)

    runs = store.runs(campaign.campaign_id)
    slices = [piece for run in runs for piece in store.slices(run.run_id)]
    return CampaignRows(campaign, tuple(runs), tuple(slices), attempts)


def _write_rows(database: Path, rows: CampaignRows) -> None:
    with contextlib.closing(SqliteStore(database)) as store, store.transaction() as transaction:
        transaction.add_campaign(rows.campaign, rows.runs, rows.slices)
        for run in rows.runs:
            for attempt in rows.attempts(run.run_id):
                # The secret of a lease that has ended proves nothing, and is nobody else's business.
                transaction.add_attempt(replace(attempt, write_secret=b""))


@contextlib.contextmanager
def read_rows(database: Path) -> Iterator[CampaignRows]:
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


def _file_entry(name: str, path: Path) -> KeptFile:
    with storage_errors(path):
        return KeptFile(name=name, bytes=path.stat().st_size, hash=fresh_hash_of(path))


def _member(kept_file: KeptFile, path: Path) -> Iterator[bytes]:
    """A file as it is in the tar; raises StorageError if it is not as the manifest says."""
    hashing, rest = hashlib.blake2b(digest_size=32), kept_file.bytes
    with storage_errors(path), path.open("rb") as file:
        yield _header(kept_file.name, kept_file.bytes)
        while rest and (data := file.read(min(rest, _CHUNK_BYTES))):
            hashing.update(data)
            rest -= len(data)
            yield data
        if rest or file.read(1) or hashing.hexdigest() != kept_file.hash:
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
