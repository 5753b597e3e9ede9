"""Where the records of a state folder are: in the folder itself, or where its note says."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from assay_server.database.state_notes import read_note, remove_note, write_note
from assay_server.record_place import SCHEME

NOTE = "records.json"


class RecordsInForce(BaseModel):
    """Where records are. Keys are never in it.

    ``url``: s3://BUCKET/PREFIX, or the path of a folder that servers share; ``endpoint``, ``region``: of
    the bucket's server; ``credentials``: the private file with its keys; ``state``: the number of the state,
    which the place has too.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = Field(default=1, le=1)
    url: str
    endpoint: str = ""
    region: str = ""
    credentials: str = ""
    state: int = Field(ge=1)

    @property
    def in_bucket(self) -> bool:
        return self.url.startswith(f"{SCHEME}://")


def noted_records(state: Path) -> RecordsInForce | None:
    """The note of a state folder; None: its records are in it. Raises StorageError if it cannot be read."""
    return read_note(state / NOTE, RecordsInForce)


def note_records(state: Path, note: RecordsInForce) -> None:
    """Put a place in force, durably. Raises StorageError."""
    write_note(state / NOTE, note)


def forget_records(state: Path) -> None:
    """Put the state folder itself in force, durably. Raises StorageError."""
    remove_note(state / NOTE)
