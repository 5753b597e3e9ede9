"""Revocation: of an identity, a token, or the certificates of one key."""

from __future__ import annotations

from dataclasses import replace

from assay_core.identity.roles import IdentityKind
from assay_core.records.identity import NamedForRevocation, Revoked
from assay_sampling.errors import ParameterError
from assay_server.store.people import Identity, StoredCertificate
from assay_server.store.sql import SqlTransaction


def revoke(store: SqlTransaction, request: NamedForRevocation, now_ms: int) -> Revoked:
    """Revoke what is named, and say with which open tokens it has joined: with them it would come back.

    With ``request.tokens`` they are withdrawn, too. Raises ParameterError.
    """
    revoked, joined_with = _revoke(store, request.subject, now_ms)
    used = {each.token_id for each in joined_with}
    tokens = [
        each
        for each in store.join_tokens()
        if each.token_id in used and each.uses_left > 0 and each.expires_at_ms > now_ms
    ]
    if request.tokens:
        for each in tokens:
            store.put_join_token(replace(each, uses_left=0))
    names = tuple(each.token_id for each in tokens)
    return replace(revoked, tokens=names, tokens_withdrawn=request.tokens)


def withdraw_key(store: SqlTransaction, serial: str, now_ms: int) -> list[StoredCertificate]:
    """Withdraw every certificate of the key of one, by its serial number; returns those withdrawn, maybe [].

    One key has several certificates, by renewal: whoever has the key has them all.
    """
    everything = store.certificates()
    certificate = next((each for each in everything if each.serial == serial), None)
    if certificate is None:
        return []
    whose = (certificate.identity_id, certificate.public_key_hash)
    of_the_key = [each for each in everything if (each.identity_id, each.public_key_hash) == whose]
    for each in of_the_key:
        store.put_certificate(replace(each, withdrawn_at_ms=each.withdrawn_at_ms or now_ms))
    return of_the_key


def _revoke(store: SqlTransaction, subject: str, now_ms: int) -> tuple[Revoked, list[StoredCertificate]]:
    """What was revoked, with its certificates.

    Ids come before names: agents choose their names, and one could be another's id.
    """
    token = next((each for each in store.join_tokens() if each.token_id == subject), None)
    if token is not None:
        store.put_join_token(replace(token, uses_left=0))
        return Revoked("token", token.token_id, token.name), []
    identity = store.identity(subject)
    if identity is not None:
        return _revoke_identity(store, identity, now_ms)
    serial = subject.lower()
    of_the_key = withdraw_key(store, serial, now_ms)
    if not of_the_key:
        return _revoke_identity(store, _only_one_named(store, subject), now_ms)
    owner = store.identity(of_the_key[0].identity_id)
    return Revoked("certificate", serial, owner.name if owner is not None else ""), of_the_key


def _revoke_identity(
    store: SqlTransaction, identity: Identity, now_ms: int
) -> tuple[Revoked, list[StoredCertificate]]:
    """Revoke it; a person's open tokens go too, or they would come back as somebody new."""
    store.put_identity(replace(identity, revoked_at_ms=identity.revoked_at_ms or now_ms))
    if identity.kind is IdentityKind.PERSON:
        for token in store.join_tokens():
            if token.role.kind is IdentityKind.PERSON and token.name == identity.name and token.uses_left:
                store.put_join_token(replace(token, uses_left=0))
    revoked = Revoked("identity", identity.identity_id, identity.name)
    return revoked, store.certificates(identity.identity_id)


def _only_one_named(store: SqlTransaction, name: str) -> Identity:
    """The identity with a name, one that was not revoked first; raises ParameterError."""
    named = [each for each in store.identities() if name and each.name == name]
    named = [each for each in named if not each.revoked_at_ms] or named
    if len(named) > 1:
        listed = ", ".join(each.identity_id for each in named)
        raise ParameterError(name, f"{len(named)} identities have this name: {listed}", "give an id")
    if not named:
        raise ParameterError(
            name[:80],
            "it is no identity, token or certificate of this server",
            "list them with: assay admin identities",
        )
    return named[0]
