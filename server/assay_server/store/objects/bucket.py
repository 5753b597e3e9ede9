"""Objects of a bucket by name: made once and never replaced, read, listed and removed, with typed errors.

``obstore`` sends every request again after answers of the kind 5xx and broken connections, with growing
pauses, for at most half a minute. It gives up at some answers that break off, so these are asked for again
here: all requests of ours can be repeated. What fails then is a StorageError, as of a disk that failed.

A bucket whose machine is gone ends no connection: it is silent. So small requests give up after 15 s of
silence and are sent again, on another connection; large ones have two minutes, for slow lines.
"""

from __future__ import annotations

import mmap
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

from assay_sampling.errors import StorageError
from assay_server.places import RecordsPlace, bucket_and_prefix, read_credentials, require_package

Answer = TypeVar("Answer")

PROBES = "probes"  # the folder of objects that check a bucket
# A whole object in one request can be made only if it is absent; larger ones are sent in parts.
MOST_AT_ONCE_BYTES = 256 << 20
_READ_BYTES = 8 << 20
_PART_BYTES = 16 << 20
_PARTS_TOGETHER = 4
_TOGETHER = 8
# Before each request that is sent again because its answer broke off.
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
_REMOVED_TOGETHER = _LISTED_TOGETHER = 1_000  # as S3 does
_FEW_REMOVED = 100  # which a bucket removes within the silence of a small request
_LONGEST_SECONDS = 30.0
# Of content that is sent by a small request: eight at a time need 0.5 MiB/s, as large ones do.
_SMALL_BYTES = 1 << 20
_MOST_SILENCE_SECONDS = 15.0
_RETRY: Any = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=_LONGEST_SECONDS),
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2},
}


# Of an error's text: the address that was asked for, which holds names, and the client's own settings.
_NOT_TELLING = re.compile(r"uri: Some\(\s*\S+\s*\)|\w*_timeout: \S+|<(Resource|Key|BucketName)>[^<]*")
_TELL_ADMIN = "nothing already stored is lost, and agents keep what they measure until it answers"
_NO_ANSWER = "the object store does not answer"
_SEE_THAT_IT_RUNS = f"see that it runs and that --records-endpoint names it; {_TELL_ADMIN}"
# After it obstore does not send a PUT that makes an object again, because the first may have made it.
_SILENT = re.compile("kind: Timeout")
_BROKEN_OFF = re.compile(
    r"kind: Interrupted|UnexpectedEof|Incomplete(Body|Message)|BrokenPipe|ConnectionReset"
)
# What a part of an error's text says, most telling first. Source: Amazon S3 API Reference, "Error responses".
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        r"RequestTimeTooSkewed|RequestExpired",
        "this machine's clock and the object store's differ too much",
        "set both clocks, with NTP",
    ),
    (r"NoSuchBucket", "there is no such bucket", "correct its name in --records, or make the bucket"),
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
        _NO_ANSWER,
        _SEE_THAT_IT_RUNS,
    ),
    (
        r"169\.254|credential",
        "there are no credentials for the object store",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give --records-credentials FILE",
    ),
)


class MissingObjectError(StorageError):
    """There is no object of that name."""


class _BrokenOffError(StorageError):
    """The connection ended within an answer, or none came: whether the request was done is not known."""


@dataclass(frozen=True)
class FoundObject:
    """An object in a listing; ``name`` below the prefix, ``made_at`` by the bucket's clock."""

    name: str
    size_bytes: int
    made_at: datetime
    tag: str = ""


