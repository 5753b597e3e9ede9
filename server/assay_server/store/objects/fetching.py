"""Published files and reports from a bucket, through the cache of this machine: for servers and workers."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from assay_core.files.durable import storage_errors, storage_fails
from assay_server.content_hash import hash_of_file
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.cache import CacheFolder
from assay_server.store.objects.refusals import MissingObjectError

_NAMED_BY_CONTENT = re.compile(r"-([0-9a-f]{16})\.parquet")


class RecordFetcher:
    """Reads the records of a bucket. Thread-safe; several processes may share the folder."""

    def __init__(self, bucket: Bucket, folder: Path, most_bytes: int) -> None:
        self._bucket = bucket
        self._cache = CacheFolder(folder / "files", most_bytes)

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[Path]:
        """A published file, which stays until the block ends; nothing at the path: there is none.

        A copy that this machine's disk has changed, or does not give, is fetched again. An object that
        has changed is given as it is: its readers find out by the hash.
        """
        name = f"records/{file}"
        with self._cache.reading(name, lambda into: self._fetch(name, into), _is_whole) as path:
            yield path

    def bundle(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A bundle's object, which stays until the block ends; its readers find out if it is not whole."""
        return self._cache.reading(name, lambda into: self._fetch(name, into), lambda path: True)

    def forget_bundle(self, name: str) -> None:
        self._cache.forget(name)

    def report(self, name: str) -> Path:
        """Where a report is now: the newest, also of an earlier server. Read it at once."""
        bucket_object = self._bucket.look_at(name)
        if bucket_object is None:
            return self._cache.path(name)
        tag = hashlib.blake2b(
            f"{bucket_object.tag} {bucket_object.made_at}".encode(), digest_size=8
        ).hexdigest()
        folder, _, base = name.rpartition("/")
        tagged_name = f"{folder}/{tag}/{base}"
        with self._cache.reading(
            tagged_name, lambda into: self._fetch(name, into), lambda path: True
        ) as path:
            return path

    def keep(self, file: str, source: Path) -> None:
        """Move a file here that is in the bucket already, so that it need not be fetched. Raises OSError."""
        self._cache.put(f"records/{file}", source)

    def forget(self, file: str) -> None:
        self._cache.forget(f"records/{file}")

    def forget_run(self, run_id: str) -> None:
        self._cache.forget_all(f"records/{run_id}")

    def forget_report(self, campaign_id: str) -> None:
        self._cache.forget_all(f"reports/{campaign_id}")

    def _fetch(self, name: str, into: IO[bytes]) -> bool:
        try:
            self._bucket.download(name, into)
        except MissingObjectError:
            return False
        return True


def _is_whole(path: Path) -> bool:
    """Whether a copy is as its name says."""
    named = _NAMED_BY_CONTENT.search(path.name)
    if named is None:
        return True
    with storage_errors(path):
        try:
            return hash_of_file(path).startswith(named[1])
        except OSError as error:
            if storage_fails(error):
                return False
            raise
