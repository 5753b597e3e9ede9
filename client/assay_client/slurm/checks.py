"""What is checked before agents are submitted: on the login node, which sees the shared file system."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import make_private_folder, user_name
from assay_core.server_address import parse_address
from assay_sampling.errors import StorageError

_CONNECT_SECONDS = 3.0


def require_private_root(folder: Path) -> None:
    """Make the folder for the states of jobs, or see that an existing one is this user's alone.

    Raises StorageError.
    """
    with storage_errors(folder):
        make_private_folder(folder)
        state = folder.stat()
    mode = stat.S_IMODE(state.st_mode)
    if state.st_uid != os.geteuid():
        raise StorageError(
            str(folder),
            f"it belongs to user {user_name(state.st_uid)}",
            "name a folder of your own: --state-root",
        )
    if mode & 0o077:
        raise StorageError(
            str(folder),
            f"other users may look into it (mode {mode:04o}), and the agents' keys are kept there",
            f"run: chmod 700 {folder}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(str(folder), "nobody can write into it", "name another folder: --state-root")


def doubts(addresses: Sequence[str], program: Sequence[str], policy: Path | None) -> list[str]:
    """What may keep agents from working, seen from here; nodes may see more, so these are no errors.

    Raises ParameterError for what is not an address.
    """
    problems = [text for address in addresses if (text := _unreachable(address))]
    if shutil.which(program[0]) is None:
        problems.append(f"{program[0]} is no program on this machine; it must be one on the nodes")
    if policy is not None and not policy.is_file():
        problems.append(f"the policy file {policy} is not on this machine; it must be on the nodes")
    return problems


def _unreachable(address: str) -> str:
    """Why nothing answers at an address from here; "" if something does."""
    place = parse_address(address)
    try:
        if place.socket is not None:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_CONNECT_SECONDS)
                probe.connect(str(place.socket))
        else:
            socket.create_connection((place.host.strip("[]"), place.port), _CONNECT_SECONDS).close()
    except OSError as error:
        return f"nothing answers at {address} from this machine ({error.strerror or error})"
    if place.socket is not None:
        return f"{address} is a socket of this machine: only agents on this machine reach it"
    return ""
