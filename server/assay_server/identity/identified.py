"""What a server needs to know who is who, put together from its settings and its state folder."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from assay_core.server_address import ServerAddress
from assay_sampling.errors import StorageError
from assay_server.access.directory import IdentityDirectory
from assay_server.config import ServerSettings, check_listen_address
from assay_server.identity.authority import Authority, read_authority
from assay_server.identity.enrolment import Enrolment
from assay_server.identity.server_certificate import ServerCertificate
from assay_server.store.sql import MetadataStore

_MARK_DIGITS = 15  # of the fingerprint: what a number of the database holds


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
        known = write.authority_mark()
        if known is None and own is not None:
            write.keep_authority_mark(own)
    if known is None or known == own:
        return
    cause = "it has no certificate authority" if own is None else "its certificate authority is another one"
    raise StorageError(
        "this server",
        f"{cause}, and whoever enrolled trusts that of the other server",
        "copy the folder 'authority' from the state folder of the other server, with its modes (cp -a)",
    )
