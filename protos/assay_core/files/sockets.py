"""Sockets in the file system that a killed program left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from assay_core.files.private_folders import user_name
from assay_sampling.errors import ParameterError


def clear_socket(path: Path, subject: str) -> None:
    """Remove a killed program's socket, if there is one.

    Raises ParameterError if what is there is not a socket, belongs to another user, or answers.
    """
    try:
        state = path.lstat()
        if not stat.S_ISSOCK(state.st_mode):
            raise ParameterError(subject, "the file there is not a socket", "give another path")
        if state.st_uid != os.geteuid():
            raise ParameterError(
                subject,
                f"the socket there belongs to user {user_name(state.st_uid)}",
                "have that user stop the server and remove it, or give another path",
            )
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ParameterError(
            subject, f"it cannot be used ({error.strerror or error})", "give another path"
        ) from None
    else:
        raise address_taken(subject)


def address_taken(subject: str) -> ParameterError:
    """The error for an address where another program listens."""
    return ParameterError(
        subject,
        "cannot listen on it: another program does, or this user may not",
        "stop that program or give another address; port 0 takes any free one",
    )
