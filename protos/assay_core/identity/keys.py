"""Private keys: ECDSA on the curve P-256, which every TLS library of gRPC accepts (Ed25519 it does not)."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_sampling.errors import ParameterError

PrivateKey = ec.EllipticCurvePrivateKey


def new_key() -> PrivateKey:
    """A new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """The key as PEM (PKCS #8), not encrypted: it belongs into files of mode 0600."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes, subject: str) -> PrivateKey:
    """The key in a PEM; raises ParameterError, naming ``subject``, for anything else."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ParameterError(subject, "it does not hold a private key that can be read") from error
    if not is_our_kind(key):
        raise ParameterError(subject, "its private key is not an ECDSA key on the curve P-256")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def is_our_kind(key: object) -> bool:
    """Whether a private or public key is ECDSA on P-256."""
    kinds = (ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey)
    return isinstance(key, kinds) and isinstance(key.curve, ec.SECP256R1)


def public_key_hash(key: object) -> str:
    """SHA-256 of a public key (DER SubjectPublicKeyInfo), in hexadecimal.

    Raises ParameterError for a key of another kind.
    """
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_our_kind(key):
        raise ParameterError("public key", "it is not an ECDSA key on the curve P-256")
    return hashlib.sha256(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()
