"""What a server needs to know who is who, put together from its settings and its state folder."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from assay_core.server_address import ServerAddress
from assay_server.access.directory import IdentityDirectory
from assay_server.config import ServerSettings, check_listen_address
from assay_server.identity.authority import read_authority
from assay_server.identity.enrolment import Enrolment
from assay_server.identity.server_certificate import ServerCertificate
from assay_server.identity.shared_authority import require_same_authority
from assay_server.store.sql import MetadataStore


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
