"""Who somebody is to a server: the kind of an identity, and its role.

Source: docs/security.md, "Identities". Roles are not in certificates: the server looks them up at each call,
so that a changed role or a revocation holds at once.
"""

from __future__ import annotations

from enum import StrEnum

# Whoever opens a server's Unix socket has no identity of their own; this is what their work is listed under.
OWNER_NAME = "owner"


class IdentityKind(StrEnum):
    """What an identity stands for."""

    AGENT = "agent"
    PERSON = "person"


class Role(StrEnum):
    """What an identity may do; people have one of all but ``agent``."""

    AGENT = "agent"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def kind(self) -> IdentityKind:
        """The kind of the identities that have this role."""
        return IdentityKind.AGENT if self is Role.AGENT else IdentityKind.PERSON
