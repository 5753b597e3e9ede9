"""Join tokens: made by an admin, kept as a hash, used up in the transaction that admits the joiner."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from assay_core.identity.join_token import JoinToken, secret_hash
from assay_core.identity.roles import OWNER_NAME, IdentityKind, Role
from assay_core.records.identity import TokenAsked
from assay_sampling.errors import NotIdentifiedError, ParameterError
from assay_server.identity.authority import Authority
from assay_server.store.people import StoredToken
from assay_server.store.sql import SqlTransaction

LONGEST_NAME = 64
MOST_LABELS, MOST_USES = 16, 1000
LONGEST_VALIDITY_MS = 30 * 86_400_000
_KEPT_MS = 7 * 86_400_000
_SUBJECT = "join token"
_NEW = "ask an admin of the lab for a new one (assay admin token)"


@dataclass(frozen=True)
class MadeToken:
    """A new token: the text is known only now, and what is kept of it."""

    text: str
    stored: StoredToken


def make_token(store: SqlTransaction, authority: Authority, request: TokenAsked, now_ms: int) -> MadeToken:
    """Make a token and keep its hash; raises ParameterError if nobody could join with it as intended."""
    _check(store, request)
    token = JoinToken.new(authority.der)
    stored = StoredToken(
        token_id=f"t-{secrets.token_hex(4)}",
        secret_hash=token.secret_hash,
        role=request.role,
        name=request.name,
        project=request.project,
        labels=tuple(dict.fromkeys(request.labels)),
        uses_left=request.uses,
        created_at_ms=now_ms,
        expires_at_ms=now_ms + request.valid_ms,
    )
    store.forget_join_tokens(now_ms - _KEPT_MS)
    store.put_join_token(stored)
    return MadeToken(token.text, stored)


def usable_token(store: SqlTransaction, secret: bytes, now_ms: int, *, used_before: bool) -> StoredToken:
    """The token with this secret; raises NotIdentifiedError if it is unknown, expired or used up.

    ``used_before``: whether this joiner has used it already, and only asks again because the answer was lost.
    """
    token = store.join_token(secret_hash(secret))
    if token is None:
        raise NotIdentifiedError(_SUBJECT, "this server did not make it, or it expired long ago", _NEW)
    if now_ms >= token.expires_at_ms:
        raise NotIdentifiedError(f"{_SUBJECT} {token.token_id}", "it has expired", _NEW)
    if token.uses_left <= 0 and not used_before:
        raise NotIdentifiedError(
            f"{_SUBJECT} {token.token_id}", "it was used as often as it may be, or withdrawn", _NEW
        )
    return token


def use_up(store: SqlTransaction, token: StoredToken) -> None:
    """Take one use from a token."""
    store.put_join_token(replace(token, uses_left=token.uses_left - 1))


def person_named(store: SqlTransaction, name: str) -> str:
    """The id of the person with a name whose identity was not revoked; "": nobody has that name."""
    for each in store.identities():
        if each.kind is IdentityKind.PERSON and each.name == name and not each.revoked_at_ms:
            return each.identity_id
    return ""


def checked_name(name: str, subject: str) -> str:
    """A name of an identity, project or label; raises ParameterError."""
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise ParameterError(
            subject, f"{name[:80]!r} is not at most {LONGEST_NAME} printable characters", "give another"
        )
    return name


def _check(store: SqlTransaction, request: TokenAsked) -> None:
    checked_name(request.name, "--name")
    checked_name(request.project, "--project")
    for label in request.labels:
        if not checked_name(label, "--label"):
            raise ParameterError("--label", "it is empty", "give a word")
    if len(request.labels) > MOST_LABELS:
        raise ParameterError("--label", f"there are more than {MOST_LABELS}", "give fewer")
    if not 1 <= request.uses <= MOST_USES:
        raise ParameterError(
            "--uses", f"{request.uses} is not in 1..{MOST_USES}", "give a number in that range"
        )
    if not 1 <= request.valid_ms <= LONGEST_VALIDITY_MS:
        raise ParameterError(
            "--valid", "a token is valid for more than nothing and at most 30 days", "give 1h or 7d"
        )
    if request.role is Role.AGENT:
        return
    if request.name == OWNER_NAME:
        raise ParameterError("--name", f"{OWNER_NAME} is who owns the server's socket", "give another name")
    if not request.name:
        raise ParameterError("--name", "the token of a person needs the person's name", "give --name NAME")
    known = store.identity(person_named(store, request.name))
    if known is not None and known.role is not request.role:
        raise ParameterError(
            "--role",
            f"{request.name} has the role {known.role} already",
            f"give --role {known.role}, or change the role first",
        )
