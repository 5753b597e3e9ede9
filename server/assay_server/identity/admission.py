"""Join tokens, and whom they admit, or the key of a certificate that has expired: whose identity that is.

Names and ids of agents are theirs alone: nobody gets those of another agent by asking. People find boxes by
name in ``assay lab agents``, statuses and reports, so names that look alike count as one.
"""

from __future__ import annotations

import secrets
import unicodedata
import uuid
from dataclasses import replace
from datetime import timedelta

from assay_core.identity.certificates import IDENTITY_ID
from assay_core.identity.join_token import JoinToken, secret_hash
from assay_core.identity.roles import OWNER_NAME, IdentityKind, Role
from assay_core.records.identity import JoinAsked, TokenAsked
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, ParameterError
from assay_server.identity.authority import Authority
from assay_server.store.people import Identity, StoredCertificate, StoredToken
from assay_server.store.sql import SqlTransaction

LONGEST_NAME = 64
MOST_LABELS, MOST_USES = 16, 1000
LONGEST_VALIDITY_MS = 30 * 86_400_000
_KEPT_MS = 7 * 86_400_000
_SUBJECT = "join token"
_NEW = "ask an admin of the lab for a new one (assay admin token)"


def make_token(
    store: SqlTransaction, authority: Authority, request: TokenAsked, now_ms: int
) -> tuple[str, StoredToken]:
    """A new token: its text, known only now, and what is kept of it.

    Raises ParameterError if nobody could join with it as intended.
    """
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
    return token.text, stored


def usable_token(
    store: SqlTransaction, joiner: JoinAsked, key_hash: str, now_ms: int
) -> tuple[StoredToken, str]:
    """The token that admits a joiner, and the identity that it got with it before; "" for a first join.

    Who has joined with a used token asks again: the answer may have been lost on the way. Raises
    NotIdentifiedError if the token is unknown, expired or used up.
    """
    token = store.join_token(secret_hash(joiner.secret))
    if token is None:
        raise NotIdentifiedError(_SUBJECT, "this server did not make it, or it expired long ago", _NEW)
    subject = f"{_SUBJECT} {token.token_id}"
    if now_ms >= token.expires_at_ms:
        raise NotIdentifiedError(subject, "it has expired", _NEW)
    again_as = _admitted_before(store, token, joiner, key_hash, now_ms)
    if token.uses_left <= 0 and not again_as:
        raise NotIdentifiedError(subject, "it was used as often as it may be, or withdrawn", _NEW)
    return token, again_as


def _admitted_before(
    store: SqlTransaction, token: StoredToken, joiner: JoinAsked, key_hash: str, now_ms: int
) -> str:
    """The identity that the holder of a key got with a token.

    An agent that names another identity than then does not ask again: it wants to be a second agent.
    """
    for each in store.certificates():
        own = (each.token_id, each.public_key_hash) == (token.token_id, key_hash)
        valid = not each.withdrawn_at_ms and each.expires_at_ms > now_ms
        if own and valid and (_is_persons(token) or each.identity_id == joiner.identity_id):
            return each.identity_id
    return ""


def whom_to_admit(
    store: SqlTransaction, token: StoredToken, joiner: JoinAsked, key_hash: str, now_ms: int, *, again_as: str
) -> Identity:
    """Whom the joiner becomes; raises NotPermittedError if that is another's identity."""
    if _is_persons(token):
        if joiner.identity_id:
            raise ParameterError(
                f"join token {token.token_id}",
                "the token is for a person",
                "a person joins with: assay lab login",
            )
        name = token.name
        identity_id = again_as or person_named(store, name) or uuid.uuid4().hex
    else:
        name, identity_id = checked_name(joiner.name, "agent's name") or token.name, joiner.identity_id
        if not IDENTITY_ID.fullmatch(identity_id):
            raise ParameterError(
                "agent", "its identity is not 32 hexadecimal digits", "join with: assay-agent join"
            )
        require_free_name(store, identity_id, name)
    identity = store.identity(identity_id)
    if identity is None:
        if not _is_persons(token):
            require_vouched(store, identity_id, token.name)
        return Identity(
            identity_id, token.role.kind, name, token.role, token.project, token.labels, created_at_ms=now_ms
        )
    _require_the_tokens(identity, token)
    if _is_persons(token):
        _require_not_withdrawn(identity, _of_key(store, identity_id, key_hash))
        return identity
    require_own_key(store, identity, key_hash)
    return replace(identity, name=name, project=token.project, labels=token.labels)


