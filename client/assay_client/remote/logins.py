"""Logins: a person's certificates on this machine, one folder for each server."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from assay_client.settings import settings_of
from assay_core.connecting import joining
from assay_core.connecting.channel import mutual_channel
from assay_core.connecting.joining import left, renewed, renewed_after_expiry
from assay_core.identity.credentials import Credentials, CredentialsFolder
from assay_core.records.error_metadata import ErrorMetadata
from assay_core.server_address import ServerAddress, parse_address
from assay_sampling.errors import AssayError, NotIdentifiedError, ServerUnreachableError

_RENEW_SECONDS = 5.0
_LEAVE_SECONDS = 10.0
_PROBE_SECONDS = 3.0


def login_again(address: str) -> str:
    """The remedy for a login that no longer holds."""
    return (
        f"log in again with a new token of an admin: assay lab login HOST:PORT --token TOKEN (for {address})"
    )


def login_folder(address: ServerAddress, folder: Path | None = None) -> CredentialsFolder:
    """Where the login to a server is kept; ``folder``: None takes the setting."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", address.text)
    return CredentialsFolder((folder or settings_of(credentials_dir=None).credentials_dir) / name)


def log_in(address: str, token: str) -> dict[str, Any]:
    """Join the server whose join listener is at ``address`` as the person of the token.

    Returns ``server`` (to connect to), ``name``, ``role``, ``identity_id``, ``fingerprint`` of the authority
    and ``expires_at_ms``. Raises ParameterError, ServerUnreachableError, NotIdentifiedError.
    """
    credentials, joined = joining.join(address, token)
    login_folder(parse_address(credentials.server)).write(credentials)
    identity = credentials.identity
    return {
        "server": credentials.server,
        "name": joined.name,
        "role": str(joined.role),
        "identity_id": identity.identity_id,
        "fingerprint": credentials.authority_fingerprint,
        "expires_at_ms": identity.not_after_ms,
    }


def log_out(address: str) -> dict[str, Any] | None:
    """Have the server withdraw the login's certificates, and forget it; None: nobody has logged in there.

    Returns whether it is ``withdrawn`` or else ``not_withdrawn`` (why), its ``serial`` and ``expires_at_ms``.
    Raises ParameterError, StorageError.
    """
    server = parse_address(address)
    folder = login_folder(server)
    credentials = folder.read()
    if credentials is None:
        return None
    why = _not_withdrawn(server, credentials)
    folder.remove()
    identity = credentials.identity
    return {
        "withdrawn": not why,
        "not_withdrawn": why or None,
        "serial": identity.serial,
        "expires_at_ms": identity.not_after_ms,
    }


def _not_withdrawn(server: ServerAddress, login: Credentials) -> str:
    """Have a login withdrawn; why it was not, or ""."""
    if login.expired:
        return ""  # it is worth nothing any more
    try:
        with mutual_channel(server, login, ()) as channel:
            left(channel, _LEAVE_SECONDS)
    except grpc.RpcError as error:
        metadata = ErrorMetadata.beside(error)
        if metadata is not None:
            return metadata.cause
        return "the server does not answer"
    return ""


def require_listener(address: ServerAddress) -> None:
    """Raise ServerUnreachableError if nothing listens at a TCP address; connects once, and sends nothing."""
    try:
        socket.create_connection((address.host, address.port), timeout=_PROBE_SECONDS).close()
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no name can be
        raise ServerUnreachableError(
            f"server {address.text}",
            f"nothing listens there ({getattr(error, 'strerror', None) or error})",
            "check the address and that the server runs; once it does, log in: assay lab login HOST:PORT "
            "--token TOKEN",
        ) from error


class Login:
    """The login to one server, its channel, and the renewal of its certificate.

    Raises NotIdentifiedError if nobody has logged in there, ServerUnreachableError if nothing listens there
    either.
    """

    def __init__(self, address: ServerAddress, options: list[tuple[str, int | str]]) -> None:
        self._address = address
        self._options = options
        self._folder = login_folder(address)
        credentials = self._folder.read()
        if credentials is None:
            require_listener(address)
            raise NotIdentifiedError(
                f"server {address.text}",
                "you have not logged in to it on this machine",
                "ask an admin for a token, then: assay lab login HOST:PORT --token TOKEN",
            )
        self.credentials = credentials

    def channel(self) -> grpc.Channel:
        """A new channel with the present certificate."""
        return mutual_channel(self._address, self.credentials, self._options)

    def renew_if_due(self, replace: Callable[[], None]) -> None:
        """Renew the certificate if it is time, and then ``replace`` the channel; a failure changes nothing.

        Another process of this user may have renewed it meanwhile.
        """
        if not self.credentials.renewal_due:
            return
        credentials = self._folder.read()
        if credentials is not None and not credentials.renewal_due:
            self.credentials = credentials
            replace()
            return
        if (next_one := self._renewed()) is None:
            return
        self._folder.write(next_one)
        self.credentials = next_one
        replace()

    def _renewed(self) -> Credentials | None:
        try:
            if self.credentials.expired:
                return renewed_after_expiry(self.credentials, _RENEW_SECONDS)
            with self.channel() as channel:
                return renewed(channel, self.credentials, _RENEW_SECONDS)
        except (grpc.RpcError, AssayError):
            return None  # the next call tells what is wrong
