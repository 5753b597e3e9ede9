"""Where a server is: one rule, for server, agent and client, of what an address is and whom to believe there.

    unix:/path/of/socket    only this user and root can listen there, which is looked at before each use
    HOST:PORT               on loopback: any user of this machine can listen there first, and any can connect

The default is a socket in a folder of mode 0700. A TCP address is on this machine only if it parses as a
loopback address or is exactly ``localhost``: names that merely begin like one are somebody else's.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import ParameterError
from assay_sampling.private_folders import is_our_folder, make_private_folder, why_not_ours

__all__ = [
    "SERVER_VARIABLE",
    "ServerAddress",
    "default_address",
    "is_loopback",
    "parse_address",
    "require_our_socket",
    "runtime_folder",
    "runtime_folders",
]

SERVER_VARIABLE = "ASSAY_SERVER"
# sockaddr_un.sun_path has 108 bytes with the null at its end (unix(7)).
LONGEST_SOCKET_PATH = 107
_UNIX = "unix:"
_SOCKET = "server.sock"
# gRPC reads a socket's address as a URI: these would end the path, or be decoded in it.
_URI_CHARACTERS = re.compile(r"[%?#\[\]@:,;&|<>\"'\\^`{}*!$()]")


@dataclass(frozen=True)
class ServerAddress:
    """A server's address: a socket's absolute path, or a host and a port.

    Args:
        text: as gRPC takes it.
        socket: the socket's path; None for TCP.
        host: without brackets; "" for a socket.
        port: 0 for a socket, and for any free port.
    """

    text: str
    socket: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def on_this_machine(self) -> bool:
        """Whether nobody but this machine can answer there."""
        return self.socket is not None or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or exactly ``localhost``."""
    try:
        return host == "localhost" or ("%" not in host and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


def runtime_folder() -> Path:
    """The folder of this user's default socket; only named here, nothing is made.

    ``$XDG_RUNTIME_DIR/assay`` where that is a folder of this user (after ``su`` it is another's), else
    ``/run/user/UID/assay`` where that is there, else ``/tmp/assay-UID``.
    """
    return next(runtime_folders())


def runtime_folders() -> Iterator[Path]:
    """The folders in which this user's sockets may be, the default first."""
    user = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in (given, f"/run/user/{user}"):
        if folder.startswith("/") and is_our_folder(Path(folder)):
            yield Path(folder) / "assay"
    yield Path(f"/tmp/assay-{user}")  # its owner and mode are looked at before it is used


def default_address() -> str:
    """The address that server, agent and client use where none is given, for this user."""
    return f"{_UNIX}{runtime_folder() / _SOCKET}"


def parse_address(text: str, subject: str = "server address", *, any_port: bool = False) -> ServerAddress:
    """Read an address; touches no disk and no network.

    Args:
        text: ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``; a relative path is this process's.
        subject: what messages call it.
        any_port: whether port 0 stands for any free one.

    Raises ParameterError for what is no address. Whether it is on this machine is asked of the result.
    """
    if text.startswith(_UNIX):
        return _socket_address(text, subject)
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]\s]+)):([0-9]{1,5})", text)
    least = 0 if any_port else 1
    if match is None or not least <= int(match[3]) <= 65535:
        raise ParameterError(
            subject, f"{text!r} is not an address", "give HOST:PORT or unix:PATH, for example localhost:7170"
        )
    return ServerAddress(text, host=match[1] or match[2], port=int(match[3]))


def _socket_address(text: str, subject: str) -> ServerAddress:
    given = text.removeprefix(_UNIX)
    if given.startswith("//"):  # unix:///absolute/path, as gRPC writes it too
        given = given[2:] if given.startswith("///") else ""
    if not given or "\0" in given:
        raise ParameterError(subject, f"{text!r} names no socket", "give unix:/path/of/socket")
    # gRPC takes the path as UTF-8, whatever the locale; a narrow one has its own spelling of these bytes.
    try:
        local = os.fsdecode(given.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise ParameterError(subject, f"{text!r} is not UTF-8", "give unix:/path/of/socket") from error
    path = Path(os.path.abspath(local))  # noqa: PTH100 - links are looked at, not followed, later
    encoded = os.fsencode(path)
    shown = encoded.decode("utf-8", "surrogateescape")
    if _URI_CHARACTERS.search(shown) or not shown.isprintable():
        raise ParameterError(
            subject,
            f"the path {shown!r} holds characters that gRPC reads otherwise in an address",
            "give a path of letters, digits, '.', '_' and '-'",
        )
    if len(encoded) > LONGEST_SOCKET_PATH:
        raise ParameterError(
            subject,
            f"the path {shown!r} has {len(encoded)} bytes, and a socket's has at most {LONGEST_SOCKET_PATH}",
            "give a shorter one, or set XDG_RUNTIME_DIR to a shorter folder of your own",
        )
    return ServerAddress(f"{_UNIX}{shown}", socket=path)


def require_our_socket(address: ServerAddress, subject: str = "server address") -> None:
    """Raise ParameterError unless only this user and root can listen at a socket's address.

    Every folder on the way must belong to this user or root, links included, and be closed to the writing of
    others; so whoever takes a place in a shared folder first is not believed. The folder of the default
    address is made where it is missing. Nothing is asked of TCP addresses.
    """
    if address.socket is None:
        return
    folder = address.socket.parent
    try:
        if folder == runtime_folder():
            make_private_folder(folder)
        if not folder.is_dir():
            raise ParameterError(
                subject, f"{address.text!r}: there is no folder {folder}", f"make it: mkdir -m 700 {folder}"
            )
        why = why_not_ours(folder)
    except OSError as error:
        why = f"{error.filename or folder} cannot be looked at or made ({error.strerror or error})"
    if why:
        raise ParameterError(
            subject,
            f"{address.text!r} is not safe: {why}, so another user could answer there",
            "use a socket in a folder of your own with mode 700 (unix:PATH), or have that folder mended",
        )
