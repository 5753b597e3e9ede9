"""The client's files: written atomically, with errors that name file and remedy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import make_private_folder
from assay_sampling.errors import CampaignError, ParameterError, StorageError

AnyPath = str | PathLike[str]

_BEGIN = "assay init writes one to start from"


def write_atomically(
    path: Path, data: bytes | str | Iterator[str] | Iterator[bytes], *, private: bool = False
) -> None:
    """Write ``data`` (text as UTF-8, whole or in pieces) to ``path``, making its folder.

    ``private``: for a state folder, closed to other users regardless of the umask. Readers see the old or the
    new file. Raises StorageError naming the file if the disk or its permissions refuse.
    """
    with storage_errors(path, "free space there, correct its permissions, or name another file"):
        if private:
            make_private_folder(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_atomically(path, data, private=private)


def link_to(link: Path, existing: Path) -> None:
    """Make ``link`` lead to ``existing``, in place of what was there; raises StorageError."""
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(existing)
    except OSError as error:
        raise StorageError(
            str(link),
            f"it cannot be created as a link to {existing} ({error.strerror or error})",
            "name a list in a folder that you may write to",
        ) from error


def require_folder_of(path: Path) -> None:
    """Raise ParameterError if the folder of a single output file does not exist.

    A missing folder for many results is created; the folder of one file is more likely misspelt.
    """
    if not path.parent.is_dir():
        raise ParameterError(
            str(path),
            f"there is no folder {path.parent}",
            f"make it: mkdir -p {shlex.quote(str(path.parent))}",
        )


def read_campaign(path: Path) -> str:
    """The text of a campaign file; raises CampaignError if it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise CampaignError(
            str(path), f"it cannot be read ({error.strerror})", f"name a campaign file; {_BEGIN}"
        ) from error
    except UnicodeDecodeError as error:
        raise CampaignError(
            str(path),
            f"it is not text in UTF-8 ({error.reason} at byte {error.start})",
            f"name a campaign file (YAML), saved as UTF-8; {_BEGIN}",
        ) from error
    if not text.strip():
        raise CampaignError(str(path), "it is empty", f"write a campaign into it; {_BEGIN}")
    if "workloads" not in text:
        _refuse_another_kind(path)
    return text


def _refuse_another_kind(path: Path) -> None:
    """Raise CampaignError for a file that other verbs read."""
    from assay_sampling.readers.opening import what_is_this  # noqa: PLC0415 - only for the refusal

    kind = what_is_this(path)
    if kind is not None:
        raise CampaignError(str(path), kind.explained, f"name a campaign file; {_BEGIN}")
