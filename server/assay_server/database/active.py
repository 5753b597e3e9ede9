"""Which database holds the metadata of a state folder.

Without a note it is SQLite's file in the folder. With one it is the PostgreSQL database that the note names,
and both know the number of the state, so that a folder never serves with the campaigns of another one.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from assay_server.database.state_notes import read_note, remove_note, write_note
from assay_server.store.postgresql.place import SCHEME, DatabasePlace, place_in_file, place_of

SQLITE_FILE = "metadata.sqlite"
_NOTE = "database.json"


class DatabaseInForce(BaseModel):
    """The PostgreSQL database of a state folder.

    ``url`` has no password; ``file``: the private file that named it, which has the whole URL; ``state``: the
    number of the state, which the database has too.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = Field(default=1, le=1)
    url: str
    file: str = ""
    state: int = Field(ge=1)

    @property
    def place(self) -> DatabasePlace:
        """Where the database is. Raises the errors of a place."""
        return place_in_file(Path(self.file)) if self.file else place_of(self.url)


def noted_database(state: Path) -> DatabaseInForce | None:
    """The note of a state folder; None: SQLite. Raises StorageError if it cannot be read."""
    return read_note(state / _NOTE, DatabaseInForce)


def note_database(state: Path, place: DatabasePlace, file: Path | None, number: int) -> None:
    """Put a database in force, durably. Raises StorageError."""
    file_path = "" if file is None else str(file.absolute())
    write_note(state / _NOTE, DatabaseInForce(url=place.without_secret, file=file_path, state=number))


def forget_database(state: Path) -> None:
    """Put SQLite in force, durably. Raises StorageError."""
    remove_note(state / _NOTE)


def new_state_number() -> int:
    """A number that no other state has."""
    return 1 + secrets.randbelow((1 << 62) - 1)


__all__ = [
    "SCHEME", "SQLITE_FILE", "DatabaseInForce", "forget_database", "new_state_number", "note_database",
    "noted_database",
]  # fmt: skip
