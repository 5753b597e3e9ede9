"""The lab's certificate authority: made once by ``assay-server init``, it signs every certificate.

``<state>/authority/`` holds ``certificate.pem`` and ``key.pem``, both mode 0600 in a folder of mode 0700.
Sources: RFC 5280 section 4.2.1; docs/security.md, "Identities".
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from assay_core.files.durable import make_folder, storage_errors, sync_directory, sync_file, write_file
from assay_core.identity.certificates import (
    SERVER_NAME,
    certificate_der,
    certificate_pem,
    fingerprint,
    identity_uri,
    read_certificate,
)
from assay_core.identity.keys import PrivateKey, key_pem, new_key, public_key_hash, read_key
from assay_core.identity.roles import IdentityKind
from assay_sampling.errors import ParameterError, StorageError

# Clocks of other boxes may be behind by as much; certificates of less are valid for as long before.
BEHIND = datetime.timedelta(minutes=5)
_FOLDER, _CERTIFICATE, _KEY = "authority", "certificate.pem", "key.pem"


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its certificate and its private key."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the lab."""
        names = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value) if names else ""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its certificate, in hexadecimal: what people compare."""
        return fingerprint(self.certificate)

    @property
    def pem(self) -> bytes:
        return certificate_pem(self.certificate)

    @property
    def der(self) -> bytes:
        return certificate_der(self.certificate)

    @property
    def not_after(self) -> datetime.datetime:
        return self.certificate.not_valid_after_utc

    def issue(
        self,
        public_key: ec.EllipticCurvePublicKey,
        kind: IdentityKind,
        identity_id: str,
        validity: datetime.timedelta,
        now: datetime.datetime,
    ) -> x509.Certificate:
        """A certificate of an agent or a person, for TLS clients only."""
        name = x509.UniformResourceIdentifier(identity_uri(kind, identity_id))
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        return self._issue(public_key, identity_id, [name], validity, now, purpose=purpose)

    def issue_for_server(
        self, public_key: ec.EllipticCurvePublicKey, validity: datetime.timedelta, now: datetime.datetime
    ) -> x509.Certificate:
        """The server's certificate, for TLS servers only."""
        names = [x509.DNSName(SERVER_NAME)]
        return self._issue(public_key, SERVER_NAME, names, validity, now)

    def issue_for_hosts(
        self,
        public_key: ec.EllipticCurvePublicKey,
        hosts: Sequence[str],
        validity: datetime.timedelta,
        now: datetime.datetime,
    ) -> x509.Certificate:
        """A certificate of the live page under names and addresses of hosts, for TLS servers only.

        The common name is not SERVER_NAME, so that no agent or client takes the page for the server.
        """
        names = [_host(each) for each in hosts]
        return self._issue(public_key, "assay page", names, validity, now)

    def _issue(
        self,
        public_key: ec.EllipticCurvePublicKey,
        common_name: str,
        names: Sequence[x509.GeneralName],
        validity: datetime.timedelta,
        now: datetime.datetime,
        *,
        purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ) -> x509.Certificate:
        public_key_hash(public_key)  # raises for other kinds of keys
        last = min(now + validity, self.not_after)
        if last <= now:
            raise StorageError(
                "certificate authority",
                f"it expired at {self.not_after:%Y-%m-%d %H:%M} UTC, so it can certify nobody",
                "make a new one in a new state folder with assay-server init; everybody enrols again",
            )
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(_named(common_name))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - min(BEHIND, validity))
            .not_valid_after(last)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(issuer_key, critical=False)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
            .sign(self.key, hashes.SHA256())
        )


def new_authority(name: str, validity: datetime.timedelta, now: datetime.datetime) -> Authority:
    """A new authority; raises ParameterError for a name that no certificate can hold."""
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise ParameterError("--name", f"{name[:80]!r} is not a name of 1 to 64 printable characters")
    key = new_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEHIND)
        .not_valid_after(now + validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def authority_folder(state: Path) -> Path:
    """Where a server's state folder keeps its authority; a backup encrypts what is there."""
    return state / _FOLDER


def write_authority(authority: Authority, state: Path) -> None:
    """Keep a new authority; raises StorageError if there is one already, or the disk refuses."""
    folder = authority_folder(state)
    if (folder / _KEY).exists():
        raise StorageError(
            str(folder),
            "this server has an authority already, and everybody who enrolled trusts that one",
            "keep it; for another lab give another --state folder",
        )
    with storage_errors(folder):
        make_folder(folder)
        # The key comes last: a folder without it counts as having no authority.
        for name, data in ((_CERTIFICATE, authority.pem), (_KEY, key_pem(authority.key))):
            path = folder / name
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            write_file(path, [data])
            sync_file(path)
        sync_directory(folder)


def read_authority(state: Path) -> Authority | None:
    """The authority of a state folder; None if ``init`` has not made one.

    Raises StorageError if it is damaged, or other users may read its key.
    """
    folder = authority_folder(state)
    key_path = folder / _KEY
    try:
        mode = key_path.stat().st_mode
    except FileNotFoundError:
        return None
    if mode & 0o077:
        raise StorageError(
            str(key_path),
            f"other users may read the authority's private key (mode {mode & 0o777:04o}), and could certify "
            "anybody",
            f"if nobody has read it: chmod 600 {key_path}; else make a new authority in a new state folder",
        )
    try:
        with storage_errors(folder):
            certificate = read_certificate((folder / _CERTIFICATE).read_bytes(), str(folder / _CERTIFICATE))
            key = read_key(key_path.read_bytes(), str(key_path))
    except ParameterError as error:
        raise StorageError(error.subject, error.cause, "restore the folder from a backup") from error
    if public_key_hash(certificate.public_key()) != public_key_hash(key.public_key()):
        raise StorageError(
            str(folder), "its key and its certificate do not belong together", "restore it from a backup"
        )
    return Authority(certificate, key)


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
