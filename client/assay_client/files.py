"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_sampling.private_folders import make_private_folder, private_opener

AnyPath = str | PathLike[str]

_BEGIN = "assay init writes one to start from"


def write_atomically(path: Path, data: bytes | str | Iterator[str], *, private: bool = False) -> None:
    """Write ``data`` (text as UTF-8, whole or in pieces) to ``path``, making its folder.

    ``private``: for a state folder, closed to other users whatever the umask. Readers see the old or the new
    file. Raises StorageError naming the file where the disk or its permissions refuse.
    """
    pieces = [data] if isinstance(data, bytes | str) else data
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        if private:
            make_private_folder(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb", opener=private_opener if private else None) as stream:
                for piece in pieces:
                    stream.write(
                        piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else piece
                    )
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise StorageError(
            str(path),
            f"it cannot be written ({error.strerror or error})",
            "free space there, mend its permissions, or name another file",
        ) from error


def require_folder_of(path: Path) -> None:
    """Raise ParameterError where the folder of a single file that is to be written is not there.

    A folder of results is made where it is missing; that of one file is more likely misspelt.
    """
    if not path.parent.is_dir():
        raise ParameterError(
            str(path),
            f"there is no folder {path.parent}",
            f"make it: mkdir -p {shlex.quote(str(path.parent))}",
        )


def read_campaign(path: Path) -> str:
    """The text of a campaign file; raises CampaignError where it cannot be read."""
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
    return text
