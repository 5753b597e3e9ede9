"""The server's own certificate: issued at start, and again when a third of its validity is left."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Sequence

import grpc
from cryptography import x509

from assay_core.identity.certificates import certificate_pem, renewal_ms
from assay_core.identity.keys import key_pem, new_key
from assay_sampling.errors import AssayError
from assay_server.clock import wall_ms
from assay_server.identity.authority import Authority

_log = logging.getLogger(__name__)


class ServerCertificate:
    """Gives gRPC what the server proves itself with; asked at each handshake, so renewal needs no restart.

    The private key is new with each certificate and never leaves the memory of this process.
    """

    def __init__(
        self, authority: Authority, validity: datetime.timedelta, now_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._authority = authority
        self._validity = validity
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._renew_at_ms = 0
        self._certificate, self._configuration = self._next()

    def credentials(self, *, ask_client: bool) -> grpc.ServerCredentials:
        """TLS for one listener. ``ask_client``: only clients with a certificate of the authority may connect.

        gRPC verifies them against the authority either way.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, self._current, require_client_authentication=ask_client
        )

    def current(self) -> x509.Certificate:
        """The certificate that a handshake would show now."""
        with self._lock:
            self._renew_if_due()
            return self._certificate

    def for_names(self, names: Sequence[str]) -> bytes:
        """Another certificate with its key, PEM, for hosts that browsers know: of the live page."""
        key = new_key()
        now = datetime.datetime.fromtimestamp(self._now_ms() / 1000, datetime.UTC)
        certificate = self._authority.issue_for_hosts(key.public_key(), names, self._validity, now)
        return key_pem(key) + certificate_pem(certificate)

    def _current(self) -> grpc.ServerCertificateConfiguration:
        with self._lock:
            self._renew_if_due()
            return self._configuration

    def _renew_if_due(self) -> None:
        if self._now_ms() < self._renew_at_ms:
            return
        try:
            self._certificate, self._configuration = self._next()
        except AssayError as error:  # the authority has expired: the old one says so to clients
            _log.error("the server's certificate cannot be renewed: %s", error)

    def _next(self) -> tuple[x509.Certificate, grpc.ServerCertificateConfiguration]:
        key = new_key()
        now_ms = self._now_ms()
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        certificate = self._authority.issue_for_server(key.public_key(), self._validity, now)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        self._renew_at_ms = renewal_ms(round(begin.timestamp() * 1000), round(end.timestamp() * 1000))
        return certificate, grpc.ssl_server_certificate_configuration(
            [(key_pem(key), certificate_pem(certificate))], root_certificates=self._authority.pem
        )
