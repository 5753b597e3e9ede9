"""Moving the records of a stopped server from its folder to a bucket or a shared folder, and back.

Everything is copied and compared first, and the metadata name files by their content. One durable step at the
end puts the new place in force; whatever interrupts the move before that leaves the old one in force, and the
move can be done again. What was copied stays where it was, for a person to remove.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files.durable import make_folder, storage_errors, sync_directory, sync_file
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.bundles import bundle_fault
from assay_server.content_hash import fresh_hash_of
from assay_server.database.copying import Progress
from assay_server.database.opening import AskedDatabase, number_of_state, open_leading
from assay_server.database.state_notes import RecordsInForce, noted_records, remove_note, write_note
from assay_server.places import RecordsPlace
from assay_server.records.opening import (
    UNDER_WAY,
    look_at_records,
    note_of,
    records_at,
    require_elsewhere,
)
from assay_server.state_lock import locked_state
from assay_server.store.model import KeptBundle, Slice
from assay_server.store.record_store import BUNDLES, REPORT_FORMS, RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction

_CHECK = "look at the state with: assay-server check --state DIR; nothing was moved"
_LOST = (
    "nothing was moved; 'assay-server check' names all such files: of campaigns under way the server's next "
    "start measures them again; of one that has ended take them from a backup, or delete it "
    "(assay lab campaigns delete)"
)


@dataclass(frozen=True)
class MovedRecords:
    """What was moved: published files, segments, reports, bundles; ``kept``: where the old ones still are."""

    files: int
    segments: int
    reports: int
    to: str
    kept: str
    bundles: int = 0


def move_to_place(
    state: Path, settings: RecordsPlace, database: AskedDatabase, progress: Progress
) -> MovedRecords:
    """Move a state's records from its folder to a bucket, or to a folder that a standby reaches, too.

    Raises StorageError if a server has the folder, the place has other records, or a file is not as it was
    published; ParameterError if the records are elsewhere already.
    """
    if noted_records(state) is not None:
        raise ParameterError(
            "--records-to", "the records are elsewhere already", "move them to 'folder' first"
        )
    if not settings.in_bucket:
        require_elsewhere(state, Path(settings.url), "--records-to", "name a folder elsewhere")
    with _stopped(state, database) as metadata, contextlib.ExitStack() as resources:
        note = note_of(settings, number_of_state(metadata))
        target = records_at(state, note, settings, resources)
        _name_by_content(metadata, state)
        moved = _copy(metadata, LocalRecordStore(state), target, progress)
        write_note(state, note)
        aside = _aside(state)
    return replace(moved, to=settings.shown, kept=str(aside))


def move_to_folder(state: Path, database: AskedDatabase, progress: Progress) -> MovedRecords:
    """Move a state's records from a bucket or shared folder to its own. Raises StorageError."""
    noted = noted_records(state)
    if noted is None:
        raise ParameterError(
            "--records-to", "the records are in the state folder already", "name a place to move them to"
        )
    with _stopped(state, database) as metadata, tempfile.TemporaryDirectory(dir=state) as cache:
        source = look_at_records(state, Path(cache))
        moved = _copy(metadata, source, LocalRecordStore(state), progress)
        remove_note(state, RecordsInForce)
    return replace(moved, to=str(state), kept=noted.url)


def _copy(
    metadata: MetadataStore, source: RecordStore, target: RecordStore, progress: Progress
) -> MovedRecords:
    with metadata.snapshot() as read:
        files = 0
        for files, piece in enumerate(read.published_slices(), 1):
            _copy_file(piece, source, target)
            progress("files", files)
        segments = sum(_copy_segments(read, each.key, source, target) for each in read.attempts_in(UNDER_WAY))
        reports = sum(
            _copy_report(campaign.campaign_id, form, source, target)
            for campaign in read.campaigns()
            for form in REPORT_FORMS
        )
        bundles = sum(_copy_bundle(kept_bundle, source, target) for kept_bundle in read.bundles())
    return MovedRecords(files, segments, reports, "", "", bundles)


