"""Whether the server answers, proves itself, and lets this machine in; it is only asked for its health."""

from __future__ import annotations

import socket

import grpc

from assay_agent.doctor.check import Check, finding
from assay_core.connecting.channel import mutual_channel, why_unreachable
from assay_core.health_probe import is_serving
from assay_core.identity.credentials import Credentials
from assay_core.server_address import ServerAddress, parse_address, require_our_socket
from assay_sampling.errors import ParameterError

_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_START = "start one with: assay-server --state DIR; or name another with --server"
_ENROL = (
    "join it first: assay-agent join on a box, which also needs a policy file; assay lab login for people"
)


def server_check(
    address: str, needed: bool, credentials: Credentials | None = None, socket_owner: str = ""
) -> Check:
    """The finding for the server at an address.

    Args:
        address: as people give it.
        needed: whether a server that does not answer is missing, or worth a note.
        credentials: those of this box or person for a server over TCP; None without a login: then
            nobody proves anything, and all that can be seen is whether something answers.
        socket_owner: the user whose shared socket is trusted; "": only this user's own.
    """
    try:
        place = parse_address(address)
        _connect(place)
    except (OSError, ParameterError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else "not an address"
        return finding("server", needed, f"nothing answers at {address} ({reason})", _START)
    if place.socket is None and credentials is not None:
        return _proved(place, needed, credentials)
    return _believed(place, needed, socket_owner)


def _proved(address: ServerAddress, needed: bool, credentials: Credentials) -> Check:
    """The finding for a server over TCP, after both sides have proved who they are."""
    try:
        with mutual_channel(address, credentials, ()) as channel:
            serving = is_serving(channel, _ANSWER_SECONDS)
    except grpc.RpcError as error:
        code = error.code() if isinstance(error, grpc.Call) else None
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            cause, remedy = (
                "the server does not let us in: the identity was revoked",
                "enrol with a new token",
            )
        else:
            cause, remedy = why_unreachable(address, credentials.authority, credentials)
        return finding("server", needed, f"{address.text}: {cause}", remedy)
    if not serving:
        cause = f"{address.text} is the lab's server, but it is ending, or cannot write its state"
        return finding("server", needed, cause, "see the log of the server")
    return Check("server", "ok", f"{address.text} is the lab's server, it serves, and it lets us in")


def _believed(address: ServerAddress, needed: bool, socket_owner: str) -> Check:
    """The finding for a server that answers: over TCP it proves itself only to those who have credentials."""
    try:
        require_our_socket(address, owner=socket_owner)
    except ParameterError as error:
        return finding("server", needed, error.cause, error.remedy)
    if address.socket is None:
        what = (
            f"something answers at {address.text}; whether it is the lab's server shows when you have joined"
        )
        return Check("server", "note", what, _ENROL)
    return Check("server", "ok", f"something answers at {address.text}")


def _connect(address: ServerAddress) -> None:
    if address.socket is not None:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_CONNECT_SECONDS)
            channel.connect(str(address.socket))
        return
    socket.create_connection((address.host, address.port), timeout=_CONNECT_SECONDS).close()
