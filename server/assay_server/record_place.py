"""Where records are kept in an object store: a bucket and a prefix, and how they are reached.

Credentials are never part of it: they come from the environment (``AWS_ACCESS_KEY_ID`` and its like) or from
a private file, whose path alone is kept.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from assay_core.files.durable import storage_errors
from assay_sampling.errors import MissingExtraError, ParameterError

SCHEME = "s3"
DEFAULT_CACHE_BYTES = 20 << 30
_REMEDY = "give s3://BUCKET or s3://BUCKET/PREFIX, and the server's address with --records-endpoint"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


@dataclass(frozen=True)
class RecordsPlace:
    """A bucket and a prefix in it, and the folder of the cache. It can be sent to other processes.

    Args:
        bucket: its name.
        prefix: what all names begin with, without a slash at its ends; "": nothing.
        endpoint: URL of the server; "": Amazon's for the region.
        region: the region that requests are signed for.
        credentials: a private file with keys; None: they come from the environment.
        cache: the folder of the cache.
        cache_bytes: how much it holds at most.
    """

    bucket: str
    prefix: str
    cache: Path
    endpoint: str = ""
    region: str = "us-east-1"
    credentials: Path | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES

    @property
    def url(self) -> str:
        """``s3://BUCKET/PREFIX``."""
        return f"{SCHEME}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def shown(self) -> str:
        """For people: the URL, and where it is."""
        return f"{self.url} at {self.endpoint}" if self.endpoint else self.url


def bucket_and_prefix(url: str, option: str = "--records") -> tuple[str, str]:
    """The parts of ``s3://BUCKET/PREFIX``. Raises ParameterError."""
    parts = urlsplit(url)
    if parts.scheme != SCHEME or parts.query or parts.fragment or "@" in parts.netloc:
        raise ParameterError(option, f"{url[:100]!r} does not name a bucket", _REMEDY)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        cause = f"{parts.netloc[:100]!r} cannot be a bucket: 3 to 63 small letters, digits, dots and hyphens"
        raise ParameterError(option, cause, _REMEDY)
    if (prefix and not _PREFIX.fullmatch(prefix)) or ".." in prefix:
        raise ParameterError(option, f"{prefix[:100]!r} cannot be a prefix of objects' names", _REMEDY)
    return parts.netloc, prefix


def checked_endpoint(url: str) -> str:
    """The address of an S3 server. Raises ParameterError."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        raise ParameterError(
            "--records-endpoint", f"{url[:100]!r} is not the address of a server", "give https://HOST:PORT"
        )
    return url.rstrip("/")


def read_credentials(path: Path) -> dict[str, str]:
    """The keys in a private file, as obstore calls them: lines NAME = VALUE, as in ~/.aws/credentials.

    Raises ParameterError if others may read it or it has no keys, StorageError if it cannot be read.
    """
    with storage_errors(path):
        mode = path.stat().st_mode
        lines = path.read_text("utf-8").splitlines()
    if stat.S_IMODE(mode) & 0o077:
        raise ParameterError("--records-credentials", f"others may read {path}", f"run: chmod 600 {path}")
    credentials = {}
    for line in lines:
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and name.lower() in _KEYS:
            credentials[_KEYS[name.lower()]] = value
    if not {"access_key_id", "secret_access_key"} <= credentials.keys():
        raise ParameterError(
            "--records-credentials",
            f"{path} lacks the keys",
            "write two lines: aws_access_key_id = ..., and aws_secret_access_key = ...",
        )
    return credentials


def require_client() -> None:
    """Raise MissingExtraError without the package of object stores."""
    try:
        import obstore  # noqa: F401, PLC0415 - only servers with a bucket load it
    except ImportError as error:
        raise MissingExtraError("assay-server", error.name or "obstore", "object-store") from None


@dataclass(frozen=True)
class AskedRecords:
    """What settings ask for; ``url`` "": where the records of the state folder are already.

    ``cache``: the folder of files from a bucket; None: in the state folder.
    """

    url: str = ""
    endpoint: str = ""
    credentials: Path | None = None
    cache: Path | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES


def asked_records(
    url: str,
    endpoint: str = "",
    credentials: Path | None = None,
    cache: Path | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> AskedRecords:
    """What the settings ``--records`` and its like ask for. Raises ParameterError."""
    if url.startswith(f"{SCHEME}:"):
        bucket_and_prefix(url)
    elif url and not Path(url).is_absolute():
        raise ParameterError(
            "--records", f"{url[:100]!r} is neither", "give s3://BUCKET/PREFIX, or the whole path of a folder"
        )
    return AskedRecords(url.rstrip("/"), checked_endpoint(endpoint), credentials, cache, cache_bytes)
