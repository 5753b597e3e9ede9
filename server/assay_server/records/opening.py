"""Opening the records of a state folder, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from assay_core.files.durable import make_folder, storage_errors, write_atomically
from assay_core.records.campaign import AttemptState
from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.state_notes import RecordsInForce, note_records, noted_records
from assay_server.record_place import SCHEME, AskedRecords, RecordsPlace, bucket_and_prefix
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.probing import (
    bind_bucket,
    owner_of_bucket,
    probe_bucket,
    require_marked,
    without_mark,
)
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.record_store import RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore

CACHE = "records-cache"
_OWNER = "state-number"
_REGION = "us-east-1"
UNDER_WAY = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


def checked_place(state: Path, settings: AskedRecords) -> AskedRecords:
    """The place that settings ask for; the state folder itself is where records are without any setting.

    Raises ParameterError for a folder within the state folder.
    """
    in_bucket = settings.url.startswith(f"{SCHEME}:")
    if not settings.url or in_bucket or noted_records(state) is not None:
        return settings
    if Path(settings.url).resolve() == state.resolve():
        return replace(settings, url="")
    remedy = f"leave it out, then records are in {state}, or name a folder elsewhere"
    require_elsewhere(state, Path(settings.url), "--records", remedy)
    return settings


def require_elsewhere(state: Path, folder: Path, option: str, remedy: str) -> None:
    """Raise ParameterError for a folder within the state folder: other servers have nothing to do there."""
    if folder.resolve().is_relative_to(state.resolve()):
        cause = f"{folder} is within the state folder, which no other server opens"
        raise ParameterError(option, cause, remedy)


def names_records(metadata: MetadataStore) -> bool:
    """Whether the database names files in the place of records: published ones, or staged segments."""
    with metadata.snapshot() as read:
        return read.published_bytes() > 0 or any(each.segments > 0 for each in read.attempts_in(UNDER_WAY))


def open_records(
    state: Path,
    settings: AskedRecords,
    state_number: Callable[[], int],
    resources: ExitStack,
    *,
    has_files: Callable[[], bool] = lambda: False,
) -> RecordStore:
    """The records of a state folder, for its server; ``resources`` closes them.

    ``state_number`` of the database: a bucket or shared folder has the records of one state alone.
    ``has_files``: whether the database names files there; then only a place that is marked as the state's
    will do, because an empty one is a wrong name, or a disk that is not mounted. Raises StorageError, also if
    the bucket ignores conditions, and ParameterError.
    """
    noted = noted_records(state)
    if noted is None and not settings.url:
        if settings.endpoint:
            raise ParameterError("--records-endpoint", "it is the address of a bucket", "give --records, too")
        return LocalRecordStore(state)
    if noted is None and _has_records(state):
        raise StorageError(
            str(state),
            f"its records are in the folder, not in {settings.url}",
            "move them: assay-server move --records-to URL --state DIR; or leave --records out",
        )
    place = _noted(settings, noted, state_number())
    if place.in_bucket:
        in_bucket = place_of(state, place, settings)
        store: RecordStore = bucket_records(in_bucket, place.state, resources, has_files)
    else:
        if has_files():
            _require_marked_folder(Path(place.url), place.state)
        store = shared_folder(Path(place.url), place.state)
    if place != noted:
        note_records(state, place)
    return store


def are_of_state(state: Path, settings: AskedRecords, number: int) -> bool:
    """Whether a place of records that servers share belongs to a state already. Raises StorageError."""
    noted = noted_records(state)
    note = noted if noted is not None and not settings.url else note_of(settings, number)
    if note.in_bucket:
        return owner_of_bucket(opened_bucket(place_of(state, note, settings))) == number
    owner = Path(note.url) / _OWNER
    with storage_errors(owner):
        return owner.exists() and owner.read_text("ascii").strip() == str(number)


def look_at_records(state: Path, cache: Path | None = None) -> RecordStore:
    """The records of a state folder, for programs beside its server, which change nothing there.

    ``cache``: a folder of its own instead of the server's, for who wants to see the objects themselves.
    """
    noted = noted_records(state)
    if noted is None:
        return LocalRecordStore(state, make_folders=False)
    if not noted.in_bucket:
        return LocalRecordStore(Path(noted.url), make_folders=False, shared=True)
    place = place_of(state, noted, AskedRecords(cache=cache))
    return ObjectRecordStore(opened_bucket(place), place)


def folder_of_records(state: Path) -> Path:
    """The folder with the records of a state that are in no bucket."""
    noted = noted_records(state)
    return state if noted is None or noted.in_bucket else Path(noted.url)


def place_of(state: Path, note: RecordsInForce, settings: AskedRecords) -> RecordsPlace:
    """The bucket that a note names. Raises ParameterError."""
    bucket, prefix = bucket_and_prefix(note.url)
    place = RecordsPlace(bucket, prefix, settings.cache or state / CACHE, note.endpoint)
    if note.region:
        place = replace(place, region=note.region)
    credentials = settings.credentials or (Path(note.credentials) if note.credentials else None)
    return replace(place, credentials=credentials, cache_bytes=settings.cache_bytes)


def note_of(settings: AskedRecords, state_number: int) -> RecordsInForce:
    """The note of the place that settings ask for."""
    return RecordsInForce(
        url=settings.url,
        endpoint=settings.endpoint,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION,
        credentials="" if settings.credentials is None else str(settings.credentials.absolute()),
        state=state_number,
    )


def _noted(settings: AskedRecords, noted: RecordsInForce | None, state_number: int) -> RecordsInForce:
    if not settings.url:
        assert noted is not None
        return noted
    if noted is not None and noted.url != settings.url:
        raise StorageError(
            settings.url,
            f"the records are in {noted.url}",
            "leave --records out; or move them: assay-server move --records-to URL --state DIR",
        )
    return note_of(settings, state_number)


def bucket_records(
    place: RecordsPlace,
    state_number: int,
    resources: ExitStack,
    has_files: Callable[[], bool] = lambda: False,
) -> ObjectRecordStore:
    """The records in a bucket, which belongs to one state, for its server, as :func:`open_records` says."""
    bucket = opened_bucket(place)
    if has_files():
        require_marked(bucket, state_number)
    probe_bucket(bucket)
    bind_bucket(bucket, state_number)
    store = ObjectRecordStore(bucket, place)
    resources.callback(store.close)
    return store


def _require_marked_folder(folder: Path, state_number: int) -> None:
    """Make sure, without a write, that a folder is some state's: an empty mount point is not."""
    with storage_errors(folder):
        is_marked = (folder / _OWNER).exists()
    if not is_marked:
        remedy = "see that its disk is mounted, or name the right folder"
        raise without_mark(str(folder), _OWNER, str(state_number), remedy)


def shared_folder(folder: Path, state_number: int) -> LocalRecordStore:
    """The records in a folder that servers share, which belongs to one state as a bucket does."""
    owner = folder / _OWNER
    with storage_errors(owner):
        make_folder(folder)
        if not owner.exists() and not _has_records(folder):
            write_atomically(owner, f"{state_number}\n")
        owner_number = owner.read_text("ascii").strip() if owner.exists() else ""
    if owner_number != str(state_number):
        raise StorageError(
            str(folder), "it has the records of another state folder", "name the right folder, or a new one"
        )
    return LocalRecordStore(folder, shared=True)


def _has_records(state: Path) -> bool:
    with storage_errors(state):
        tops = (state / name for name in ("records", "staging", "reports"))
        return any(any(top.iterdir()) for top in tops if top.is_dir())
