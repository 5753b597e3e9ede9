"""The certificate authority in a backup: its key is there only encrypted with a passphrase.

The key is PKCS #8 with PBES2 (cryptography's ``BestAvailableEncryption``): whoever has the backup and not the
passphrase can certify nobody.
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_core.files.durable import storage_errors
from assay_core.identity.certificates import read_certificate
from assay_sampling.errors import ParameterError, StorageError
from assay_server.identity.authority import Authority

CERTIFICATE, ENCRYPTED_KEY = "authority/certificate.pem", "authority/key.encrypted.pem"
_LEAST_CHARACTERS = 12


def read_passphrase(path: Path) -> bytes:
    """The passphrase in the first line of a file; raises StorageError, or ParameterError if it is short."""
    with storage_errors(path):
        lines = path.read_bytes().splitlines()
    passphrase = lines[0] if lines else b""
    if len(passphrase) < _LEAST_CHARACTERS:
        raise ParameterError(
            "--passphrase-file",
            f"the first line of {path} has {len(passphrase)} characters",
            f"write a passphrase of at least {_LEAST_CHARACTERS}",
        )
    return passphrase


def encrypted_key(authority: Authority, passphrase: bytes) -> bytes:
    """The authority's private key as PEM, encrypted."""
    return authority.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase),
    )


def decrypted_authority(certificate: bytes, key: bytes, passphrase: bytes, place: Path) -> Authority:
    """The authority of a backup; raises ParameterError for another passphrase."""
    authority_certificate: x509.Certificate = read_certificate(certificate, str(place / CERTIFICATE))
    try:
        private = serialization.load_pem_private_key(key, password=passphrase)
    except (ValueError, TypeError) as error:
        raise ParameterError(
            "--passphrase-file",
            "it is not the passphrase that the backup was made with",
            "give that one; without the authority (--without-authority) everybody enrols again",
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise StorageError(str(place / ENCRYPTED_KEY), "it does not hold a key of ours", "use another backup")
    return Authority(authority_certificate, private)