def _copy_file(piece: Slice, source: RecordStore, target: RecordStore) -> None:
    """Copy a published file and read it again; both must be as it was published."""
    if target.sizes([piece.file]) != {piece.file: piece.file_bytes}:
        with (
            source.reading(piece.file) as path,
            tempfile.TemporaryDirectory(dir=_folder_of(target)) as folder,
        ):
            copy = Path(folder) / "copy"
            with storage_errors(path):
                _require_there(path, piece)
                shutil.copyfile(path, copy)
                sync_file(copy)
                _require(copy, piece)
            target.withdraw(piece.file)
            target.take_in(copy, piece.file)
    with target.reading(piece.file) as path, storage_errors(path):
        _require(path, piece)
    target.let_go(piece.file)


def _require(path: Path, piece: Slice) -> None:
    if fresh_hash_of(path) != piece.content_hash:
        raise StorageError(f"records/{piece.file}", "it is not as it was published", _LOST)


def _require_there(path: Path, piece: Slice) -> None:
    if not path.exists():
        raise StorageError(f"records/{piece.file}", "it is missing", _LOST)


def _folder_of(target: RecordStore) -> Path:
    """A folder on the disk that takes a file in."""
    place = target.place
    folder = Path(target.location("")) if place is None else place.cache_folder
    make_folder(folder)
    return folder


def _copy_segments(read: SqlTransaction, key: AttemptKey, source: RecordStore, target: RecordStore) -> int:
    segments = read.segments(key)
    for segment in segments:
        parts = source.staged(segment)
        target.stage([(segment, parts.names, parts.launches)])
    return len(segments)


def _copy_report(campaign_id: str, form: str, source: RecordStore, target: RecordStore) -> int:
    path = source.report_path(campaign_id, form)
    if not path.exists():
        return 0
    with storage_errors(path):
        target.write_report(campaign_id, form, path.read_bytes())
    return 1


def _copy_bundle(kept_bundle: KeptBundle, source: RecordStore, target: RecordStore) -> int:
    """Copy a bundle's file unless it is missing or damaged, which a check says: people send it again."""
    with source.reading_bundle(kept_bundle.file) as path:
        if bundle_fault(path, kept_bundle.bundle):
            return 0
        if not target.has_bundle(kept_bundle.file):
            target.keep_bundle(kept_bundle.file, path)
    with target.reading_bundle(kept_bundle.file) as copy:
        if bundle_fault(copy, kept_bundle.bundle):
            raise StorageError(f"{BUNDLES}/{kept_bundle.file}", "its copy is not as it was sent", _CHECK)
    return 1


def _name_by_content(metadata: MetadataStore, state: Path) -> None:
    """Give files that have only their slice's number their token and content as a name.

    First as a second name in the folder, then in the metadata: so the folder is right at every moment.
    """
    records = state / "records"
    with metadata.snapshot() as read:
        names = [(piece, _own_name(read, piece)) for piece in read.published_slices()]
    named = [(piece, name) for piece, name in names if name != piece.file]
    if not named:
        return
    with storage_errors(records):
        for piece, name in named:
            if not (records / name).exists():
                _require_there(records / piece.file, piece)
                os.link(records / piece.file, records / name)
        for folder in {(records / name).parent for _, name in named}:
            sync_directory(folder)
    with metadata.transaction() as write:
        for piece, name in named:
            write.save_slice(replace(piece, file=name))
    with storage_errors(records):
        for piece, _ in named:
            (records / piece.file).unlink(missing_ok=True)


def _own_name(read: SqlTransaction, piece: Slice) -> str:
    own = f"{piece.run_id}/slice-{piece.index:05d}"
    if piece.file != f"{own}.parquet":
        return piece.file
    tokens = [
        each.key.token
        for each in read.attempts(piece.run_id)
        if each.key.slice_index == piece.index and each.state is AttemptState.PUBLISHED
    ]
    return f"{own}-{max(tokens, default=0):x}-{piece.content_hash[:16]}.parquet"


def _aside(state: Path) -> Path:
    """Move the folders of the records beside themselves, so that nobody takes them for those in force."""
    aside = state / f"records-moved-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    with storage_errors(state):
        while aside.exists():  # of a move in this very second
            aside = aside.with_name(f"{aside.name}-again")
        make_folder(aside)
        for name in ("records", "staging", "reports", BUNDLES):
            if (state / name).is_dir():
                (state / name).rename(aside / name)
        sync_directory(state)
    return aside


@contextlib.contextmanager
def _stopped(state: Path, settings: AskedDatabase) -> Iterator[MetadataStore]:
    """The metadata of a state whose server is stopped."""
    with locked_state(state), contextlib.closing(open_leading(state, settings)) as database:
        yield database
