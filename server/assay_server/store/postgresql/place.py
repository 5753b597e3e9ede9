"""Where a PostgreSQL database is: its URL, and where its password comes from.

A password is never part of what programs print, log or show in a list of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay_sampling.errors import MissingExtraError, ParameterError
from assay_server.places import private_lines

if TYPE_CHECKING:
    from sqlalchemy import URL

SCHEME = "postgresql"
_SECRETS = ("password", "sslpassword")
_REMEDY = "give postgresql://USER@HOST:PORT/NAME, or postgresql:///NAME?host=/run/postgresql for a socket"
_SECRET_REMEDY = (
    "write the whole URL into a file that only the server's user may read, and give --database-file; "
    "or leave it out of the URL, and use PGPASSFILE or PGPASSWORD"
)


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
        made = type(url).create(SCHEME, url.username, None, url.host, url.port, url.database, query)
        return made.render_as_string()

    def __repr__(self) -> str:
        return f"DatabasePlace({self.shown})"

    __str__ = __repr__


def place_of(text: str, option: str = "--database", *, with_secret: bool = False) -> DatabasePlace:
    """The place that a URL names. ``with_secret``: it may have a password.

    Raises ParameterError if it is none, MissingExtraError without the packages of this database.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - verbs that need no database do not load it

    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        # Its text is not shown: it may have a password in an unexpected place.
        raise ParameterError(option, "it is not the URL of a database", _REMEDY) from None
    if url.drivername != SCHEME:
        kind = url.drivername.partition("+")[0]
        raise ParameterError(option, f"{kind!r} is not a kind of database that Assay knows", _REMEDY)
    if not url.database:
        raise ParameterError(option, "it names no database", _REMEDY)
    secret = url.password is not None or any(name in url.query for name in _SECRETS)
    if secret and not with_secret:
        raise ParameterError(
            option, "a password here is seen by everybody who lists processes", _SECRET_REMEDY
        )
    return DatabasePlace(url.set(drivername=f"{SCHEME}+psycopg"))


def place_in_file(path: Path) -> DatabasePlace:
    """The place that the first line of a private file names, which may have a password.

    Raises ParameterError if others may read the file, StorageError if it cannot be read.
    """
    lines = private_lines(path, "--database-file")
    if not lines or not lines[0].strip():
        raise ParameterError("--database-file", f"{path} is empty", _REMEDY)
    return place_of(lines[0].strip(), "--database-file", with_secret=True)


def require_driver() -> None:
    """Raise MissingExtraError without the packages of this database."""
    try:
        import psycopg  # noqa: F401, PLC0415 - loads libpq
    except ImportError as error:
        raise MissingExtraError("assay-server", error.name or "psycopg", "postgresql") from None
