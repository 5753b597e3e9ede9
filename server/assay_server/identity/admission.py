"""Whom a join token admits, or the key of a certificate that has expired, and whose identity that is.

Names and ids of agents are theirs alone: nobody gets those of another agent by asking. People find boxes by
name in ``assay lab agents``, statuses and reports, so names that look alike count as one.
"""

from __future__ import annotations

import unicodedata
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

from assay_core.identity.certificates import IDENTITY_ID
from assay_core.identity.join_token import secret_hash
from assay_core.identity.roles import IdentityKind
from assay_core.records.identity import JoinAsked
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.identity.tokens import checked_name, person_named, usable_token
from assay_server.store.people import Identity, StoredToken
from assay_server.store.sql import SqlTransaction


@dataclass(frozen=True)
class Admission:
    """A good token. ``again_as``: the identity that this joiner got with it before; "" for a first join."""

    token: StoredToken
    again_as: str = ""


def admission(store: SqlTransaction, joiner: JoinAsked, key_hash: str, now_ms: int) -> Admission:
    """The token that admits a joiner; raises NotIdentifiedError for a token that is not good."""
    again_as = _admitted_before(store, joiner, key_hash, now_ms)
    token = usable_token(store, joiner.secret, now_ms, used_before=bool(again_as))
    return Admission(token, again_as)


def _admitted_before(store: SqlTransaction, joiner: JoinAsked, key_hash: str, now_ms: int) -> str:
    """The identity that the holder of a key got with a token: its answer may have been lost on the way.

    An agent that names another identity than then does not ask again: it wants to be a second agent.
    """
    token = store.join_token(secret_hash(joiner.secret))
    if token is None:
        return ""
    for each in store.certificates():
        own = (each.token_id, each.public_key_hash) == (token.token_id, key_hash)
        valid = not each.withdrawn_at_ms and each.expires_at_ms > now_ms
        named = token.role.kind is IdentityKind.PERSON or each.identity_id == joiner.identity_id
        if own and valid and named:
            return each.identity_id
    return ""


def whom_to_admit(
    store: SqlTransaction, admitted: Admission, joiner: JoinAsked, key_hash: str, now_ms: int
) -> Identity:
    """Whom the joiner becomes; raises NotPermittedError if that is another's identity."""
    token = admitted.token
    if token.role.kind is IdentityKind.PERSON:
        if joiner.identity_id:
            raise ParameterError(
                f"join token {token.token_id}",
                "the token is for a person",
                "a person joins with: assay lab login",
            )
        name = token.name
        identity_id = admitted.again_as or person_named(store, name) or uuid.uuid4().hex
    else:
        name, identity_id = checked_name(joiner.name, "agent's name") or token.name, joiner.identity_id
        if not IDENTITY_ID.fullmatch(identity_id):
            raise ParameterError(
                "agent", "its identity is not 32 hexadecimal digits", "join with: assay-agent join"
            )
    known = store.identity(identity_id)
    if token.role.kind is IdentityKind.AGENT:
        require_free_name(store, identity_id, name)
        if known is None:
            require_vouched(store, identity_id, token.name)
    if known is None:
        return Identity(
            identity_id, token.role.kind, name, token.role, token.project, token.labels, created_at_ms=now_ms
        )
    _require_the_tokens(known, token)
    if known.kind is IdentityKind.PERSON:
        _require_not_withdrawn(store, known, key_hash)
        return known
    require_own_key(store, known, key_hash)
    return replace(known, name=name, project=token.project, labels=token.labels)


def _require_the_tokens(known: Identity, token: StoredToken) -> None:
    """Raise NotPermittedError unless the token may admit somebody as this identity."""
    subject = f"{known.kind} {known.identity_id}"
    if known.kind is IdentityKind.PERSON and known.kind is token.role.kind and known.role is not token.role:
        raise NotPermittedError(
            f"person {known.name}",
            f"this identity has the role {known.role}, and the token is for a {token.role}",
            "ask an admin of the lab for a new one (assay admin token)",
        )
    if known.kind is token.role.kind and not known.revoked_at_ms:
        return
    raise NotPermittedError(
        subject,
        "this identity was revoked" if known.revoked_at_ms else "this identity is not an agent's",
        "ask an admin of the lab for a new token"
        if known.kind is IdentityKind.PERSON
        else "give the box a new identity with: assay-agent new-identity, and join again",
    )


