"""Bringing a metadata database to the schema of this program, whatever version it has."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from assay_sampling.errors import StorageError


def upgrade(connection: sa.Connection, subject: str) -> None:
    """Migrate to the newest schema inside the connection's transaction: all of it or nothing.

    Raises StorageError where a newer program wrote the database, or it is not one of ours.
    """
    config = _config(connection)
    present = current_revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if present is not None and present not in known:
        raise StorageError(
            subject,
            f"it was written by a newer Assay (schema {present!r}, which this program does not know)",
            "use that release or a newer one, or give another --state directory",
        )
    tables = set(sa.inspect(connection).get_table_names()) - {"alembic_version"}
    if present is None and tables:
        raise StorageError(
            subject,
            f"it is a database of something else (tables {', '.join(sorted(tables))})",
            "give another --state directory",
        )
    command.upgrade(config, "head")


def current_revision(connection: sa.Connection) -> str | None:
    """The revision of the database, None where it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: sa.Connection) -> Config:
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
