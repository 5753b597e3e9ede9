"""Certificates (X.509 v3) and requests for them (PKCS #10), as Assay makes and reads them.

An agent's or a person's certificate has the identity's id as its common name and ``assay:agent:ID`` or
``assay:person:ID`` as the URI of its subjectAltName, and may be used by a TLS client only. A server's has the
DNS name ``assay-server`` and may be used by a TLS server only, so that no client can pose as the server.
Sources: RFC 5280 sections 4.2.1.6 and 4.2.1.12, RFC 2986; docs/security.md.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from assay_core.identity.keys import PrivateKey, is_our_kind
from assay_core.identity.roles import IdentityKind
from assay_sampling.errors import ParameterError

# The name that a server proves and clients ask for, whatever address they reach it at.
SERVER_NAME = "assay-server"
# What an identity's id may consist of.
IDENTITY_ID = re.compile(r"[0-9a-f]{32}")
MOST_CERTIFICATE_BYTES = 4096
_URI = re.compile(r"assay:([a-z]+):([0-9a-f]{32})")
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True)
class CertifiedIdentity:
    """What a certificate proves: whose it is, and which certificate of that identity it is.

    ``serial``: the certificate's serial number in hexadecimal. Times are Unix milliseconds.
    """

    kind: IdentityKind
    identity_id: str
    serial: str
    not_before_ms: int
    not_after_ms: int


def identity_uri(kind: IdentityKind, identity_id: str) -> str:
    """The URI that names an identity in its certificates."""
    return f"assay:{kind}:{identity_id}"


def certified_identity(certificate: x509.Certificate) -> CertifiedIdentity:
    """Whose a certificate is; raises ParameterError if it names no identity of Assay, or two.

    Whether the authority signed it is checked by TLS, before anybody asks this.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, *_UNREADABLE) as error:
        raise ParameterError("certificate", "it names no identity of Assay") from error
    matches = [_URI.fullmatch(uri) for uri in uris]
    if len(matches) != 1 or matches[0] is None or matches[0][1] not in set(IdentityKind):
        raise ParameterError("certificate", "it names no identity of Assay, or more than one")
    return CertifiedIdentity(
        IdentityKind(matches[0][1]),
        matches[0][2],
        serial_text(certificate),
        _ms(certificate.not_valid_before_utc),
        _ms(certificate.not_valid_after_utc),
    )


def serial_text(certificate: x509.Certificate) -> str:
    """A certificate's serial number, in hexadecimal."""
    return f"{certificate.serial_number:x}"


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate (DER), in hexadecimal: what people compare."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def fingerprint_of_der(der: bytes) -> str:
    """The :func:`fingerprint` of a certificate's bytes, which are not read."""
    return hashlib.sha256(der).hexdigest()


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate_der(certificate: x509.Certificate) -> bytes:
    """A certificate as DER."""
    return certificate.public_bytes(serialization.Encoding.DER)


def read_certificate(data: bytes, subject: str) -> x509.Certificate:
    """A certificate in PEM or DER; raises ParameterError, naming ``subject``, for anything else."""
    try:
        if len(data) > MOST_CERTIFICATE_BYTES:
            raise ValueError("too long")
        if data.startswith(b"-----"):
            return x509.load_pem_x509_certificate(data)
        return x509.load_der_x509_certificate(data)
    except _UNREADABLE as error:
        raise ParameterError(subject, "it does not hold a certificate that can be read") from error


def certificate_request(key: PrivateKey) -> bytes:
    """A request (DER) for a certificate of a key, signed with the key.

    It names nobody: the server decides whose certificate it is.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "assay")])
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def read_request(der: bytes) -> x509.CertificateSigningRequest:
    """A request whose sender has the private key; raises ParameterError for anything else."""
    subject = "certificate request"
    try:
        if len(der) > MOST_CERTIFICATE_BYTES:
            raise ValueError("too long")
        request = x509.load_der_x509_csr(der)
        ours = is_our_kind(request.public_key()) and request.is_signature_valid
    except _UNREADABLE as error:
        raise ParameterError(subject, "it cannot be read") from error
    if not ours:
        raise ParameterError(subject, "it is not signed with an ECDSA key on the curve P-256")
    return request


def renewal_ms(not_before_ms: int, not_after_ms: int) -> int:
    """When a certificate is renewed, Unix milliseconds: when a third of its validity is left.

    So a certificate of 24 hours outlives a server that is away for 8.
    """
    return not_before_ms + (not_after_ms - not_before_ms) * 2 // 3


def _ms(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)