class Bucket:
    """The objects below a prefix of a bucket. Thread-safe.

    ``store`` is one of obstore's; ``shown`` names it to people. ``patient``: the same place for requests
    that may take longer; None: ``store`` does.
    """

    def __init__(self, store: Any, shown: str, patient: Any = None) -> None:
        import obstore  # noqa: PLC0415 - only servers with a bucket load it

        self._client: Any = obstore
        self._store, self.shown = store, shown
        self._patient = store if patient is None else patient
        self._threads = ThreadPoolExecutor(_TOGETHER, "assay-objects")

    def put_new(self, name: str, data: bytes) -> None:
        """Make an object. One of this content that is there already will do; of another: StorageError."""
        try:
            self._put(self._store_for(len(data)), name, data, mode="create", use_multipart=False)
        except _AlreadyThere:
            if self.get(name) != data:
                raise self._other_content(name) from None

    def put_all_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """As :meth:`put_new` for each of them, several at a time; raises the first error once all ended."""
        requests = [self._threads.submit(self.put_new, *each) for each in objects]
        wait(requests)
        for request in requests:
            request.result()

    def put_file(self, name: str, path: Path) -> None:
        """As :meth:`put_new`, with the content of a file, which is not read into memory.

        A large one is sent in parts, which S3 cannot refuse for being there already: its name, with its
        token and content, belongs to one attempt, so that only the very bytes could be replaced.
        """
        size = path.stat().st_size
        if size <= _READ_BYTES:
            self.put_new(name, path.read_bytes())
            return
        if size > MOST_AT_ONCE_BYTES:
            if not self._is_file(name, path):
                self._put(self._patient, name, path, chunk_size=_PART_BYTES, max_concurrency=_PARTS_TOGETHER)
            return
        with path.open("rb") as file:
            # obstore reads it where it is; a thread of its own may let it go only after the answer.
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._put(self._patient, name, content, mode="create", use_multipart=False)
        except _AlreadyThere:
            if not self._is_file(name, path):
                raise self._other_content(name) from None

    def replace(self, name: str, data: bytes) -> None:
        """Make an object, or replace it whole."""
        self._put(self._store_for(len(data)), name, data, use_multipart=False)

    def get(self, name: str) -> bytes:
        """The content of an object. Raises MissingObjectError."""
        return self._tried(name, lambda: bytes(self._client.get(self._store, name).bytes()))

    def download(self, name: str, file: IO[bytes]) -> None:
        """Write the content of an object to a file. Raises MissingObjectError; OSError of the file."""
        # The rest of an answer that breaks off within the content is asked for by obstore.
        pieces = self._tried(
            name, lambda: iter(self._client.get(self._store, name).stream(min_chunk_size=1 << 20))
        )
        while True:
            with self._errors(name):
                piece = next(pieces, None)
            if piece is None:
                return
            file.write(piece)

    def look_at(self, name: str) -> FoundObject | None:
        """An object as it is listed; None: there is none."""
        try:
            return _found_object(self._tried(name, lambda: self._client.head(self._store, name)))
        except MissingObjectError:
            return None

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """The objects whose names begin with a folder's name."""
        last: str | None = None

        def next_page() -> Any:
            # A listing of its own, behind the last name, so one that breaks off is asked for again.
            pages = self._client.list(self._store, prefix, offset=last, chunk_size=_LISTED_TOGETHER)
            return next(iter(pages), [])

        while True:
            page = self._tried(prefix, next_page)
            yield from map(_found_object, page)
            if len(page) < _LISTED_TOGETHER:
                return
            if last is not None and page[-1]["path"] <= last:
                cause = "it lists the same names again instead of those behind them (start-after)"
                raise StorageError(self.shown, cause, "keep the records in another object store")
            last = page[-1]["path"]

    def copy(self, name: str, to: str, size_bytes: int) -> None:
        """Copy an object of this size within the bucket."""
        store = self._store_for(size_bytes)
        self._tried(name, lambda: self._client.copy(store, name, to))

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there do not matter."""
        for start in range(0, len(names), _REMOVED_TOGETHER):
            some = list(names[start : start + _REMOVED_TOGETHER])
            store = self._store if len(some) <= _FEW_REMOVED else self._patient
            try:
                self._tried(some[0], lambda: self._client.delete(store, some))  # noqa: B023 - called at once
            except MissingObjectError:  # S3 does not say so, stores in this process do
                if len(some) > 1:
                    for each in some:
                        self.remove([each])

    def _put(self, store: Any, name: str, content: Any, **options: Any) -> None:
        self._tried(name, lambda: self._client.put(store, name, content, **options))

    def _store_for(self, size_bytes: int) -> Any:
        return self._store if size_bytes <= _SMALL_BYTES else self._patient

    def _is_file(self, name: str, path: Path) -> bool:
        bucket_object = self.look_at(name)
        if bucket_object is None or bucket_object.size_bytes != path.stat().st_size:
            return False
        with path.open("rb") as file, self._errors(name):
            return all(
                file.read(len(piece)) == bytes(piece)
                for piece in self._client.get(self._store, name).stream()
            )

    def _other_content(self, name: str) -> StorageError:
        return StorageError(
            f"{self.shown}: {name}",
            "an object of another content has that name",
            "see what else writes to this bucket and prefix: only the servers of one lab may",
        )

    def _tried(self, name: str, request: Callable[[], Answer]) -> Answer:
        """Send a request, again for a while if its answer broke off. Raises StorageError, _AlreadyThere."""
        until = time.monotonic() + _LONGEST_SECONDS
        for pause_seconds in _PAUSES_SECONDS:
            try:
                with self._errors(name):
                    return request()
            except _BrokenOffError:
                if time.monotonic() > until:
                    raise
                time.sleep(pause_seconds)
        with self._errors(name):
            return request()

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        exceptions = self._client.exceptions
        try:
            yield
        except exceptions.AlreadyExistsError as error:
            raise _AlreadyThere from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise _bucket_error(self.shown, name, error) from error


class _AlreadyThere(Exception):
    pass


def _found_object(meta: Any) -> FoundObject:
    return FoundObject(meta["path"], int(meta["size"]), meta["last_modified"], meta.get("e_tag") or "")


def opened_bucket(place: RecordsPlace) -> Bucket:
    """The bucket of a place; nothing is asked of it yet. Raises ParameterError, MissingExtraError."""
    require_package("obstore", "object-store")
    from obstore.store import S3Store  # noqa: PLC0415

    bucket, prefix = bucket_and_prefix(place.url)
    keys: dict[str, Any] = {} if place.credentials is None else read_credentials(place.credentials)
    options: Any = {"connect_timeout": "5s", "timeout": "120s"}
    address: dict[str, Any] = {"region": place.region, "conditional_put": "etag"}
    if place.endpoint:
        options["allow_http"] = place.endpoint.startswith("http://")
        address |= {"endpoint": place.endpoint, "virtual_hosted_style_request": False}
    # A request is silent until its answer begins, also while its content is sent.
    impatient: Any = {**options, "read_timeout": timedelta(seconds=_MOST_SILENCE_SECONDS)}
    small, patient = (
        S3Store(bucket, prefix=prefix or None, client_options=each, retry_config=_RETRY, **keys, **address)
        for each in (impatient, options)
    )
    return Bucket(small, place.shown, patient)


def probe_bucket(bucket: Bucket) -> None:
    """Check that the bucket makes objects only if they are absent. Raises StorageError.

    Two gateways in the field ignore If-None-Match without a word (rclone serve s3, juicefs gateway), so that
    two servers would replace each other's files. A bucket that does is refused.
    """
    name = f"{PROBES}/{secrets.token_hex(8)}"
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


def _bucket_error(shown: str, name: str, error: BaseException) -> StorageError:
    """The typed error behind one of obstore's, whose text may be long and name keys."""
    text = _NOT_TELLING.sub("", str(error))
    subject = f"{shown}: {name}" if name else shown
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
        return MissingObjectError(subject, "there is no such object", "see what assay-server check finds")
    if _BROKEN_OFF.search(text):
        return _BrokenOffError(
            subject, "its answer broke off", f"see the network and the object store's logs; {_TELL_ADMIN}"
        )
    if _SILENT.search(text):
        return _BrokenOffError(subject, _NO_ANSWER, _SEE_THAT_IT_RUNS)
    for pattern, cause, remedy in _MEANINGS:
        if re.search(pattern, text):
            return StorageError(subject, cause, remedy)
    code_match = re.search(r"<Code>(\w+)</Code>", text)
    why = code_match[1] if code_match else type(error).__name__
    return StorageError(subject, f"the object store refused ({why})", f"see its logs; {_TELL_ADMIN}")
