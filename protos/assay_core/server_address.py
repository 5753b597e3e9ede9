"""Server addresses: how server, agent and client parse them, and which ones they trust.

    unix:/path/of/socket    only this user and root can listen there, which is checked before each use
    HOST:PORT               on loopback: any user of this machine can listen there first, and any can connect

The default is a socket in a folder of mode 0700. A TCP address is on this machine only if it parses as a
loopback address or is exactly ``localhost``: a name that merely begins like one may be anybody's.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_core.files.private_folders import (
    is_our_folder,
    make_private_folder,
    user_name,
    why_not_of,
    why_not_ours,
)
from assay_sampling.errors import ParameterError

__all__ = [
    "SERVER_VARIABLE",
    "SOCKET_OWNER_VARIABLE",
    "ServerAddress",
    "default_address",
    "is_loopback",
    "parse_address",
    "require_our_socket",
    "runtime_folder",
    "runtime_folders",
    "user_called",
]

SERVER_VARIABLE = "ASSAY_SERVER"
SOCKET_OWNER_VARIABLE = "ASSAY_SOCKET_OWNER"
# sockaddr_un.sun_path has 108 bytes with the null at its end (unix(7)).
LONGEST_SOCKET_PATH = 107
_UNIX = "unix:"
_SOCKET = "server.sock"
# gRPC reads a socket's address as a URI: these would end the path, or be decoded.
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
        """Whether only this machine can answer there."""
        return self.socket is not None or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or exactly ``localhost``.

    An IPv6 address that maps an IPv4 one (``::ffff:127.0.0.1``) counts as that IPv4 address; Python's own
    answer differs between releases.
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_loopback
    return address.scope_id is None and (address.ipv4_mapped or address).is_loopback


def runtime_folder() -> Path:
    """The folder of this user's default socket; it is not created here.

    ``$XDG_RUNTIME_DIR/assay`` if that belongs to this user (after ``su`` it is another's), else
    ``/run/user/UID/assay`` if that exists, else ``/tmp/assay-UID``.
    """
    return next(runtime_folders())


def runtime_folders() -> Iterator[Path]:
    """The folders in which this user's sockets may be, the default first."""
    user = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in (given, f"/run/user/{user}"):
        if folder.startswith("/") and is_our_folder(Path(folder)):
            yield Path(folder) / "assay"
    yield Path(f"/tmp/assay-{user}")  # its owner and mode are checked before it is used


def default_address() -> str:
    """This user's address, which server, agent and client use if none is given."""
    return f"{_UNIX}{runtime_folder() / _SOCKET}"


def parse_address(text: str, subject: str = "server address", *, any_port: bool = False) -> ServerAddress:
    """Read an address; touches no disk and no network.

    Args:
        text: ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``; a relative path starts at the working folder.
        subject: what messages call it.
        any_port: whether port 0 means any free one.

    Raises ParameterError if it is not an address. Ask the result whether it is on this machine.
    """
    if text.startswith(_UNIX):
        return _socket_address(text, subject)
    match = re.fullmatch(r"(?:\[([\w.%]*:[\w.%:]*)\]|([^:\[\]\s]+)):([0-9]{1,5})", text)
    least = 0 if any_port else 1
    if match is None:
        raise ParameterError(
            subject, f"{text!r} is not an address", "give HOST:PORT or unix:PATH, for example localhost:7170"
        )
    if not least <= int(match[3]) <= 65535:
        raise ParameterError(
            subject, f"{text!r} is not an address: ports go from {least} to 65535", "correct the port"
        )
    return ServerAddress(text, host=match[1] or match[2], port=int(match[3]))


def _socket_address(text: str, subject: str) -> ServerAddress:
    given = text.removeprefix(_UNIX)
    if given.startswith("//"):  # unix:///absolute/path, as gRPC writes it too
        given = given[2:] if given.startswith("///") else ""
    if not given or "\0" in given:
        raise ParameterError(subject, f"{text!r} does not name a socket", "give unix:/path/of/socket")
    # gRPC takes the path as UTF-8, whatever the locale; a narrow one has its own spelling of these bytes.
    try:
        local = os.fsdecode(given.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise ParameterError(subject, f"{text!r} is not UTF-8", "give unix:/path/of/socket") from error
    path = Path(os.path.abspath(local))  # noqa: PTH100 - links are checked later, not followed here
    encoded = os.fsencode(path)
    shown = encoded.decode("utf-8", "surrogateescape")
    if _URI_CHARACTERS.search(shown) or not shown.isprintable():
        raise ParameterError(
            subject,
            f"the path {shown!r} holds characters that mean something else to gRPC in an address",
            "give a path of letters, digits, '.', '_' and '-'",
        )
    if len(encoded) > LONGEST_SOCKET_PATH:
        raise ParameterError(
            subject,
            f"the path {shown!r} has {len(encoded)} bytes, and a socket's has at most {LONGEST_SOCKET_PATH}",
            "give a shorter one, or set XDG_RUNTIME_DIR to a folder of yours with a shorter path",
        )
    return ServerAddress(f"{_UNIX}{shown}", socket=path)


def require_our_socket(address: ServerAddress, subject: str = "server address", owner: str = "") -> None:
    """Raise ParameterError unless only this user and root can listen at a socket's address.

    Every folder on the path, links included, must belong to this user or root and must not be writable by
    others, so nobody gains trust by taking a name in a shared folder first. The folder of the default
    address is created if it is missing. TCP addresses are not checked.

    ``owner``: name or number of a user whose socket is trusted, too, because the person said so: the
    folder may be that user's and open to its group, if no link leads there and the socket is that user's.
    """
    if address.socket is None:
        return
    folder = address.socket.parent
    trusted = user_called(owner) if owner else None
    remedy = (
        "use a socket in a folder of your own with mode 700 (unix:PATH), or have that folder's owner and "
        "mode corrected"
    )
    try:
        if folder == runtime_folder():
            make_private_folder(folder)
        if not folder.is_dir():
            raise ParameterError(
                subject, f"{address.text!r}: there is no folder {folder}", f"make it: mkdir -m 700 {folder}"
            )
        why = why_not_ours(folder)
        if why and trusted is not None:
            why = why_not_of(folder, trusted) or _why_not_a_socket_of(address.socket, trusted)
        elif why and not why_not_of(folder, its := folder.stat().st_uid):
            name = user_name(its).strip("'")
            remedy += (
                f"; if user {name} shares a server there and you trust all of its group: "
                f"--socket-owner {name}, or {SOCKET_OWNER_VARIABLE}={name}"
            )
    except OSError as error:
        why = f"{error.filename or folder} cannot be read or created ({error.strerror or error})"
    if why:
        raise ParameterError(
            subject, f"{address.text!r} is not safe: {why}, so another user could answer there", remedy
        )


def user_called(name: str) -> int:
    """The number of the user with a name, or with this number; raises ParameterError if it is unknown."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isascii() and name.isdecimal():
            return int(name)
        raise ParameterError(
            "--socket-owner", f"this machine has no user {name!r}", "give the name of a user"
        ) from None


def _why_not_a_socket_of(path: Path, owner: int) -> str:
    """Why what is there is not the socket of a user; "" if it is, or nothing is there. Raises OSError."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return ""
    if not stat.S_ISSOCK(state.st_mode):
        return f"{path} is not a socket"
    return "" if state.st_uid == owner else f"the socket there belongs to user {user_name(state.st_uid)}"