def _is_persons(token: StoredToken) -> bool:
    return token.role.kind is IdentityKind.PERSON


def person_named(store: SqlTransaction, name: str) -> str:
    """The id of the person with a name whose identity was not revoked; "": nobody has that name."""
    people = (each for each in store.identities() if each.kind is IdentityKind.PERSON)
    return next((each.identity_id for each in people if each.name == name and not each.revoked_at_ms), "")


def _require_the_tokens(identity: Identity, token: StoredToken) -> None:
    """Raise NotPermittedError unless the token may admit somebody as this identity."""
    is_person, same_kind = identity.kind is IdentityKind.PERSON, identity.kind is token.role.kind
    if is_person and same_kind and identity.role is not token.role:
        raise NotPermittedError(
            f"person {identity.name}",
            f"this identity has the role {identity.role}, and the token is for a {token.role}",
            _NEW,
        )
    if identity.revoked_at_ms or not same_kind:
        raise NotPermittedError(
            f"{identity.kind} {identity.identity_id}",
            "this identity was revoked" if identity.revoked_at_ms else "this identity is not an agent's",
            "ask an admin of the lab for a new token"
            if is_person
            else "give the box a new identity with: assay-agent new-identity, and join again",
        )


def require_own_key(store: SqlTransaction, identity: Identity, key_hash: str) -> None:
    """Raise NotPermittedError unless the identity has a certificate of this key, and none was withdrawn."""
    own = _of_key(store, identity.identity_id, key_hash)
    _require_not_withdrawn(identity, own)
    if not own:
        raise _refused(identity, "this identity belongs to another key")


def holder_of_expired(
    store: SqlTransaction, identity_id: str, key_hash: str, now_ms: int, grace: timedelta
) -> Identity:
    """The identity, if its newest certificate of this key ended less than ``grace`` ago or is still valid.

    Raises NotIdentifiedError for an unknown identity or another key, NotPermittedError for a revoked one.
    """
    identity = store.identity(identity_id)
    own = _of_key(store, identity_id, key_hash)
    if identity is None or not own:
        raise _not_renewed("this server has issued no certificate for its key")
    if identity.revoked_at_ms:
        raise _refused(identity, "this identity was revoked")
    _require_not_withdrawn(identity, own)
    if max(each.expires_at_ms for each in own) + grace.total_seconds() * 1000 <= now_ms:
        raise _not_renewed(f"its certificate expired longer ago than {grace.total_seconds() / 86_400:g} days")
    return identity


def _not_renewed(cause: str) -> NotIdentifiedError:
    return NotIdentifiedError("renewal", cause, "join again with a new token of an admin; the identity stays")


def _of_key(store: SqlTransaction, identity_id: str, key_hash: str) -> list[StoredCertificate]:
    return [each for each in store.certificates(identity_id) if each.public_key_hash == key_hash]


def _require_not_withdrawn(identity: Identity, of_key: list[StoredCertificate]) -> None:
    if any(each.withdrawn_at_ms for each in of_key):
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
    identity = store.identity(person_named(store, request.name))
    if identity is not None and identity.role is not request.role:
        raise ParameterError(
            "--role",
            f"{request.name} has the role {identity.role} already",
            f"give --role {identity.role}, or change the role first",
        )
