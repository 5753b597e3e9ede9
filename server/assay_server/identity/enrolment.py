"""Joining, renewal and revocation: who gets a certificate, and who does not any more.

Source: docs/security.md, "Identities".
"""

from __future__ import annotations

import datetime
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from assay_core.identity.certificates import certificate_der, certified_identity, read_request
from assay_core.identity.keys import public_key_hash
from assay_core.identity.roles import IdentityKind
from assay_core.records.identity import (
    Identities,
    IdentitiesAsked,
    Issued,
    JoinAsked,
    Joined,
    KnownIdentity,
    LeaveAsked,
    Left,
    NamedForRevocation,
    OpenToken,
    RenewalAsked,
    Renewed,
    Revoked,
    TokenAsked,
    TokenMade,
)
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, ParameterError, RefusedError
from assay_server.access.audit import note_subject
from assay_server.access.caller import IdentityDirectory, current_caller
from assay_server.clock import wall_ms
from assay_server.identity.admission import (
    holder_of_expired,
    make_token,
    require_own_key,
    usable_token,
    whom_to_admit,
)
from assay_server.identity.authority import Authority
from assay_server.store.people import Identity, StoredCertificate, StoredToken
from assay_server.store.sql import MetadataStore, SqlTransaction

_log = logging.getLogger(__name__)

# Expired certificates are kept this long, to say whose they were; the newest of an identity for ever, because
# its key proves who joins again.
_KEPT_MS = 30 * 86_400_000
# Certificates of one key in a 24th of their validity, an hour say: whoever crashes often gets as many.
_MOST_RENEWALS, _RENEWAL_SPANS = 8, 24


