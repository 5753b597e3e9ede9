"""Removes what programs left on the disk, whatever its depth, names and modes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class _Level:
    """A folder on the way down: its name in the one above, its identity, and the folders left in it."""

    name: str
    identity: tuple[int, int]
    folders: list[str]


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, a file or a link; nothing is there afterwards.

    Two descriptors at a time and a list as long as the tree is deep: neither the stack, nor the length of a
    path, nor open files bound how deep it may be. Nothing is renamed and no link is followed, so no name in
    the tree matters. Raises OSError, with the name, for the first that cannot be removed.
    """
    try:
        above = os.open(path.parent, _FOLDER & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        if _is_folder(path.name, above):
            _remove_folder(path.name, above)
        else:
            os.unlink(path.name, dir_fd=above)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise
    except OSError as error:
        error.filename = error.filename and f"{path}/.../{error.filename}"
        raise
    finally:
        os.close(above)


def _remove_folder(name: str, above: int) -> None:
    """Remove the folder ``name`` of the open folder ``above``, depth first."""
    here = _entered(name, above)
    try:
        levels = [_level(name, here)]
        while True:
            level = levels[-1]
            if level.folders:
                inner = level.folders.pop()
                here = _moved(here, _entered(inner, here))
                levels.append(_level(inner, here))
                continue
            levels.pop()
            if not levels:
                break
            here = _moved(here, _folder_above(here, levels[-1]))
            os.rmdir(level.name, dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(name, dir_fd=above)


def _level(name: str, here: int) -> _Level:
    """Unlink everything in an open folder but the folders, which are listed."""
    folders = []
    with os.scandir(here) as entries:
        names = [entry.name for entry in entries]
    for each in names:
        if _is_folder(each, here):
            folders.append(each)
        else:
            os.unlink(each, dir_fd=here)
    return _Level(name, _identity(here), folders)


def _entered(name: str, above: int) -> int:
    """The folder, opened, with its owner's rights given back: a program may have taken them."""
    place = os.open(name, _ANY | os.O_DIRECTORY, dir_fd=above)
    try:
        state = os.fstat(place)
        if state.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)  # noqa: PTH101 - a descriptor, so no link matters
        return os.open(".", _FOLDER, dir_fd=place)
    finally:
        os.close(place)


def _folder_above(here: int, level: _Level) -> int:
    """The folder above, which must be the one that we came from."""
    above = os.open("..", _FOLDER, dir_fd=here)
    if _identity(above) != level.identity:
        os.close(above)
        raise OSError(f"{level.name!r} was moved while it was removed")
    return above


def _moved(before: int, now: int) -> int:
    os.close(before)
    return now


def _identity(folder: int) -> tuple[int, int]:
    state = os.fstat(folder)
    return state.st_dev, state.st_ino


def _is_folder(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
