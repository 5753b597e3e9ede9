"""When a state folder was last backed up, and last checked: two small files in it, for metrics and alerts.

The verbs are processes of their own, so what they did is told to the server through the folder. A backup does
not hold these files: a restored folder has never been backed up.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_core.files.durable import storage_errors, write_atomically
from assay_sampling.errors import StorageError

_log = logging.getLogger(__name__)


class Task(StrEnum):
    """What keeps a state folder right for weeks."""

    BACKUP = "backup"
    CHECK = "check"


class Done(BaseModel):
    """``ended_at_ms``: Unix milliseconds; ``faults``: files that a backup lacks, findings of a check."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int = 1
    ended_at_ms: int = Field(ge=0)
    faults: int = Field(ge=0)


def note_done(state: Path, task: Task, done: Done) -> None:
    """Note that a task has ended. What cannot be noted is logged: the task itself was done."""
    path = _path(state, task)
    try:
        with storage_errors(path):
            write_atomically(path, done.model_dump_json() + "\n")
    except StorageError as error:
        _log.warning("the metrics of the server will not show this %s: %s", task, error)


def last_done(state: Path, task: Task) -> Done | None:
    """The newest note; None if nothing was noted, or it cannot be read."""
    try:
        return Done.model_validate_json(_path(state, task).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        _log.warning("when the last %s was made cannot be read: %s", task, error)
        return None


def _path(state: Path, task: Task) -> Path:
    return state / f"last-{task}.json"
