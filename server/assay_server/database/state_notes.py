"""Notes in a state folder: small documents that say where a part of the state is, if not in the folder."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from assay_core.files.durable import storage_errors, sync_directory, write_atomically
from assay_sampling.errors import StorageError

Note = TypeVar("Note", bound=BaseModel)


def read_note(path: Path, kind: type[Note]) -> Note | None:
    """The note in a file; None if there is no such file. Raises StorageError if it cannot be read."""
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


def write_note(path: Path, note: BaseModel) -> None:
    """Put a note in force, durably. Raises StorageError."""
    with storage_errors(path):
        write_atomically(path, note.model_dump_json(indent=1) + "\n")


def remove_note(path: Path) -> None:
    """Remove a note, if it is there, durably. Raises StorageError."""
    with storage_errors(path):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
