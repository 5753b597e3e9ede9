"""Credentials: one's private key and certificate, the authority that issued it, and the server they are for.

They are one file of mode 0600, ``credentials.json``, replaced in one step, so that a crash during a renewal
leaves either certificate, never a key without its certificate. Until a joiner has them, its key is in a file
of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from assay_core.files.durable import make_folder, storage_errors, write_atomically
from assay_core.identity.certificates import (
    CertifiedIdentity,
    certificate_pem,
    certified_identity,
    fingerprint,
    read_certificate,
    renewal_ms,
)
from assay_core.identity.keys import PrivateKey, key_pem, new_key, public_key_hash, read_key
from assay_sampling.errors import InputError, ParameterError

_FILE, _JOINING = "credentials.json", "joining-key.pem"
_AGAIN = "enrol again with a new token, which 'assay admin token' or 'assay-server token' makes"


class _Document(BaseModel):
    """The file. All PEM; ``server`` is the address to connect to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int
    server: str
    join: str = ""
    authority: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Credentials:
    """What its owner proves to a server, and what the server must prove.

    Args:
        server: the server's address, ``HOST:PORT``.
        authority: the certificate of the authority, PEM: the only one that is believed.
        certificate: one's own, PEM.
        key: one's own private key.
        join: where one joined, ``HOST:PORT``: an expired certificate is renewed there.
    """

    server: str
    authority: bytes
    certificate: bytes
    key: PrivateKey = field(repr=False)
    join: str = ""

    @property
    def identity(self) -> CertifiedIdentity:
        return certified_identity(read_certificate(self.certificate, "certificate"))

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    @property
    def authority_fingerprint(self) -> str:
        return fingerprint(read_certificate(self.authority, "authority"))

    @property
    def expired(self) -> bool:
        """Whether a server would refuse the certificate now, by this machine's clock."""
        return _now_ms() >= self.identity.not_after_ms

    @property
    def renewal_ms(self) -> int:
        """When to ask for the next certificate, Unix milliseconds."""
        identity = self.identity
        return renewal_ms(identity.not_before_ms, identity.not_after_ms)

    @property
    def renewal_due(self) -> bool:
        return _now_ms() >= self.renewal_ms

    def renewed(self, certificate: bytes) -> Credentials:
        """These credentials with a later certificate (DER) of the same key and identity.

        Raises ParameterError if it is for another key or identity: what the server sent is not for us.
        """
        renewed_certificate = read_certificate(certificate, "renewed certificate")
        if public_key_hash(renewed_certificate.public_key()) != public_key_hash(self.key.public_key()):
            raise ParameterError("renewed certificate", "it is for another key")
        now = certified_identity(renewed_certificate)
        if (now.kind, now.identity_id) != (self.identity.kind, self.identity.identity_id):
            raise ParameterError("renewed certificate", "it is for another identity")
        return replace(self, certificate=certificate_pem(renewed_certificate))


def new_credentials(
    server: str, authority: bytes, certificate: bytes, key: PrivateKey, join: str = ""
) -> Credentials:
    """The credentials of somebody who has just enrolled.

    Args:
        server: the server's address, ``HOST:PORT``.
        authority: the authority's certificate, DER, which the token named.
        certificate: the certificate that the server issued, DER.
        key: the private key whose request was sent.
        join: the address that was joined, ``HOST:PORT``.

    Raises ParameterError if the certificate is for another key, or names no identity.
    """
    issued_certificate = read_certificate(certificate, "issued certificate")
    if public_key_hash(issued_certificate.public_key()) != public_key_hash(key.public_key()):
        raise ParameterError("issued certificate", "it is for another key")
    certified_identity(issued_certificate)
    root = read_certificate(authority, "authority")
    return Credentials(server, certificate_pem(root), certificate_pem(issued_certificate), key, join)


class CredentialsFolder:
    """A private folder with the credentials for one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / _FILE
        self._joining = folder / _JOINING

    def write(self, credentials: Credentials) -> None:
        """Replace what is there; raises StorageError."""
        document = _Document(
            version=1,
            server=credentials.server,
            join=credentials.join,
            authority=credentials.authority.decode(),
            certificate=credentials.certificate.decode(),
            key=credentials.key_pem.decode(),
        )
        with storage_errors(self.path):
            make_folder(self.folder)
            write_atomically(self.path, document.model_dump_json(indent=2) + "\n")
            self._joining.unlink(missing_ok=True)  # it is the identity's key now

    def joining_key(self) -> PrivateKey:
        """The key to join with: one, made and kept at the first call, until there are credentials.

        A server that admitted this key, but whose answer was lost, knows it again, also after a restart of
        the joiner. A key that is damaged, or that other users may read, is replaced. Raises StorageError.
        """
        with storage_errors(self._joining):
            try:
                if not self._joining.stat().st_mode & 0o077:
                    return read_key(self._joining.read_bytes(), str(self._joining))
            except (FileNotFoundError, NotADirectoryError, ParameterError):
                pass
            made = new_key()
            make_folder(self.folder)
            write_atomically(self._joining, key_pem(made))
        return made

    def read(self) -> Credentials | None:
        """None if there are none; raises InputError if the file is damaged or open to other users."""
        try:
            mode = self.path.stat().st_mode
            text = self.path.read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(self.path, f"it cannot be read ({error})", _AGAIN) from error
        if mode & 0o077:
            raise InputError(
                self.path,
                f"other users may read the private key in it (mode {mode & 0o777:04o})",
                f"have the identity revoked and {_AGAIN}; if nobody has read it: chmod 600 {self.path}",
            )
        try:
            document = _Document.model_validate_json(text)
            credentials = Credentials(
                document.server,
                certificate_pem(read_certificate(document.authority.encode(), "authority")),
                certificate_pem(read_certificate(document.certificate.encode(), "certificate")),
                read_key(document.key.encode(), "key"),
                document.join,
            )
            _ = credentials.identity
        except (ValidationError, ParameterError) as error:
            cause = error.cause if isinstance(error, ParameterError) else "it is not such a document"
            raise InputError(self.path, cause, _AGAIN) from error
        return credentials

    def remove(self) -> bool:
        """Remove the credentials, and a key to join with; whether there were any. Raises StorageError."""
        with storage_errors(self.path):
            self._joining.unlink(missing_ok=True)
            had_credentials = self.path.exists()
            self.path.unlink(missing_ok=True)
        return had_credentials


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
