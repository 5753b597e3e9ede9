"""Places that settings name: of the metadata, of the records, of the analyses, and of the live page.

A password is never part of what programs print, log or show in a list of processes. Credentials of a bucket
are never part of its place: they come from the environment (``AWS_ACCESS_KEY_ID`` and its like) or from a
private file, whose path alone is kept. Source: docs/security.md, "Workers of analyses", "The live page".
"""

from __future__ import annotations

import importlib
import ipaddress
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay_core.files.durable import storage_errors
from assay_core.server_address import ServerAddress, parse_address
from assay_sampling.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from sqlalchemy import URL

DATABASE_SCHEME = "postgresql"
_SECRETS = ("password", "sslpassword")
_DATABASE_REMEDY = (
    "give postgresql://USER@HOST:PORT/NAME, or postgresql:///NAME?host=/run/postgresql for a socket"
)
_SECRET_REMEDY = (
    "write the whole URL into a file that only the server's user may read, and give --database-file; "
    "or leave it out of the URL, and use PGPASSFILE or PGPASSWORD"
)
SCHEME = "s3"
DEFAULT_CACHE_BYTES = 20 << 30
_BUCKET_REMEDY = "give s3://BUCKET or s3://BUCKET/PREFIX, and the server's address with --records-endpoint"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_DASK, _DASK_TLS = "dask://", "dask+tls://"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}\.?)*")
_LONGEST_NAME = 253


@dataclass(frozen=True)
class DatabasePlace:
    """A database; its text and representation have no password."""

    url: URL

    @property
    def shown(self) -> str:
        """The URL without its password and its parameters, which may hold another."""
        return self._rendered({})

    @property
    def without_secret(self) -> str:
        """The URL that reaches the database if the password comes from elsewhere."""
        query = {name: value for name, value in self.url.query.items() if name not in _SECRETS}
        return self._rendered(query)

    def _rendered(self, query: Mapping[str, str | tuple[str, ...]]) -> str:
        url = self.url  # set() cannot take a password away
        made = type(url).create(DATABASE_SCHEME, url.username, None, url.host, url.port, url.database, query)
        return made.render_as_string()

    def __repr__(self) -> str:
        return f"DatabasePlace({self.shown})"

    __str__ = __repr__