class Enrolment:
    """Answers everything about identities. Plain functions of a record; may block.

    Args:
        metadata: the store of identities, tokens and certificates.
        directory: identities and withdrawn certificates in memory, read again after each change.
        authority: signs; None: ``assay-server init`` was not run, so nobody can join.
        validity: of the certificates of agents and people.
        grace: how long after its end a certificate can still be renewed.
        now_ms: the wall clock, by which tokens and certificates expire.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        directory: IdentityDirectory,
        authority: Authority | None,
        validity: datetime.timedelta,
        *,
        grace: datetime.timedelta = datetime.timedelta(days=7),
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._metadata = metadata
        self._directory = directory
        self._given_authority = authority
        self._validity = validity
        self._grace = grace
        self._now_ms = now_ms
        # Where members connect, and where people join; known once the server listens.
        self.port = 0
        self.join_port = 0
        # The name under which joiners reach it, if that is another one.
        self.join_address = ""

    def join(self, joiner: JoinAsked) -> Joined:
        """Admit the holder of a join token; the token is used up in the same transaction.

        Raises NotIdentifiedError for a token that is not good, NotPermittedError for an identity that is
        another's, ParameterError for a request that cannot be read.
        """
        key = read_request(joiner.certificate_request).public_key()
        key_hash, now_ms = public_key_hash(key), self._now_ms()
        with self._metadata.snapshot() as read:
            # Strangers with a bad token do not get as far as the lock of those who write.
            usable_token(read, joiner, key_hash, now_ms)
        with self._metadata.transaction() as store:
            token, again_as = usable_token(store, joiner, key_hash, now_ms)
            identity = whom_to_admit(store, token, joiner, key_hash, now_ms, again_as=again_as)
            store.put_identity(identity)
            certificate = self._issue(store, identity, key, now_ms, token.token_id)
            if not again_as:
                store.put_join_token(replace(token, uses_left=token.uses_left - 1))
            note_subject(_text_of(identity), f"{identity.role}, with token {token.token_id}")
        self._directory.refresh()
        _log.info("%s joined with token %s", _text_of(identity), token.token_id)
        return Joined(certificate, identity.name, identity.role, self.port)

    def renew(self, renewal: RenewalAsked) -> Renewed:
        """The next certificate of the caller, for a key of its own that it has a certificate of."""
        caller = current_caller()
        if caller is None or caller.is_owner:
            raise NotIdentifiedError(
                "renewal", "the caller has no certificate to renew", "connect with a certificate"
            )
        key = read_request(renewal.certificate_request).public_key()
        key_hash, now_ms = public_key_hash(key), self._now_ms()
        with self._metadata.transaction() as store:
            identity = store.identity(caller.identity_id)
            if identity is None or identity.revoked_at_ms:
                raise NotPermittedError(
                    f"identity {caller.identity_id}", "it was revoked", "ask an admin of the lab"
                )
            require_own_key(store, identity, key_hash)
            self._require_seldom(store, identity, key_hash, now_ms)
            certificate = self._issue(store, identity, key, now_ms)
        return Renewed(certificate)

    def renew_expired(self, renewal: RenewalAsked) -> Renewed:
        """The next certificate of a key whose last one ended within the grace period.

        Nobody knows the caller: the request is signed by the key, which proves whose it is. Raises
        NotIdentifiedError for a key without such a certificate of the identity, NotPermittedError for a
        revoked one, ParameterError for a request that cannot be read.
        """
        key = read_request(renewal.certificate_request).public_key()
        key_hash, now_ms = public_key_hash(key), self._now_ms()
        with self._metadata.snapshot() as read:
            # Strangers do not get as far as the lock of those who write.
            holder_of_expired(read, renewal.identity_id, key_hash, now_ms, self._grace)
        with self._metadata.transaction() as store:
            identity = holder_of_expired(store, renewal.identity_id, key_hash, now_ms, self._grace)
            self._require_seldom(store, identity, key_hash, now_ms)
            certificate = self._issue(store, identity, key, now_ms)
            note_subject(_text_of(identity), "after its certificate expired")
        _log.info("%s renewed an expired certificate", _text_of(identity))
        return Renewed(certificate)

    def leave(self, _request: LeaveAsked) -> Left:
        """Withdraw the certificates of the key that the caller uses.

        Raises NotIdentifiedError for who has none, on the socket.
        """
        caller = current_caller()
        if caller is None or not caller.serial:
            raise NotIdentifiedError(
                "leaving", "the caller has no certificate to withdraw", "connect with a certificate"
            )
        now_ms = self._now_ms()
        with self._metadata.transaction() as store:
            withdraw_key(store, caller.serial, now_ms)
            note_subject(f"certificate {caller.serial} {caller.name}".rstrip())
        self._directory.refresh()
        _log.info("%s logged out: certificate %s is withdrawn", caller.name, caller.serial)
        return Left(caller.serial)

    def make_token(self, request: TokenAsked) -> TokenMade:
        """A new join token; only its hash is kept."""
        authority = self._authority
        with self._metadata.transaction() as store:
            text, stored = make_token(store, authority, request, self._now_ms())
            note_subject(f"token {stored.token_id}", f"{stored.role} {stored.name}, {stored.uses_left} uses")
        return TokenMade.like(stored, self, token=text, fingerprint=authority.fingerprint)

    def revoke(self, request: NamedForRevocation) -> Revoked:
        """Withdraw a token, an identity, or the certificates of one key; raises ParameterError.

        It holds at once in this process, and for streams under way within seconds.
        """
        now_ms = self._now_ms()
        with self._metadata.transaction() as store:
            revoked = revoke(store, request, now_ms)
            tokens = f"with tokens {', '.join(revoked.tokens)}" if revoked.tokens_withdrawn else ""
            note_subject(f"{revoked.what} {revoked.id} {revoked.name}".rstrip(), tokens)
        self._directory.refresh()
        _log.info("revoked %s %s %s", revoked.what, revoked.id, revoked.name)
        return revoked

    def identities(self, _request: IdentitiesAsked) -> Identities:
        """All identities with their certificates, and the tokens that can still be used."""
        now_ms = self._now_ms()
        with self._metadata.snapshot() as store:
            issued = [each for each in store.certificates() if each.expires_at_ms > now_ms]
            identities = store.identities()
            tokens = tuple(OpenToken.like(each) for each in _open_tokens(store, now_ms))
        certificates: defaultdict[str, tuple[Issued, ...]] = defaultdict(tuple)
        for each in issued:
            certificates[each.identity_id] += (Issued.like(each),)
        return Identities(
            tuple(
                KnownIdentity.like(each, certificates=certificates[each.identity_id]) for each in identities
            ),
            tokens,
        )

    def _require_seldom(self, store: SqlTransaction, identity: Identity, key_hash: str, now_ms: int) -> None:
        """Each certificate is kept until it has expired: nobody fills the database with theirs."""
        since_ms = now_ms - self._validity.total_seconds() * 1000 / _RENEWAL_SPANS
        recent = [
            each
            for each in store.certificates(identity.identity_id)
            if each.public_key_hash == key_hash and each.issued_at_ms > since_ms
        ]
        if len(recent) >= _MOST_RENEWALS:
            raise RefusedError(
                f"{identity.kind} {identity.name or identity.identity_id}",
                f"its certificate was renewed {len(recent)} times a moment ago",
                "use the newest; a certificate is renewed when a third of its validity is left",
            )

    @property
    def _authority(self) -> Authority:
        if self._given_authority is None:
            raise ParameterError(
                "this server",
                "it has no certificate authority, so nobody can join it",
                "make one with: assay-server init --state DIR, and start the server again",
            )
        return self._given_authority

    def _issue(
        self,
        store: SqlTransaction,
        identity: Identity,
        key: CertificatePublicKeyTypes,
        now_ms: int,
        token_id: str = "",
    ) -> bytes:
        """A certificate (DER) for an identity, recorded."""
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        certificate = self._authority.issue(key, identity.kind, identity.identity_id, self._validity, now)  # type: ignore[arg-type]
        for old in store.certificates(identity.identity_id):
            if old.expires_at_ms < now_ms - _KEPT_MS and not old.withdrawn_at_ms:
                store.forget_certificate(old.serial)
        issued = certified_identity(certificate)
        store.put_certificate(
            StoredCertificate(
                issued.serial,
                identity.identity_id,
                public_key_hash(key),
                now_ms,
                issued.not_after_ms,
                token_id,
            )
        )
        return certificate_der(certificate)


def _text_of(identity: Identity) -> str:
    return f"{identity.kind} {identity.name} ({identity.identity_id})"


def revoke(store: SqlTransaction, request: NamedForRevocation, now_ms: int) -> Revoked:
    """Revoke what is named, and say with which open tokens it has joined: with them it would come back.

    With ``request.tokens`` they are withdrawn, too. Raises ParameterError.
    """
    revoked, joined_with = _revoke(store, request.subject, now_ms)
    used = {each.token_id for each in joined_with}
    tokens = [each for each in _open_tokens(store, now_ms) if each.token_id in used]
    if request.tokens:
        for each in tokens:
            store.put_join_token(replace(each, uses_left=0))
    names = tuple(each.token_id for each in tokens)
    return replace(revoked, tokens=names, tokens_withdrawn=request.tokens)


def _open_tokens(store: SqlTransaction, now_ms: int) -> list[StoredToken]:
    return [each for each in store.join_tokens() if each.uses_left > 0 and each.expires_at_ms > now_ms]


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
