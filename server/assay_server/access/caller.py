"""The caller of the request that is being answered, for every handler in its thread or task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from assay_core.identity.roles import OWNER_NAME, Role

# Whoever opens the server's socket is its owner: there is one, whatever users the folder lets in.
OWNER_ID = OWNER_NAME


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
