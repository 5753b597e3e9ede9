"""Opening the records of a state folder, wherever they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from assay_core.files.durable import make_folder, storage_errors, write_atomically
from assay_core.records.campaign import AttemptState
from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.state_notes import RecordsInForce, noted_records, write_note
from assay_server.places import RecordsPlace
from assay_server.store.objects.bucket import Bucket, MissingObjectError, opened_bucket, probe_bucket
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.record_store import RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore

CACHE = "records-cache"
# A place of records has the number of the one state that they belong to.
_BUCKET_OWNER, _FOLDER_OWNER = "state.json", "state-number"
UNDER_WAY = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


def checked_place(state: Path, settings: RecordsPlace) -> RecordsPlace:
    """The place that settings ask for; the state folder itself is where records are without any setting.

    Raises ParameterError for a folder within the state folder.
    """
    if not settings.url or settings.in_bucket or noted_records(state) is not None:
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
    settings: RecordsPlace,
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
    store = records_at(state, place, settings, resources, has_files)
    if place != noted:
        write_note(state, place)
    return store


def are_of_state(state: Path, settings: RecordsPlace, number: int) -> bool:
    """Whether a place of records that servers share belongs to a state already. Raises StorageError."""
    noted = noted_records(state)
    note = noted if noted is not None and not settings.url else note_of(settings, number)
    if note.in_bucket:
        return _owner_of_bucket(opened_bucket(_bucket_of(state, note, settings))) == number
    return _owner_of_folder(Path(note.url)) == str(number)


def look_at_records(state: Path, cache: Path | None = None) -> RecordStore:
    """The records of a state folder, for programs beside its server, which change nothing there.

    ``cache``: a folder of its own instead of the server's, for who wants to see the objects themselves.
    """
    noted = noted_records(state)
    if noted is None:
        return LocalRecordStore(state, make_folders=False)
    if not noted.in_bucket:
        return LocalRecordStore(Path(noted.url), make_folders=False, shared=True)
    place = _bucket_of(state, noted, RecordsPlace(cache=cache))
    return ObjectRecordStore(opened_bucket(place), place)


def folder_of_records(state: Path) -> Path:
    """The folder with the records of a state that are in no bucket."""
    noted = noted_records(state)
    return state if noted is None or noted.in_bucket else Path(noted.url)


def _bucket_of(state: Path, note: RecordsInForce, settings: RecordsPlace) -> RecordsPlace:
    """The bucket that a note names, with the rest of the settings."""
    return replace(
        settings,
        url=note.url,
        endpoint=note.endpoint,
        region=note.region or settings.region,
        credentials=settings.credentials or (Path(note.credentials) if note.credentials else None),
        cache=settings.cache or state / CACHE,
    )


def note_of(settings: RecordsPlace, state_number: int) -> RecordsInForce:
    """The note of the place that settings ask for."""
    return RecordsInForce(
        url=settings.url,
        endpoint=settings.endpoint,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or settings.region,
        credentials="" if settings.credentials is None else str(settings.credentials.absolute()),
        state=state_number,
    )


def _noted(settings: RecordsPlace, noted: RecordsInForce | None, state_number: int) -> RecordsInForce:
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


def records_at(
    state: Path,
    note: RecordsInForce,
    settings: RecordsPlace,
    resources: ExitStack,
    has_files: Callable[[], bool] = lambda: False,
) -> RecordStore:
    """The records in the place of a note, which belongs to one state, as :func:`open_records` says."""
    if not note.in_bucket:
        return _shared_folder(Path(note.url), note.state, has_files)
    place = _bucket_of(state, note, settings)
    bucket = opened_bucket(place)
    # Before the probe: SeaweedFS makes the bucket that an object is written to, so a wrong name would be an
    # empty place of records.
    if has_files() and not _is_marked(bucket):
        content = _mark_of_bucket(note.state)
        raise _without_mark(bucket.shown, _BUCKET_OWNER, content, "name the right bucket and prefix")
    probe_bucket(bucket)
    bind_bucket(bucket, note.state)
    store = ObjectRecordStore(bucket, place)
    resources.callback(store.close)
    return store


def bind_bucket(bucket: Bucket, state_number: int) -> None:
    """Make sure that the prefix has the records of this state; an empty one belongs to it from now on.

    Raises StorageError.
    """
    if not _is_marked(bucket) and next(iter(bucket.listed("records")), None) is None:
        bucket.put_new(_BUCKET_OWNER, _mark_of_bucket(state_number).encode())
    if _owner_of_bucket(bucket) != state_number:
        raise StorageError(
            bucket.shown,
            "it has the records of another state folder",
            "name the right bucket and prefix; to start anew, name a prefix that is not used",
        )


def _owner_of_bucket(bucket: Bucket) -> int | None:
    """The number of the state whose records a prefix has; None: of none that can be read."""
    try:
        return int(json.loads(bucket.get(_BUCKET_OWNER))["state"])
    except (MissingObjectError, ValueError, KeyError, TypeError):
        return None


def _is_marked(bucket: Bucket) -> bool:
    try:
        # Not looked at: only an answer with a body says that there is no such bucket.
        bucket.get(_BUCKET_OWNER)
    except MissingObjectError:
        return False
    return True


def _mark_of_bucket(state_number: int) -> str:
    return json.dumps({"version": 1, "state": state_number})


def _shared_folder(folder: Path, state_number: int, has_files: Callable[[], bool]) -> LocalRecordStore:
    if has_files() and _owner_of_folder(folder) is None:  # as an empty mount point
        remedy = "see that its disk is mounted, or name the right folder"
        raise _without_mark(str(folder), _FOLDER_OWNER, str(state_number), remedy)
    with storage_errors(folder):
        make_folder(folder)
        if _owner_of_folder(folder) is None and not _has_records(folder):
            write_atomically(folder / _FOLDER_OWNER, f"{state_number}\n")
    if _owner_of_folder(folder) != str(state_number):
        raise StorageError(
            str(folder), "it has the records of another state folder", "name the right folder, or a new one"
        )
    return LocalRecordStore(folder, shared=True)


def _owner_of_folder(folder: Path) -> str | None:
    """The number of the state whose records a folder has; None: it has no mark."""
    owner = folder / _FOLDER_OWNER
    with storage_errors(owner):
        return owner.read_text("ascii").strip() if owner.exists() else None


def _has_records(state: Path) -> bool:
    with storage_errors(state):
        tops = (state / name for name in ("records", "staging", "reports"))
        return any(any(top.iterdir()) for top in tops if top.is_dir())


def _without_mark(shown: str, mark: str, content: str, remedy: str) -> StorageError:
    """The refusal of a place without a mark, by a state whose database names files in its records."""
    return StorageError(
        shown,
        f"the records that the database names are not there: it has no {mark}, which marks a lab's records",
        f"{remedy} with --records; if they were moved or lost, put back all of their last copy, {mark} too; "
        f"without a copy, make {mark} there with the content {content}: the server then measures again what "
        "campaigns under way have lost",
    )