def require_own_key(store: SqlTransaction, identity: Identity, key_hash: str) -> None:
    """Raise NotPermittedError unless the identity has a certificate of this key, and none was withdrawn."""
    _require_not_withdrawn(store, identity, key_hash)
    if not any(each.public_key_hash == key_hash for each in store.certificates(identity.identity_id)):
        raise _refused(identity, "this identity belongs to another key")


def holder_of_expired(
    store: SqlTransaction, identity_id: str, key_hash: str, now_ms: int, grace: timedelta
) -> Identity:
    """The identity, if its newest certificate of this key ended less than ``grace`` ago or is still valid.

    Raises NotIdentifiedError for an unknown identity or another key, NotPermittedError for a revoked one.
    """
    identity = store.identity(identity_id)
    own = [each for each in store.certificates(identity_id) if each.public_key_hash == key_hash]
    if identity is None or not own:
        raise _not_renewed("this server has issued no certificate for its key")
    if identity.revoked_at_ms:
        raise _refused(identity, "this identity was revoked")
    _require_not_withdrawn(store, identity, key_hash)
    if max(each.expires_at_ms for each in own) + grace.total_seconds() * 1000 <= now_ms:
        raise _not_renewed(f"its certificate expired longer ago than {grace.total_seconds() / 86_400:g} days")
    return identity


def _not_renewed(cause: str) -> NotIdentifiedError:
    return NotIdentifiedError("renewal", cause, "join again with a new token of an admin; the identity stays")


def _require_not_withdrawn(store: SqlTransaction, identity: Identity, key_hash: str) -> None:
    own = [each for each in store.certificates(identity.identity_id) if each.public_key_hash == key_hash]
    if any(each.withdrawn_at_ms for each in own):
        raise _refused(identity, "the certificates of this key were withdrawn")


def _refused(identity: Identity, cause: str) -> NotPermittedError:
    remedy = "if this box is another one, or has lost its key: assay-agent new-identity, and join again"
    if identity.kind is IdentityKind.PERSON:
        remedy = "log in again with a new token, on a machine that makes a new key"
    return NotPermittedError(f"{identity.kind} {identity.name or identity.identity_id}", cause, remedy)


def require_free_name(store: SqlTransaction, agent_id: str, name: str) -> None:
    """Raises NotPermittedError if another agent has this name; an agent keeps a name that it has already.

    Revoked agents have no name any more.
    """
    identities = {each.identity_id: each for each in store.identities() if each.kind is IdentityKind.AGENT}
    names = {each.agent_id: {each.name} for each in store.agents()}
    for each in identities.values():
        names.setdefault(each.identity_id, set()).add(each.name)
    if not name or name in names.pop(agent_id, ()):
        return
    alike = _alike(name)
    for other, theirs in sorted(names.items()):
        identity = identities.get(other)
        if alike in map(_alike, theirs) and (identity is None or not identity.revoked_at_ms):
            remedy = "give it another with --name"
            if identity is not None:
                remedy += (
                    f"; if the other box is gone, an admin frees its name with: assay admin revoke {other}"
                )
            raise NotPermittedError(f"agent {name!r}", f"another agent has this name: {other}", remedy)


def require_vouched(store: SqlTransaction, agent_id: str, token_name: str) -> None:
    """Raises NotPermittedError for the id of an agent that only ever used the server's socket.

    Nobody can tell whether the joiner is that agent, so the token must be for it, by its name or id.
    """
    agent = store.agent(agent_id)
    if agent is None or token_name in (agent.name, agent.agent_id):
        return
    raise NotPermittedError(
        f"agent {agent_id}",
        f"the agent {agent.name!r} with this id has worked for this server without a certificate",
        f"if it is this box, ask an admin for its own token: assay admin token --role agent --name "
        f"{agent.name}; if not: assay-agent new-identity, and join again",
    )


def _alike(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()
