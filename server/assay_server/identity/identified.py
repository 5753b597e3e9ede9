"""What a server needs to know who is who, and to prove itself: from its settings and its state folder."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from cryptography import x509

from assay_core.identity.certificates import certificate_pem
from assay_core.identity.keys import key_pem, new_key
from assay_core.server_address import ServerAddress
from assay_sampling.errors import StorageError
from assay_server.access.caller import IdentityDirectory
from assay_server.config import ServerSettings, check_listen_address
from assay_server.identity.authority import Authority, read_authority
from assay_server.identity.enrolment import Enrolment
from assay_server.store.sql import MetadataStore
from assay_server.store.tables import AUTHORITY_MARK

_MARK_DIGITS = 15  # of the fingerprint: what a number of the database holds


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


@dataclass(frozen=True)
class Identified:
    """What a server needs to know who is who.

    ``certificate`` None: the server has no authority, and listens on sockets only. ``join``: the addresses at
    which people and agents join.
    """

    enrolment: Enrolment
    certificate: ServerCertificate | None = None
    join: Sequence[ServerAddress] = ()


def identified(
    settings: ServerSettings,
    metadata: MetadataStore,
    directory: IdentityDirectory,
    *,
    shared_by: MetadataStore | None,
) -> Identified:
    """Who is who; without ``assay-server init`` there is no authority, and no TLS.

    ``shared_by``: the database that a standby uses, too, so that both must have one authority.
    """
    authority = read_authority(settings.state_dir)
    if shared_by is not None:
        require_same_authority(shared_by, authority)
    validity = datetime.timedelta(seconds=settings.certificate_validity_seconds)
    grace = datetime.timedelta(seconds=settings.renewal_grace_seconds)
    enrolment = Enrolment(metadata, directory, authority, validity, grace=grace)
    enrolment.join_address = settings.advertise_join
    return Identified(
        enrolment,
        None if authority is None else ServerCertificate(authority, validity),
        [check_listen_address(address, "join") for address in settings.join],
    )


def require_same_authority(store: MetadataStore, authority: Authority | None) -> None:
    """Raise StorageError unless a server has the authority of its standby; the first one decides which.

    Members of one must be known to the other.
    """
    own = None if authority is None else int(authority.fingerprint.replace(":", "")[:_MARK_DIGITS], 16)
    with store.transaction() as write:
        mark = write.number(AUTHORITY_MARK)
        if mark is None and own is not None:
            write.keep_number(AUTHORITY_MARK, own)
    if mark is None or mark == own:
        return
    cause = "it has no certificate authority" if own is None else "its certificate authority is another one"
    raise StorageError(
        "this server",
        f"{cause}, and whoever enrolled trusts that of the other server",
        "copy the folder 'authority' from the state folder of the other server, with its modes (cp -a)",
    )
