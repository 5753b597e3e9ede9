"""Notes in a state folder: which database holds its metadata, and where its records are.

Without a note they are in the folder: the metadata in SQLite's file. With one they are where it says: in a
PostgreSQL database, in a bucket, or in a folder that servers share. The place knows the number of the state,
too, so that a folder never serves with the campaigns or the records of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_core.files.durable import storage_errors, sync_directory, write_atomically
from assay_sampling.errors import StorageError
from assay_server.places import SCHEME, DatabasePlace, database_place, database_place_in_file

SQLITE_FILE = "metadata.sqlite"
RECORDS_NOTE = "records.json"


class _Note(BaseModel):
    """What every note has. ``state``: the number of the state, which the place has too."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = Field(default=1, le=1)
    url: str
    state: int = Field(ge=1)


class DatabaseInForce(_Note):
    """The PostgreSQL database of a state folder.

    ``url`` has no password; ``file``: the private file that named it, which has the whole URL.
    """

    file: str = ""

    @property
    def place(self) -> DatabasePlace:
        """Where the database is. Raises the errors of a place."""
        return database_place_in_file(Path(self.file)) if self.file else database_place(self.url)


class RecordsInForce(_Note):
    """Where records are. Keys are never in it.

    ``url``: s3://BUCKET/PREFIX, or the path of a folder that servers share; ``endpoint``, ``region``: of
    the bucket's server; ``credentials``: the private file with its keys.
    """

    endpoint: str = ""
    region: str = ""
    credentials: str = ""

    @property
    def in_bucket(self) -> bool:
        return self.url.startswith(f"{SCHEME}://")


Note = TypeVar("Note", bound=_Note)
_FILES: Mapping[type[_Note], str] = {DatabaseInForce: "database.json", RecordsInForce: RECORDS_NOTE}


def noted_database(state: Path) -> DatabaseInForce | None:
    """The note of a state folder; None: SQLite. Raises StorageError if it cannot be read."""
    return _read_note(state, DatabaseInForce)


def noted_records(state: Path) -> RecordsInForce | None:
    """The note of a state folder; None: its records are in it. Raises StorageError if it cannot be read."""
    return _read_note(state, RecordsInForce)


def _read_note(state: Path, kind: type[Note]) -> Note | None:
    path = state / _FILES[kind]
    try:
        with storage_errors(path):
            return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        cause = "it is damaged, or a newer release wrote it"
        raise StorageError(str(path), cause, "use that release, or restore the file") from error
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def note_database(state: Path, place: DatabasePlace, file: Path | None, number: int) -> None:
    """Put a database in force, durably. Raises StorageError."""
    file_path = "" if file is None else str(file.absolute())
    write_note(state, DatabaseInForce(url=place.without_secret, file=file_path, state=number))


def write_note(state: Path, note: _Note) -> None:
    """Put a place in force, durably. Raises StorageError."""
    path = state / _FILES[type(note)]
    with storage_errors(path):
        write_atomically(path, note.model_dump_json(indent=1) + "\n")


def remove_note(state: Path, kind: type[_Note]) -> None:
    """Put the state folder itself in force, durably. Raises StorageError."""
    path = state / _FILES[kind]
    with storage_errors(path):
        path.unlink(missing_ok=True)
        sync_directory(state)
