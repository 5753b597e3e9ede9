"""The server's own certificate, issued once at its start."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import grpc
from cryptography import x509

from assay_core.identity.certificates import certificate_pem
from assay_core.identity.keys import key_pem, new_key
from assay_server.identity.authority import Authority


class ServerCertificate:
    """What the server proves itself with; valid for as long as the authority, and the same until it ends.

    The private key is new at each start and never leaves the memory of this process, where the key of the
    authority is, too: a shorter validity would protect nothing more.

    It is not exchanged while the server listens, because gRPC cannot do that safely. A handshake takes the
    current configuration outside gRPC's lock, and an exchange frees it under a handshake that begins at the
    same moment; connections that send nothing suffice to end the process (``add_handshakers`` in gRPC's
    ``ssl_security_connector.cc``, seen in grpcio 1.78.0, 1.84.2, 1.85.1 and 1.85.3).

    Args:
        authority: issues it.
        page_validity: of certificates for the live page, which are exchanged.
    """

    def __init__(self, authority: Authority, page_validity: datetime.timedelta) -> None:
        self._authority = authority
        self._page_validity = page_validity
        key, now = new_key(), _now()
        self.certificate: x509.Certificate = authority.issue_for_server(
            key.public_key(), authority.not_after - now, now
        )
        self._pair = (key_pem(key), certificate_pem(self.certificate))

    def credentials(self, *, ask_client: bool) -> grpc.ServerCredentials:
        """TLS for one listener. ``ask_client``: only clients with a certificate of the authority may connect.

        gRPC verifies them against the authority either way.
        """
        return grpc.ssl_server_credentials(
            [self._pair], root_certificates=self._authority.pem, require_client_auth=ask_client
        )

    def for_names(self, names: Sequence[str]) -> bytes:
        """Another certificate with its key, PEM, for hosts that browsers know: of the live page."""
        key = new_key()
        certificate = self._authority.issue_for_hosts(key.public_key(), names, self._page_validity, _now())
        return key_pem(key) + certificate_pem(certificate)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
