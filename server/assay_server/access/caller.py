"""The caller of the request that is being answered, from its connection to every handler that asks for it.

A caller is the socket's owner, or the identity that a verified certificate names. Identities and withdrawn
certificates are in memory, read again regularly and after each change, so that a call costs no query.

Viewers and submitters know of their own campaigns and of those of their project; operators, admins, the owner
of the socket and whoever has the project ``*`` know of all. Sources: docs/security.md, "Projects";
docs/scheduling.md, "Who may go first".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from assay_core.identity.certificates import CertifiedIdentity, certified_identity, read_certificate
from assay_core.identity.roles import OWNER_NAME, Role
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.clock import wall_ms
from assay_server.store.model import EVERYTHING, Sight
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore

_JOIN = "join this server with a token of its admin"
# Whoever opens the server's socket is its owner: there is one, whatever users the folder lets in.
OWNER_ID = OWNER_NAME
EVERY_PROJECT = "*"
SUBMITTERS_HIGHEST_PRIORITY = 0
_WHOLE_LAB = frozenset({Role.OPERATOR, Role.ADMIN})
# A revocation by another process on the same store holds within this time; one in this process at once.
REFRESH_SECONDS = 15.0

Listener = Callable[[frozenset[str]], None]


class How(StrEnum):
    """How a caller was recognised."""

    SOCKET = "socket"
    CERTIFICATE = "certificate"
    WEB = "web"  # a session of a browser


@dataclass(frozen=True)
class Caller:
    """Who is calling.

    ``identity_id``: OWNER_ID for whoever opened the server's socket; ``name``: for people; ``project``: that
    campaigns get unless their file names one; ``address``: the peer as gRPC names it; ``serial``: of the
    certificate that it uses, "" on the socket.
    """

    identity_id: str
    name: str
    role: Role
    project: str = ""
    how: How = How.CERTIFICATE
    address: str = ""
    serial: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether it opened the server's own socket, so that the machine vouches for it."""
        return self.how is How.SOCKET


_CURRENT: ContextVar[Caller | None] = ContextVar("assay_caller", default=None)


def current_caller() -> Caller | None:
    """Who made the request that this thread or task answers; None for the server's own work."""
    return _CURRENT.get()


def set_caller(caller: Caller) -> None:
    """Make ``caller`` the caller for the rest of this task; every call of gRPC is a task of its own."""
    _CURRENT.set(caller)


@contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """Answer in the name of ``caller`` while the block runs."""
    token = _CURRENT.set(caller)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@lru_cache(maxsize=4096)