def database_place(text: str, option: str = "--database", *, with_secret: bool = False) -> DatabasePlace:
    """The place that a URL names. ``with_secret``: it may have a password.

    Raises ParameterError if it is none, MissingExtraError without the packages of this database.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - verbs that need no database do not load it

    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        # Its text is not shown: it may have a password in an unexpected place.
        raise ParameterError(option, "it is not the URL of a database", _DATABASE_REMEDY) from None
    if url.drivername != DATABASE_SCHEME:
        kind = url.drivername.partition("+")[0]
        raise ParameterError(option, f"{kind!r} is not a kind of database that Assay knows", _DATABASE_REMEDY)
    if not url.database:
        raise ParameterError(option, "it names no database", _DATABASE_REMEDY)
    secret = url.password is not None or any(name in url.query for name in _SECRETS)
    if secret and not with_secret:
        raise ParameterError(
            option, "a password here is seen by everybody who lists processes", _SECRET_REMEDY
        )
    return DatabasePlace(url.set(drivername=f"{DATABASE_SCHEME}+psycopg"))


def database_place_in_file(path: Path) -> DatabasePlace:
    """The place that the first line of a private file names, which may have a password.

    Raises ParameterError if others may read the file, StorageError if it cannot be read.
    """
    lines = private_lines(path, "--database-file")
    if not lines or not lines[0].strip():
        raise ParameterError("--database-file", f"{path} is empty", _DATABASE_REMEDY)
    return database_place(lines[0].strip(), "--database-file", with_secret=True)


@dataclass(frozen=True)
class RecordsPlace:
    """A bucket and a prefix in it, or a folder that servers share. It can be sent to other processes.

    Args:
        url: ``s3://BUCKET/PREFIX``, or the whole path of a folder; "" in settings: where the records of the
            state folder are already.
        endpoint: URL of the bucket's server; "": Amazon's for the region.
        region: the region that requests are signed for.
        credentials: a private file with keys; None: they come from the environment.
        cache: the folder of copies of a bucket's files; None in settings: in the state folder.
        cache_bytes: how much it holds at most.
    """

    url: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    credentials: Path | None = None
    cache: Path | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES

    @property
    def in_bucket(self) -> bool:
        return self.url.startswith(f"{SCHEME}:")

    @property
    def shown(self) -> str:
        """For people: the URL, and where it is."""
        return f"{self.url} at {self.endpoint}" if self.endpoint else self.url

    @property
    def cache_folder(self) -> Path:
        """The folder of copies of a bucket that is opened."""
        assert self.cache is not None
        return self.cache


def records_place(
    url: str,
    endpoint: str = "",
    credentials: Path | None = None,
    cache: Path | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> RecordsPlace:
    """What the settings ``--records`` and its like ask for. Raises ParameterError."""
    if url.startswith(f"{SCHEME}:"):
        bucket_and_prefix(url)
    elif url and not Path(url).is_absolute():
        raise ParameterError(
            "--records", f"{url[:100]!r} is neither", "give s3://BUCKET/PREFIX, or the whole path of a folder"
        )
    parts = urlsplit(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        cause = f"{endpoint[:100]!r} is not the address of a server"
        raise ParameterError("--records-endpoint", cause, "give https://HOST:PORT")
    return RecordsPlace(
        url.rstrip("/"),
        endpoint.rstrip("/"),
        credentials=credentials,
        cache=cache,
        cache_bytes=cache_bytes,
    )


def bucket_and_prefix(url: str, option: str = "--records") -> tuple[str, str]:
    """The parts of ``s3://BUCKET/PREFIX``; the prefix has no slash at its ends. Raises ParameterError."""
    parts = urlsplit(url)
    if parts.scheme != SCHEME or parts.query or parts.fragment or "@" in parts.netloc:
        raise ParameterError(option, f"{url[:100]!r} does not name a bucket", _BUCKET_REMEDY)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        cause = f"{parts.netloc[:100]!r} cannot be a bucket: 3 to 63 small letters, digits, dots and hyphens"
        raise ParameterError(option, cause, _BUCKET_REMEDY)
    if (prefix and not _PREFIX.fullmatch(prefix)) or ".." in prefix:
        raise ParameterError(option, f"{prefix[:100]!r} cannot be a prefix of objects' names", _BUCKET_REMEDY)
    return parts.netloc, prefix


def private_lines(path: Path, option: str) -> list[str]:
    """The lines of a file with secrets. Raises ParameterError if others may read it, StorageError."""
    with storage_errors(path):
        mode = path.stat().st_mode
        lines = path.read_text("utf-8").splitlines()
    if stat.S_IMODE(mode) & 0o077:
        raise ParameterError(option, f"others may read {path}", f"run: chmod 600 {path}")
    return lines


def read_credentials(path: Path) -> dict[str, str]:
    """The keys in a private file, as obstore calls them: lines NAME = VALUE, as in ~/.aws/credentials.

    Raises ParameterError if others may read it or it has no keys, StorageError if it cannot be read.
    """
    credentials = {}
    for line in private_lines(path, "--records-credentials"):
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


def require_package(package: str, extra: str) -> None:
    """Raise MissingExtraError without the package of a database or of object stores."""
    try:
        importlib.import_module(package)  # only servers that need it load it
    except ImportError as error:
        raise MissingExtraError("assay-server", error.name or package, extra) from None


