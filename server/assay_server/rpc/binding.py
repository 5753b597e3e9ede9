"""Where a server listens: folders of sockets, for this user alone or for a group, and who may connect."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc

from assay_core.files.private_folders import why_not_of
from assay_core.files.sockets import address_taken, clear_socket
from assay_core.server_address import ServerAddress, require_our_socket, runtime_folder
from assay_sampling.errors import ParameterError

_GROUP_FOLDER, _GROUP_SOCKET = 0o2770, 0o660
# Without the group's right to write, too: members then connect, and change nothing in the folder.
_GROUP_FOLDERS = (_GROUP_FOLDER, 0o770, 0o2750, 0o750)
_FLAG = "--socket-group"


def group_called(name: str) -> int:
    """The number of the group with a name, or with this number; raises ParameterError if it is unknown."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isascii() and name.isdecimal():
            return int(name)
        raise ParameterError(
            _FLAG, f"this machine has no group {name!r}", f"make it: groupadd {name}"
        ) from None


def bound(
    server: grpc.aio.Server | grpc.Server,
    address: ServerAddress,
    tls: grpc.ServerCredentials | None,
    group: int | None = None,
) -> str:
    """Bind one address, TCP only with TLS; returns it with its port. ``group``: may open its socket, too."""
    # A new socket has the permissions that the umask leaves; nobody else may connect before its chmod.
    before = os.umask(0o077)
    try:
        if address.socket is not None:
            port = server.add_insecure_port(address.text)
        else:
            assert tls is not None  # checked before
            port = server.add_secure_port(address.text, tls)
    except RuntimeError as error:
        raise address_taken(f"listen address {address.text!r}") from error
    finally:
        os.umask(before)
    if address.socket is None:
        return f"{address.text.rpartition(':')[0]}:{port}"
    if group is None:
        address.socket.chmod(stat.S_IRUSR | stat.S_IWUSR)
    else:
        _open_to_group(address.socket, group)
    return address.text


def _open_to_group(path: Path, group: int) -> None:
    """Let a group open our socket. Its members may rename files there: change what was looked at."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISSOCK(state.st_mode) or state.st_uid != os.geteuid():
            raise ParameterError(str(path), "somebody put another file there", "start the server again")
        itself = f"/proc/self/fd/{descriptor}"
        os.chown(itself, -1, group)
        os.chmod(itself, _GROUP_SOCKET)  # noqa: PTH101 - a descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def places_taken(addresses: Sequence[ServerAddress], group: int | None = None) -> Iterator[None]:
    """Check and clear the sockets' folders, and hold them for this process until it listens."""
    with contextlib.ExitStack() as folders:
        for folder in sorted({address.socket.parent for address in addresses if address.socket}):
            first = next(a for a in addresses if a.socket and a.socket.parent == folder)
            if group is None:
                require_our_socket(first, f"listen address {first.text!r}")
            else:
                take_group_folder(folder, group)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            folders.callback(os.close, descriptor)
            # Two servers that start at once would each remove the other's socket as stale. In a folder
            # that others may read, do not wait for the lock: they could hold it.
            if not os.fstat(descriptor).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        for address in addresses:
            if address.socket is not None:
                clear_socket(address.socket, f"listen address {address.text!r}")
        yield


def take_group_folder(folder: Path, group: int) -> None:
    """Make the folder of a group's socket with mode 2770, or check that it is one.

    Raises ParameterError if this user may not give it to the group, or others could change it.
    """
    if folder == runtime_folder():
        raise ParameterError(
            _FLAG,
            f"{folder} is the folder of this user's own socket",
            "give --listen unix:PATH in a folder that the group can reach, such as /srv/assay/server.sock",
        )
    repair = f"chgrp {group} {folder} && chmod {_GROUP_FOLDER:o} {folder}"
    try:
        _make_for(folder, group)
        why = why_not_of(folder, os.geteuid())
        state = folder.lstat()
    except PermissionError as error:
        why = f"this user may not make it one of group {group} ({error.strerror})"
        repair = "add this user to the group (usermod --append --groups) and log in again, or make it as root"
    except OSError as error:
        why, repair = f"it cannot be made ({error.strerror})", "make the folder that it is in"
    else:
        mode = stat.S_IMODE(state.st_mode)
        if not why and state.st_gid != group:
            why = f"it is of group {state.st_gid}, not {group}"
        elif not why and mode not in _GROUP_FOLDERS:
            why = f"it has mode {mode:04o}, not {_GROUP_FOLDER:o}"
    if why:
        raise ParameterError(f"{_FLAG}, folder {folder}", why, repair)


def _make_for(folder: Path, group: int) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    try:
        os.chown(folder, -1, group)
    except OSError:
        folder.rmdir()
        raise
    folder.chmod(_GROUP_FOLDER)
