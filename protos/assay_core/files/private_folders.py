"""Creating, checking and closing folders that only this user and root may change.

Source: sshd's StrictModes, which checks a folder's ancestors in the same way; path_resolution(7), sticky(7).
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from assay_sampling.errors import StorageError

_log = logging.getLogger(__name__)

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_LINKS = 40


def is_our_folder(folder: Path) -> bool:
    """Whether it is a folder (not a link) that belongs to this user and that nobody else can write into."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & _OTHERS_WRITE


def require_no_path_separator(folder: Path, subject: str) -> None:
    """Raise StorageError if a folder's path cannot be an entry of PATH, where tools in it are looked for."""
    if os.pathsep in str(folder.absolute()):
        raise StorageError(
            subject,
            f"its path has {os.pathsep!r}, which separates folders in PATH: tools in it would not be found",
            "name another folder with --state",
        )


def why_not_ours(folder: Path) -> str:
    """Why another user could replace a folder or write into it; "" if nobody could.

    Checks every folder and link on the path: each must belong to this user or root, and must not be writable
    by others unless it is sticky, as ``/tmp`` is; the folder itself must never be. Everything inside a folder
    of this user that nobody else may enter is safe; the target of a link in it is safe only if it is inside
    such a folder too. Raises OSError if part of the path cannot be read.
    """
    places = list(_on_the_way(Path(os.path.abspath(folder))))  # noqa: PTH100 - each link is checked by itself
    closed: set[Path] = set()
    for number, (place, state) in enumerate(places):
        if state.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to user {user_name(state.st_uid)}"
        if stat.S_ISLNK(state.st_mode):
            continue
        if not stat.S_ISDIR(state.st_mode):
            return f"{place} is not a folder"
        if state.st_uid == os.geteuid() and not state.st_mode & _OTHERS:
            closed.add(place)
        last = number == len(places) - 1
        open_to_others = state.st_mode & _OTHERS_WRITE and closed.isdisjoint(place.parents)
        if open_to_others and (last or not state.st_mode & stat.S_ISVTX):
            return f"other users may write into {place} (mode {state.st_mode & 0o7777:04o})"
    return ""


def why_not_of(folder: Path, owner: int) -> str:
    """Why others than ``owner``, the folder's group, this user and root could replace it; "" if none could.

    As :func:`why_not_ours`, but the folder must be one of ``owner``, its group may write into it, and no link
    may be on the path: whoever trusts another user's folder trusts this very one. Raises OSError.
    """
    *ancestors, (last, its) = _on_the_way(Path(os.path.abspath(folder)))  # noqa: PTH100
    for place, state in [*ancestors, (last, its)]:
        if not stat.S_ISDIR(state.st_mode):
            return f"{place} is {'a link' if stat.S_ISLNK(state.st_mode) else 'not a folder'}"
    for place, state in ancestors:
        if state.st_uid not in (0, os.geteuid(), owner):
            return f"{place} belongs to user {user_name(state.st_uid)}"
        if state.st_mode & _OTHERS_WRITE and not state.st_mode & stat.S_ISVTX:
            return f"other users may write into {place} (mode {state.st_mode & 0o7777:04o})"
    if its.st_uid != owner:
        return f"{last} belongs to user {user_name(its.st_uid)}, not {user_name(owner)}"
    if its.st_mode & stat.S_IWOTH:
        return f"every user may write into {last} (mode {its.st_mode & 0o7777:04o})"
    return ""


def _on_the_way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that the system visits to resolve the path, in that order."""
    current, ahead, links = Path("/"), deque(path.parts[1:]), 0
    yield current, current.lstat()
    while ahead:
        name = ahead.popleft()
        if name == "..":
            current = current.parent
            continue
        place = current / name
        state = place.lstat()
        yield place, state
        if not stat.S_ISLNK(state.st_mode):
            current = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(f"{path} leads through more than {_MOST_LINKS} links")
        target = place.readlink()
        if target.is_absolute():
            current = Path("/")
        ahead.extendleft(reversed([part for part in target.parts if part != "/"]))


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700, regardless of the umask; keep an existing one.

    Raises OSError.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private_folder(folder.parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(FOLDER_MODE)  # a umask can take bits of the owner away


def private_opener(path: str, flags: int) -> int:
    """For ``open(..., opener=...)``: a new file gets mode 0600, regardless of the umask."""
    descriptor = os.open(path, flags, FILE_MODE)
    with contextlib.suppress(OSError):
        if flags & os.O_CREAT and stat.S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    return descriptor


def take_state_folder(folder: Path) -> None:
    """Make a state folder with mode 0700, or close an existing one to others and log that.

    Files and folders in it that are open to others are closed too: folders 0700, files 0600
    (executables 0700). Raises StorageError if it belongs to another user, who could change its contents;
    OSError if the disk refuses.
    """
    make_private_folder(folder)
    state, user = folder.stat(), os.geteuid()
    strangers = {state.st_uid} - {user} | {folder.lstat().st_uid} - {0, user}  # of it, of a link to it
    if strangers:
        raise StorageError(
            str(folder),
            f"it belongs to user {user_name(strangers.pop())}, and this program runs as {user_name(user)}: "
            "that user could change what is kept there",
            "run the program as that user, or name another folder with --state",
        )
    mode = stat.S_IMODE(state.st_mode)
    if mode & _OTHERS:
        folder.chmod(FOLDER_MODE)
        _log.warning("state folder %s was open to other users (mode %04o): it is 0700 now", folder, mode)
    closed = _close_what_is_in(folder, everything=bool(mode & _OTHERS))
    if closed:
        _log.warning("closed %d files and folders in %s that were open to other users", closed, folder)


def _close_what_is_in(folder: Path, *, everything: bool) -> int:
    """Close a folder's contents to other users; descend only into folders that were open."""
    closed = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            state = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(state.st_mode)
            if stat.S_ISLNK(state.st_mode) or state.st_uid != os.geteuid():
                continue
            mode = stat.S_IMODE(state.st_mode)
            if mode & _OTHERS:
                os.chmod(entry.path, mode & ~_OTHERS)  # noqa: PTH101 - not a link; only we get in here
                closed += 1
            if is_folder and (everything or mode & _OTHERS):
                closed += _close_what_is_in(Path(entry.path), everything=everything)
    return closed


def user_name(user: int) -> str:
    """A user's name for messages, or the number if it has no name."""
    try:
        return repr(pwd.getpwuid(user).pw_name)
    except KeyError:
        return str(user)
