"""Brings a metadata database to the schema of this program."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay_sampling.errors import StorageError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"  # the newest revision in migrations/versions; a database at HEAD needs no alembic

_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text))


def upgrade(connection: sa.Connection, subject: str, option: str = "--state") -> None:
    """Migrate to the newest schema inside the connection's transaction: completely or not at all.

    ``option``: where to name another database. Raises StorageError if another version
    wrote this one, or it is not one of ours.
    """
    present = current_revision(connection, subject, option)
    if present == HEAD:
        return
    from alembic import command  # noqa: PLC0415 - takes longer to load than all else here together
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = migration_config(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if present is not None and present not in known:
        raise StorageError(
            subject,
            f"another version of Assay wrote it (schema {present!r}, which this program does not know)",
            f"use that version, or give another {_place(option)}",
        )
    command.upgrade(config, "head")


def current_revision(connection: sa.Connection, subject: str, option: str = "--state") -> str | None:
    """The revision of the database, None if it is empty; raises StorageError if it is not ours."""
    tables = set(sa.inspect(connection).get_table_names())
    if "alembic_version" in tables and (len(tables) == 1 or "campaigns" in tables):
        return connection.scalar(sa.select(_VERSION.c.version_num))
    if tables:
        raise StorageError(
            subject,
            f"it is another program's database (tables {', '.join(sorted(tables))})",
            f"give another {_place(option)}",
        )
    return None


def _place(option: str) -> str:
    return "--state directory" if option == "--state" else option


def migration_config(connection: sa.Connection) -> Config:
    """Alembic's settings for our migrations on our connection."""
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    # Found by path: alembic loads them itself.
    folder = str(Path(__file__).parents[1] / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