def presented_certificate(pem: bytes) -> CertifiedIdentity:
    """Whose a verified certificate is; raises NotIdentifiedError if it names nobody."""
    try:
        return certified_identity(read_certificate(pem, "certificate"))
    except ParameterError as error:
        remedy = "join again with a new token of this server"
        raise NotIdentifiedError(error.subject, error.cause, remedy) from error


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: its address as gRPC names it, and its verified certificate or b""."""

    address: str
    certificate: bytes = b""
    encrypted: bool = False

    @property
    def on_socket(self) -> bool:
        """Whether it came through a Unix socket without TLS."""
        return self.address.startswith("unix:") and not self.encrypted


class IdentityDirectory:
    """All identities of the store, and the certificates that were withdrawn though theirs was not.

    Thread-safe.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._identities: dict[str, Identity] = {}
        self._withdrawn: frozenset[str] = frozenset()
        self.refresh()

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with the identities that changed, in the thread that noticed."""
        self._listeners.append(listener)

    def identity(self, identity_id: str) -> Identity | None:
        """The identity as it was last read; None if it was not there then. Does not block."""
        return self._identities.get(identity_id)

    def looked_up(self, identity_id: str) -> Identity | None:
        """The identity, from the store if it is new; may block."""
        identity = self._identities.get(identity_id)
        if identity is None:
            with self._metadata.snapshot() as store:
                identity = store.identity(identity_id)
            if identity is not None:
                self.refresh()
        return identity

    def is_withdrawn(self, serial: str) -> bool:
        """Whether the certificate with this number was withdrawn, as it was last read. Does not block."""
        return serial in self._withdrawn

    def refresh(self) -> None:
        """Read them all; call this after every transaction that changed some."""
        with self._lock:
            with self._metadata.snapshot() as store:
                self._withdrawn = frozenset(c.serial for c in store.certificates() if c.withdrawn_at_ms)
                now = {each.identity_id: each for each in store.identities()}
            before, self._identities = self._identities, now
        changed = {one for one in before.keys() | now.keys() if before.get(one) != now.get(one)}
        if changed:
            for listener in self._listeners:
                listener(frozenset(changed))


def is_in_memory(directory: IdentityDirectory, peer: Peer) -> bool:
    """Whether :func:`caller_of` will answer from memory."""
    if not peer.certificate:
        return True
    return directory.identity(presented_certificate(peer.certificate).identity_id) is not None


def caller_of(directory: IdentityDirectory, peer: Peer) -> Caller:
    """The caller at the other end of a connection; may block for an identity that is new.

    Raises NotIdentifiedError or NotPermittedError.
    """
    if not peer.certificate:
        if not peer.on_socket:
            raise NotIdentifiedError(f"caller at {peer.address}", "it presented no certificate", _JOIN)
        return Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.SOCKET, address=peer.address)
    certificate = presented_certificate(peer.certificate)
    identity = directory.looked_up(certificate.identity_id)
    subject = f"{certificate.kind} {certificate.identity_id}"
    if identity is None or identity.kind is not certificate.kind:
        raise NotIdentifiedError(subject, "the server does not know this identity", _JOIN)
    if certificate.not_after_ms <= wall_ms():
        raise NotIdentifiedError(subject, "its certificate has expired", f"{_JOIN}; it stays the same")
    subject = f"{identity.kind} {identity.name or identity.identity_id}"
    if identity.revoked_at_ms:
        raise NotPermittedError(subject, "its identity was revoked", "ask an admin of the server")
    if directory.is_withdrawn(certificate.serial):
        raise NotPermittedError(subject, "its certificate was withdrawn", _JOIN)
    return Caller(
        identity.identity_id,
        identity.name,
        identity.role,
        identity.project,
        address=peer.address,
        serial=certificate.serial,
    )


def sight_of(caller: Caller | None) -> Sight:
    """The campaigns that a caller may know of; None: the server's own work."""
    if caller is None or caller.is_owner or caller.role in _WHOLE_LAB:
        return EVERYTHING
    if caller.project == EVERY_PROJECT:
        return EVERYTHING
    return Sight(False, caller.identity_id, caller.project)


def project_for(caller: Caller | None, named: str | None) -> str:
    """The project of a campaign that the caller submits; ``named``: by its file.

    Raises NotPermittedError if a submitter names a project of others, whose share of the GPUs it would use.
    """
    own = "" if caller is None or caller.project == EVERY_PROJECT else caller.project
    if named is None or named == own:
        return own
    if caller is not None and not sight_of(caller).everything:
        raise NotPermittedError(
            f"project {named!r}",
            f"{caller.name or caller.identity_id} is of project {own!r}"
            if own
            else f"{caller.name or caller.identity_id} is of no project",
            "leave 'project' out of the campaign file, or ask an admin: assay admin role NAME submitter "
            f"--project {named}",
        )
    return named


def require_priority(caller: Caller | None, priority: int) -> None:
    """Raise NotPermittedError if a caller asks to go before others and may not; None: the server's own work.

    The owner of the socket may: on a box of one's own nobody else waits.
    """
    if priority <= SUBMITTERS_HIGHEST_PRIORITY or caller is None or caller.is_owner:
        return
    if caller.role not in _WHOLE_LAB:
        raise NotPermittedError(
            f"priority {priority}",
            f"only operators and admins put a campaign before those of others, and {caller.name} is a "
            f"{caller.role}",
            f"leave 'priority' out of the campaign file or give at most {SUBMITTERS_HIGHEST_PRIORITY}, or "
            "have an operator submit the campaign",
        )
