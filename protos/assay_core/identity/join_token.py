"""Join tokens: what somebody is given to enrol with a server once.

    assay-join-1.<base64url of: 32 bytes of secret | authority's certificate (DER) | 8 bytes of checksum>

The authority's certificate travels in the token, so that the very first connection is checked against it and
nothing, not even the secret, is sent to an impostor. The checksum (of SHA-256) tells a mistyped token from an
expired one; it protects nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass, field

from assay_core.identity.certificates import (
    MOST_CERTIFICATE_BYTES,
    certificate_pem,
    fingerprint_of_der,
    read_certificate,
)
from assay_sampling.errors import ParameterError

PREFIX = "assay-join-1."
SECRET_BYTES = 32
_CHECKSUM_BYTES = 8
_MOST_CHARACTERS = 2 * MOST_CERTIFICATE_BYTES
_SUBJECT = "join token"
_COPY = "copy the whole token as it was printed, or ask for a new one: assay admin token"


@dataclass(frozen=True)
class JoinToken:
    """A token, read. ``authority``: the certificate of the server's authority, DER."""

    secret: bytes = field(repr=False)
    authority: bytes

    @classmethod
    def new(cls, authority: bytes) -> JoinToken:
        """A token with a new random secret."""
        return cls(secrets.token_bytes(SECRET_BYTES), authority)

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Read a token; raises ParameterError, which never quotes it, if it is damaged or none at all."""
        text = text.strip()
        if not text.startswith(PREFIX):
            raise ParameterError(
                _SUBJECT, f"it does not begin with {PREFIX!r}, as the tokens of this release do", _COPY
            )
        data = _decoded(text.removeprefix(PREFIX))
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if len(body) <= SECRET_BYTES or not secrets.compare_digest(_checksum(body), checksum):
            raise ParameterError(_SUBJECT, "it is damaged: a character is wrong or missing", _COPY)
        token = cls(body[:SECRET_BYTES], body[SECRET_BYTES:])
        read_certificate(token.authority, _SUBJECT)
        return token

    @property
    def text(self) -> str:
        """The token as it is handed over; who has it can enrol."""
        body = self.secret + self.authority
        return PREFIX + base64.urlsafe_b64encode(body + _checksum(body)).decode().rstrip("=")

    @property
    def secret_hash(self) -> str:
        """SHA-256 of the secret, in hexadecimal: all that the server keeps of it."""
        return secret_hash(self.secret)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the authority, SHA-256 in hexadecimal."""
        return fingerprint_of_der(self.authority)

    @property
    def authority_pem(self) -> bytes:
        """The authority's certificate, as TLS libraries take it."""
        return certificate_pem(read_certificate(self.authority, _SUBJECT))


def secret_hash(secret: bytes) -> str:
    """SHA-256 of a token's secret, in hexadecimal; a plain hash is enough for 256 random bits."""
    return hashlib.sha256(secret).hexdigest()


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(PREFIX.encode() + body).digest()[:_CHECKSUM_BYTES]


def _decoded(text: str) -> bytes:
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("too long")
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise ParameterError(_SUBJECT, "it is damaged: it is not base64url", _COPY) from error
    # The last character has unused bits, which would make several texts of one token.
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise ParameterError(_SUBJECT, "it is damaged: a character is wrong", _COPY)
    return data
