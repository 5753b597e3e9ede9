"""Objects of a bucket by name: made once and never replaced, read, listed and removed, with typed errors.

``obstore`` sends every request again after answers of the kind 5xx and broken connections, with growing
pauses, for at most half a minute. What fails then is a StorageError, as of a disk that failed.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

from assay_sampling.errors import StorageError
from assay_server.record_place import RecordsPlace, read_credentials, require_client

# A whole object in one request can be made only if it is absent; larger ones are sent in parts.
MOST_AT_ONCE_BYTES = 256 << 20
_READ_BYTES = 8 << 20
_PART_BYTES = 16 << 20
_PARTS_TOGETHER = 4
_TOGETHER = 8
_REMOVED_TOGETHER = 1_000
_RETRY: Any = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2},
}


class MissingObjectError(StorageError):
    """There is no object of that name."""


@dataclass(frozen=True)
class FoundObject:
    """An object in a listing; ``name`` below the prefix, ``made_at`` by the bucket's clock."""

    name: str
    size_bytes: int
    made_at: datetime
    tag: str = ""


class Bucket:
    """The objects below a prefix of a bucket. Thread-safe.

    ``store`` is one of obstore's; ``shown`` names it to people.
    """

    def __init__(self, store: Any, shown: str) -> None:
        self._store, self.shown = store, shown
        self._threads = ThreadPoolExecutor(_TOGETHER, "assay-objects")

    def put_new(self, name: str, data: bytes) -> None:
        """Make an object. One of this content that is there already will do; of another: StorageError."""
        import obstore  # noqa: PLC0415

        try:
            with self._errors(name):
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except _AlreadyThere:
            if self.get(name) != data:
                raise self._other_content(name) from None

    def put_all_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """As :meth:`put_new` for each of them, several at a time; raises the first error once all ended."""
        self._together(lambda each: self.put_new(*each), objects)

    def put_file(self, name: str, path: Path) -> None:
        """As :meth:`put_new`, with the content of a file, which is not read into memory.

        A large one is sent in parts, which S3 cannot refuse for being there already: its name, with its
        token and content, belongs to one attempt, so that only the very bytes could be replaced.
        """
        import obstore  # noqa: PLC0415

        size = path.stat().st_size
        if size <= _READ_BYTES:
            self.put_new(name, path.read_bytes())
            return
        if size > MOST_AT_ONCE_BYTES:
            if not self._is_file(name, path):
                with self._errors(name):
                    obstore.put(
                        self._store, name, path, chunk_size=_PART_BYTES, max_concurrency=_PARTS_TOGETHER
                    )
            return
        with path.open("rb") as file:
            # obstore reads it where it is; a thread of its own may let it go only after the answer.
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            with self._errors(name):
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except _AlreadyThere:
            if not self._is_file(name, path):
                raise self._other_content(name) from None

    def put_files(self, files: Sequence[tuple[str, Path]]) -> None:
        """As :meth:`put_file` for each of them, several at a time; raises the first error once all ended."""
        self._together(lambda each: self.put_file(*each), files)

    def replace(self, name: str, data: bytes) -> None:
        """Make an object, or replace it whole."""
        import obstore  # noqa: PLC0415

        with self._errors(name):
            obstore.put(self._store, name, data, use_multipart=False)

    def get(self, name: str) -> bytes:
        """The content of an object. Raises MissingObjectError."""
        import obstore  # noqa: PLC0415

        with self._errors(name):
            return bytes(obstore.get(self._store, name).bytes())

    def download(self, name: str, file: IO[bytes]) -> None:
        """Write the content of an object to a file. Raises MissingObjectError; OSError of the file."""
        import obstore  # noqa: PLC0415

        with self._errors(name):
            pieces = iter(obstore.get(self._store, name).stream(min_chunk_size=1 << 20))
        while True:
            with self._errors(name):
                piece = next(pieces, None)
            if piece is None:
                return
            file.write(piece)

    def look_at(self, name: str) -> FoundObject | None:
        """An object as it is listed; None: there is none."""
        import obstore  # noqa: PLC0415

        try:
            with self._errors(name):
                return _found(obstore.head(self._store, name))
        except MissingObjectError:
            return None

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """The objects whose names begin with a folder's name."""
        import obstore  # noqa: PLC0415

        with self._errors(prefix):
            pages = iter(obstore.list(self._store, prefix))
        while True:
            with self._errors(prefix):
                page = next(pages, None)
            if page is None:
                return
            yield from map(_found, page)

    def copy(self, name: str, to: str) -> None:
        """Copy an object within the bucket."""
        import obstore  # noqa: PLC0415

        with self._errors(name):
            obstore.copy(self._store, name, to)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there do not matter."""
        import obstore  # noqa: PLC0415

        for start in range(0, len(names), _REMOVED_TOGETHER):
            some = list(names[start : start + _REMOVED_TOGETHER])
            try:
                with self._errors(some[0]):
                    obstore.delete(self._store, some)
            except MissingObjectError:  # S3 does not say so, stores in this process do
                if len(some) > 1:
                    for each in some:
                        self.remove([each])

    def _together(self, function: Any, items: Sequence[Any]) -> None:
        others = [self._threads.submit(function, each) for each in items[1:]]
        try:
            for each in items[:1]:
                function(each)
        finally:
            wait(others)
        for other in others:
            other.result()

    def _is_file(self, name: str, path: Path) -> bool:
        found = self.look_at(name)
        if found is None or found.size_bytes != path.stat().st_size:
            return False
        import obstore  # noqa: PLC0415

        with path.open("rb") as file, self._errors(name):
            return all(
                file.read(len(piece)) == bytes(piece) for piece in obstore.get(self._store, name).stream()
            )

    def _other_content(self, name: str) -> StorageError:
        return StorageError(
            f"{self.shown}: {name}",
            "an object of another content has that name",
            "see what else writes to this bucket and prefix: only the servers of one lab may",
        )

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        from obstore import exceptions  # noqa: PLC0415

        try:
            yield
        except exceptions.AlreadyExistsError as error:
            raise _AlreadyThere from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise bucket_error(self.shown, name, error) from error


class _AlreadyThere(Exception):
    pass


def _found(meta: Any) -> FoundObject:
    return FoundObject(meta["path"], int(meta["size"]), meta["last_modified"], meta.get("e_tag") or "")


# Of an error's text: the address that was asked for, which holds names, and the client's own settings.
_NOT_TELLING = re.compile(r"uri: Some\(\s*\S+\s*\)|\w*_timeout: \S+|<(Resource|Key|BucketName)>[^<]*")
_TELL_ADMIN = "nothing already stored is lost, and agents keep what they measure until it answers"
# What a part of an error's text says, most telling first. Source: Amazon S3 API Reference, "Error responses".
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        r"RequestTimeTooSkewed|RequestExpired",
        "this machine's clock and the object store's differ too much",
        "set both clocks, with NTP",
    ),
    (r"NoSuchBucket", "there is no such bucket", "make the bucket, or name another with --records"),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|Unauthenticated",
        "the object store does not accept these credentials",
        "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the file of --records-credentials",
    ),
    (
        r"AccessDenied|PermissionDenied|403 Forbidden|AllAccessDisabled",
        "the object store denies access",
        "let these credentials read, write, list and remove objects below the prefix",
    ),
    (
        r"[Cc]ertificate|UnknownIssuer|TlsError|tls handshake|InvalidContentType",
        "TLS with the object store failed: its certificate is not trusted, or it speaks no TLS",
        "check --records-endpoint, and name its authority's certificate with the variable SSL_CERT_FILE",
    ),
    (
        r"InsufficientStorage|XMinioStorageFull|507 |QuotaExceeded",
        "the object store is full",
        "free space in it",
    ),
    (
        r"SlowDown|ServiceUnavailable|503 Service|server error|50[0-9] ",
        "the object store cannot serve now (5xx)",
        f"see its logs; {_TELL_ADMIN}",
    ),
    (
        r"[Cc]onnection|connect error|error sending request|timed? ?out|dns error|[Tt]imeout",
        "the object store does not answer",
        f"see that it runs and that --records-endpoint names it; {_TELL_ADMIN}",
    ),
    (
        r"169\.254|credential",
        "there are no credentials for the object store",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give --records-credentials FILE",
    ),
)


def bucket_error(shown: str, name: str, error: BaseException) -> StorageError:
    """The typed error behind one of obstore's, whose text may be long and name keys."""
    text = _NOT_TELLING.sub("", str(error))
    subject = f"{shown}: {name}" if name else shown
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
        return MissingObjectError(subject, "there is no such object", "see what assay-server check finds")
    for pattern, cause, remedy in _MEANINGS:
        if re.search(pattern, text):
            return StorageError(subject, cause, remedy)
    said = re.search(r"<Code>(\w+)</Code>", text)
    why = said[1] if said else type(error).__name__
    return StorageError(subject, f"the object store refused ({why})", f"see its logs; {_TELL_ADMIN}")


def opened_bucket(place: RecordsPlace) -> Bucket:
    """The bucket of a place; nothing is asked of it yet. Raises ParameterError, MissingExtraError."""
    require_client()
    from obstore.store import S3Store  # noqa: PLC0415

    keys = {} if place.credentials is None else read_credentials(place.credentials)
    options: Any = {"connect_timeout": "5s", "timeout": "120s"}
    given: dict[str, Any] = {**keys, "region": place.region, "conditional_put": "etag"}
    if place.endpoint:
        given["endpoint"] = place.endpoint
        options["allow_http"] = place.endpoint.startswith("http://")
        given["virtual_hosted_style_request"] = False
    store = S3Store(
        place.bucket, prefix=place.prefix or None, client_options=options, retry_config=_RETRY, **given
    )
    return Bucket(store, place.shown)
