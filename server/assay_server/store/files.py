"""Files that are durable when the call returns: fsync of the file and of every folder that changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from assay_sampling.errors import StorageError
from assay_sampling.private_folders import make_private_folder, private_opener

TEMPORARY = ".tmp-"


@contextlib.contextmanager
def storage_errors(subject: str | Path) -> Iterator[None]:
    """Turn the operating system's refusals into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            str(subject),
            f"the disk refused ({error.strerror or error})",
            "free space on the disk of the state directory, or mend its permissions, and try again",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably, closed to other users."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    make_private_folder(folder)
    for made in reversed(missing):
        sync_folder(made.parent)


def write_pieces(path: Path, pieces: Iterable[tuple[int, bytes]]) -> None:
    """Write each piece at its offset of a file, which is made (mode 0600) where it is missing; one sync."""
    is_new = not path.exists()
    with open(path, "r+b" if not is_new else "w+b", opener=private_opener) as file:
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` as ``path``: readers and crashes see the old file or the new one, never a part."""
    temporary = path.with_name(f"{path.name}{TEMPORARY}{os.getpid()}")
    try:
        write_pieces(temporary, [(0, data)])
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def remove_empty_parents(folder: Path, top: Path) -> None:
    """Remove ``folder`` and its parents below ``top`` as far as they are empty."""
    while folder != top and folder.is_relative_to(top):
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = folder.parent
