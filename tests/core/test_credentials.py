"""Keys, certificates, requests for them, and the folder in which one's own are kept."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.certificates import (
    certificate_der,
    certificate_request,
    certified_identity,
    read_certificate,
    read_request,
    renewal_ms,
)
from assay_core.identity.credentials import CredentialsFolder, new_credentials
from assay_core.identity.keys import key_pem, new_key, public_key_hash, read_key
from assay_core.identity.roles import IdentityKind, Role
from assay_sampling.errors import InputError, ParameterError
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now

AUTHORITY = made_authority()
AGENT_ID = "0123456789abcdef" * 2


def test_a_role_says_what_kind_of_identity_has_it() -> None:
    assert [role for role in Role if role.kind is IdentityKind.AGENT] == [Role.AGENT]


def test_a_key_comes_back_from_its_pem_and_other_keys_are_refused() -> None:
    key = new_key()
    assert public_key_hash(read_key(key_pem(key), "k").public_key()) == public_key_hash(key.public_key())
    other = ec.generate_private_key(ec.SECP384R1())
    for pem in (key_pem(other), b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(ParameterError, match=r"^k: "):
            read_key(pem, "k")
    edwards = ed25519.Ed25519PrivateKey.generate()
    pem = edwards.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ParameterError, match="P-256"):
        read_key(pem, "k")
    with pytest.raises(ParameterError, match="P-256"):
        public_key_hash(edwards.public_key())


def test_a_certificate_says_whose_it_is_and_until_when() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    authority = made_authority()
    certificate = authority.issue(new_key().public_key(), IdentityKind.AGENT, AGENT_ID, DAY, at)
    found = certified_identity(certificate)
    assert (found.kind, found.identity_id) == (IdentityKind.AGENT, AGENT_ID)
    assert found.serial == f"{certificate.serial_number:x}"
    seconds = int(at.timestamp())
    assert found.not_before_ms == 1000 * (seconds - 300)
    assert found.not_after_ms == 1000 * (seconds + 86_400)


def test_a_servers_certificate_names_no_identity() -> None:
    certificate = AUTHORITY.issue_for_server(new_key().public_key(), DAY, now())
    with pytest.raises(ParameterError, match="names no identity"):
        certified_identity(certificate)


def test_a_request_is_read_only_with_its_own_signature() -> None:
    request = bytearray(certificate_request(new_key()))
    assert read_request(bytes(request)).is_signature_valid
    request[-1] ^= 1
    for damaged in (bytes(request), b"", bytes(5000), certificate_request(new_key())[:-3]):
        with pytest.raises(ParameterError, match=r"^certificate request: "):
            read_request(damaged)


@given(before=st.integers(0, 10**13), lasts=st.integers(1, 10**12))
def test_a_certificate_is_renewed_when_a_third_of_its_validity_is_left(before: int, lasts: int) -> None:
    at = renewal_ms(before, before + lasts)
    assert before <= at < before + lasts
    assert abs(3 * (before + lasts - at) - lasts) < 3


def test_credentials_are_kept_privately_and_come_back(tmp_path: Path) -> None:
    folder = CredentialsFolder(tmp_path / "some" / "where")
    assert folder.read() is None
    given = made_credentials(AUTHORITY, server="lab.example:7170")
    folder.write(given)
    assert folder.path.stat().st_mode & 0o777 == 0o600
    assert folder.folder.stat().st_mode & 0o777 == 0o700
    found = folder.read()
    assert found is not None
    assert (found.server, found.authority, found.certificate) == (
        "lab.example:7170", AUTHORITY.pem, given.certificate,
    )  # fmt: skip
    assert (found.key_pem, found.identity) == (given.key_pem, given.identity)
    assert found.authority_fingerprint == AUTHORITY.fingerprint
    assert given.key_pem.decode() not in repr(found)
    assert folder.remove()
    assert not folder.remove()
    assert folder.read() is None


def test_where_no_folder_can_be_there_are_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert CredentialsFolder(tmp_path / "file" / "credentials").read() is None


def test_credentials_that_others_may_read_or_that_are_damaged_are_refused(tmp_path: Path) -> None:
    folder = CredentialsFolder(tmp_path)
    folder.write(made_credentials(AUTHORITY))
    text = folder.path.read_text()
    folder.path.chmod(0o640)
    with pytest.raises(InputError, match="other users may read the private key"):
        folder.read()
    folder.path.chmod(0o600)
    for damaged in ("", "{}", text[:-30], text.replace("BEGIN PRIVATE", "BEGIN PUBLIC", 1)):
        folder.path.write_text(damaged)
        with pytest.raises(InputError, match="enrol again with a new token"):
            folder.read()


def test_credentials_expire_and_are_due_before_that() -> None:
    fresh = made_credentials(AUTHORITY)
    assert (fresh.renewal_due, fresh.expired) == (False, False)
    due = made_credentials(AUTHORITY, at=now() - 20 * DAY / 24)
    assert (due.renewal_due, due.expired) == (True, False)
    old = made_credentials(AUTHORITY, at=now() - 2 * DAY)
    assert (old.renewal_due, old.expired) == (True, True)


def test_a_renewed_certificate_must_be_for_the_same_key_and_identity() -> None:
    given = made_credentials(AUTHORITY, identity_id=AGENT_ID)

    def issued(key: ec.EllipticCurvePublicKey, kind: IdentityKind, identity_id: str) -> bytes:
        return certificate_der(AUTHORITY.issue(key, kind, identity_id, 2 * DAY, now()))

    public = given.key.public_key()
    renewed = given.renewed(issued(public, IdentityKind.AGENT, AGENT_ID))
    assert renewed.identity.identity_id == AGENT_ID
    assert renewed.identity.not_after_ms > given.identity.not_after_ms
    for wrong in (
        issued(new_key().public_key(), IdentityKind.AGENT, AGENT_ID),
        issued(public, IdentityKind.PERSON, AGENT_ID),
        issued(public, IdentityKind.AGENT, "f" * 32),
    ):
        with pytest.raises(ParameterError, match="renewed certificate"):
            given.renewed(wrong)
    with pytest.raises(ParameterError, match="for another key"):
        new_credentials("x:1", AUTHORITY.der, issued(public, IdentityKind.AGENT, AGENT_ID), new_key())


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(ParameterError, match=r"^c: "):
        read_certificate(data, "c")


def test_a_damaged_request_for_a_certificate_is_refused_with_a_typed_error() -> None:
    """Strangers send these, before anybody has looked at a token: no other error may come out."""
    whole = certificate_request(new_key())
    assert read_request(whole).is_signature_valid
    for place in range(len(whole)):
        for value in {0, 1, 2, 127, 128, 255} - {whole[place]}:
            damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
            with contextlib.suppress(ParameterError):
                read_request(damaged)
    with pytest.raises(ParameterError, match="it cannot be read"):
        read_request(whole.replace(b"\x02\x01\x00", b"\x02\x01\x07", 1))  # PKCS #10 of version 8
