"""Channels to a server over TCP: TLS in which the server proves itself first, and why one cannot be made."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

import grpc

from assay_core.identity.certificates import SERVER_NAME
from assay_core.identity.credentials import Credentials
from assay_core.server_address import ServerAddress

_PROBE_SECONDS = 3.0
Options = Sequence[tuple[str, int | str]]


def mutual_channel(address: ServerAddress, credentials: Credentials, options: Options) -> grpc.Channel:
    """A channel in which both sides prove themselves.

    The server must have a certificate of the credentials' authority, else nothing is sent.
    """
    tls = grpc.ssl_channel_credentials(credentials.authority, credentials.key_pem, credentials.certificate)
    return _channel(address, tls, options)


def joining_channel(address: ServerAddress, authority_pem: bytes, options: Options) -> grpc.Channel:
    """A channel for joining: the server proves itself, the caller has no certificate yet."""
    return _channel(address, grpc.ssl_channel_credentials(authority_pem), options)


def _channel(address: ServerAddress, tls: grpc.ChannelCredentials, options: Options) -> grpc.Channel:
    own = [
        # Whatever it is reached as, a server has this name in its certificate.
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.enable_http_proxy", 0),
        # Channels of other credentials must not lend this one their connection.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.secure_channel(address.text, tls, options=[*options, *own])


def why_unreachable(
    address: ServerAddress, authority_pem: bytes, credentials: Credentials | None = None
) -> tuple[str, str]:
    """Cause and remedy for a server that a channel cannot reach; connects once, and sends nothing of ours."""
    context = ssl.create_default_context(cadata=authority_pem.decode())
    try:
        with socket.create_connection((address.host, address.port), timeout=_PROBE_SECONDS) as connection:
            connection.settimeout(_PROBE_SECONDS)
            with context.wrap_socket(connection, server_hostname=SERVER_NAME):
                pass
    except ssl.SSLCertVerificationError as error:
        return (
            f"the server there proves itself with a certificate that ours was not issued with "
            f"({error.verify_message}): it is another server, or somebody in its place; nothing was sent",
            "check the address; if the lab has a new authority, enrol again with a new token",
        )
    except ssl.SSLError:
        return (
            "what answers there does not speak TLS as an assay-server does",
            "check the address and the port",
        )
    except OSError as error:
        return f"no server answers there ({error.strerror or error})", "check the address, and that it runs"
    if credentials is not None and credentials.expired:
        return (
            "our certificate has expired, so the server does not let us in",
            "enrol again with a new token; the identity stays the same",
        )
    return "the server there ends the connection", "see the log of the server"
