"""The check of a bucket at a server's start: that it keeps its promises, and whose records it has.

Two gateways in the field ignore If-None-Match without a word (rclone serve s3, juicefs gateway), so that two
servers would replace each other's files. A bucket that does is refused.
"""

from __future__ import annotations

import json
import secrets

from assay_sampling.errors import StorageError
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.refusals import MissingObjectError

_FOLDER = "probes"
_OWNER = "state.json"


def probe_bucket(bucket: Bucket) -> None:
    """Check that the bucket makes objects only if they are absent. Raises StorageError."""
    name = f"{_FOLDER}/{secrets.token_hex(8)}"
    first, second = secrets.token_bytes(16), secrets.token_bytes(16)
    bucket.put_new(name, first)
    try:
        try:
            bucket.put_new(name, second)
        except StorageError:
            replaced = bucket.get(name) != first
        else:
            replaced = True
        if replaced or bucket.look_at(name) is None:
            raise StorageError(
                bucket.shown,
                "it ignores If-None-Match: a second object of a name replaces the first one in silence",
                "take a store that keeps conditions (Amazon S3, SeaweedFS, MinIO, Ceph), not this gateway",
            )
    finally:
        bucket.remove([name])


def bind_bucket(bucket: Bucket, state: int) -> None:
    """Make sure that the prefix has the records of this state; an empty one belongs to it from now on.

    ``state``: the number of the state in its database. Raises StorageError.
    """
    if not _is_owned(bucket):
        if next(iter(bucket.listed("records")), None) is not None:
            raise _foreign(bucket)
        bucket.put_new(_OWNER, _document(state).encode())
    if owner_of_bucket(bucket) != state:
        raise _foreign(bucket)


def require_marked(bucket: Bucket, state: int) -> None:
    """Make sure, without a write, that a prefix is some state's, where this state's database names its files.

    Ask before :func:`probe_bucket`: SeaweedFS makes the bucket that an object is written to, so a wrong name
    would be an empty place of records. Raises StorageError.
    """
    if not _is_owned(bucket):
        raise without_mark(bucket.shown, _OWNER, _document(state), "name the right bucket and prefix")


def without_mark(shown: str, mark: str, content: str, remedy: str) -> StorageError:
    """The refusal of a place without a mark, by a state whose database names files in its records."""
    return StorageError(
        shown,
        f"the records that the database names are not there: it has no {mark}, which marks a lab's records",
        f"{remedy} with --records; if they were moved or lost, put back all of their last copy, {mark} too; "
        f"without a copy, make {mark} there with the content {content}: the server then measures again what "
        "campaigns under way have lost",
    )


def owner_of_bucket(bucket: Bucket) -> int | None:
    """The number of the state whose records a prefix has; None: of none that can be read."""
    try:
        return int(json.loads(bucket.get(_OWNER))["state"])
    except (MissingObjectError, ValueError, KeyError, TypeError):
        return None


def _document(state: int) -> str:
    return json.dumps({"version": 1, "state": state})


def _is_owned(bucket: Bucket) -> bool:
    try:
        bucket.get(_OWNER)  # not looked at: only an answer with a body says that there is no such bucket
    except MissingObjectError:
        return False
    return True


def _foreign(bucket: Bucket) -> StorageError:
    return StorageError(
        bucket.shown,
        "it has the records of another state folder",
        "name the right bucket and prefix; to start anew, name a prefix that is not used",
    )
