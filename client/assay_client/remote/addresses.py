"""The server to talk to: which address, and whether whoever answers at a socket may be believed."""

from __future__ import annotations

import os
from pathlib import Path

from assay_client.remote.refusals import unreachable
from assay_client.settings import settings_of
from assay_core.server_address import ServerAddress, parse_address, require_our_socket
from assay_sampling.errors import ParameterError, ServerUnreachableError


def server_address(address: str | None = None) -> str:
    """The server to talk to: the one given, else $ASSAY_SERVER, else this user's own socket.

    Raises ParameterError if it is not an address.
    """
    return named_address(address).text


def named_address(address: str | None) -> ServerAddress:
    """As :func:`server_address`, in its parts."""
    return parse_address(utf8(address or settings_of(server=None).server), "--server")


def utf8(text: str) -> str:
    """``text`` as gRPC can send it; raises ParameterError for bytes of a path that are not UTF-8."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError as error:
        raise ParameterError(
            text, "it is not UTF-8, and only UTF-8 can be sent to a server", "rename the file or its folder"
        ) from error


def require_ours(address: ServerAddress) -> None:
    """Raise ServerUnreachableError if there is no server there, or it could be another user's."""
    folder = address.socket.parent if address.socket is not None else Path("/")
    if not folder.exists():
        raise unreachable(address.text, f"no server answers there: there is no folder {folder}")
    try:
        require_our_socket(address, owner=settings_of(socket_owner=None).socket_owner)
    except ParameterError as error:
        raise ServerUnreachableError(address.text, error.cause, error.remedy) from error
