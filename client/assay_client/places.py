"""The client's folders on this machine: state, and private sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay_core.files.private_folders import make_private_folder
from assay_core.server_address import parse_address, require_our_socket, runtime_folders
from assay_sampling.errors import ParameterError, StorageError

# A Unix socket's path must fit into 108 bytes, even if XDG_RUNTIME_DIR is longer.
_LONGEST_SOCKET_FOLDER = 80
_SOCKET_FOLDER, _SOCKET = "assay-", "server.sock"


def default_state_directory() -> Path:
    """The folder of ``assay run``: $XDG_STATE_HOME/assay/local, else ~/.local/state/assay/local.

    If the user has no writable home, it is ``.assay`` in the working folder.
    """
    try:
        directory = _state_of_home()
        make_private_folder(directory)
    except (OSError, RuntimeError):
        return Path(".assay").absolute()
    return directory


def likely_state_directory() -> Path:
    """The path of the default state directory; nothing is created."""
    try:
        directory = _state_of_home()
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
            return directory
    except (OSError, RuntimeError):
        pass
    return Path(".assay").absolute()


def _state_of_home() -> Path:
    """Raises RuntimeError for a user without a home."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    if folder.startswith("/"):
        return Path(folder) / "assay" / "local"
    if os.environ.get("HOME") == "":  # Python takes it for the root folder
        raise RuntimeError("HOME is empty")
    return Path.home() / ".local" / "state" / "assay" / "local"


@contextlib.contextmanager
def private_socket_address() -> Iterator[str]:
    """An address "unix:PATH" in a new folder that only this user can enter; removed at the end.

    Raises ParameterError if another user could replace it, StorageError if it cannot be created.
    """
    fitting = (folder for folder in runtime_folders() if len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER)
    parent = next(fitting)
    try:
        make_private_folder(parent)
        directory = Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER, dir=parent))
    except OSError as error:
        raise StorageError(
            str(parent),
            f"no socket can be made there ({error.strerror})",
            "set XDG_RUNTIME_DIR to a folder of your own with mode 700",
        ) from error
    try:
        address = parse_address(f"unix:{directory}/{_SOCKET}")
        require_our_socket(address)
        yield address.text
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_socket_folder(address_file: Path) -> None:
    """Remove the folder of a private socket that a killed process left, as the server wrote its address."""
    try:
        socket = parse_address(address_file.read_text().strip()).socket
    except (OSError, UnicodeDecodeError, ParameterError):
        return
    if socket is not None and socket.name == _SOCKET and socket.parent.name.startswith(_SOCKET_FOLDER):
        shutil.rmtree(socket.parent, ignore_errors=True)