@dataclass(frozen=True)
class AnalysisPlace:
    """A Dask scheduler.

    Args:
        scheduler: its host and port.
        ca, certificate, key: PEM files for mutual TLS; None: it speaks plain TCP.
    """

    scheduler: ServerAddress
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def tls(self) -> bool:
        """Whether both sides prove who they are."""
        return self.ca is not None

    @property
    def address(self) -> str:
        """The address in Dask's words."""
        return f"{'tls' if self.tls else 'tcp'}://{self.scheduler.text}"

    def __str__(self) -> str:
        return f"{_DASK_TLS if self.tls else _DASK}{self.scheduler.text}"


def analysis_place(
    text: str, ca: Path | None, certificate: Path | None, key: Path | None
) -> AnalysisPlace | None:
    """The place that the settings name; None: processes of the server. Raises ParameterError."""
    subject = f"--analysis {text!r}"
    files = (ca, certificate, key)
    if not text:
        if any(files):
            raise ParameterError(
                "--analysis-ca", "there is no scheduler to use it for", "give --analysis dask+tls://HOST:PORT"
            )
        return None
    scheme = next((each for each in (_DASK, _DASK_TLS) if text.startswith(each)), None)
    if scheme is None:
        raise ParameterError(
            subject, "it does not name a Dask scheduler", "give dask://HOST:PORT, or dask+tls://HOST:PORT"
        )
    if scheme == _DASK_TLS and not all(files):
        raise ParameterError(
            subject,
            "TLS with Dask needs three files",
            "give --analysis-ca, --analysis-certificate and --analysis-key",
        )
    if scheme == _DASK and any(files):
        raise ParameterError(
            subject, "files for TLS are given, and this scheduler speaks none", f"give {_DASK_TLS}HOST:PORT"
        )
    address = parse_address(text.removeprefix(scheme), subject)
    if address.socket is not None:
        raise ParameterError(subject, "Dask opens no Unix socket", "give dask://HOST:PORT")
    return AnalysisPlace(address, ca, certificate, key)


@dataclass(frozen=True)
class WebPlace:
    """Where the live page is served.

    Args:
        address: the address that it listens on.
        names: hosts under which browsers reach it, the one of links first; other Host headers are refused.
        tls: whether it speaks TLS: always off loopback.
        certificate, key: PEM files for TLS; None: the lab's authority certifies ``names``.
    """

    address: ServerAddress
    names: tuple[str, ...]
    tls: bool
    certificate: Path | None = None
    key: Path | None = None


def web_place(
    address: str, names: Sequence[str], certificate: Path | None, key: Path | None
) -> WebPlace | None:
    """The place that the settings name; None: the page is off. Touches no disk.

    Raises ParameterError for what is not an address over TCP, one of two files, and names that cannot be.
    """
    if not address:
        return None
    subject = f"web address {address!r}"
    web_address = parse_address(address, subject, any_port=True)
    if web_address.socket is not None:
        raise ParameterError(
            subject, "browsers open no Unix socket", "give HOST:PORT, such as localhost:7180"
        )
    if (certificate is None) != (key is None):
        raise ParameterError(
            subject, "only one of the two files for TLS is given", "give --web-certificate and --web-key"
        )
    for name in names:
        if _ip_address(name) is None and (len(name) > _LONGEST_NAME or not _HOST_NAME.fullmatch(name)):
            cause = f"{name[:80]!r} is not the name of a host"
            raise ParameterError("--web-name", cause, "give a name without scheme and port")
    hosts = list(names)
    listens_on = _ip_address(web_address.host)
    if listens_on is None or not listens_on.is_unspecified:
        hosts.append(web_address.host)
    if web_address.on_this_machine:
        hosts += _LOOPBACK_NAMES
    if not hosts:
        raise ParameterError(
            subject,
            "it does not say under which name browsers reach it, and others must be refused",
            "say it: --web-name HOST",
        )
    tls = certificate is not None or not web_address.on_this_machine
    return WebPlace(web_address, tuple(dict.fromkeys(host.lower() for host in hosts)), tls, certificate, key)


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
