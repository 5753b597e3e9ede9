"""The lab's authority: what it certifies, and how its key is kept."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from typer.testing import CliRunner

from assay_core.identity.certificates import SERVER_NAME
from assay_core.identity.join_token import JoinToken
from assay_core.identity.keys import key_pem, new_key
from assay_core.identity.roles import IdentityKind
from assay_sampling.errors import NotReadyError, ParameterError, StorageError
from assay_server.cli.program import program
from assay_server.identity.authority import (
    authority_folder,
    new_authority,
    read_authority,
    write_authority,
)
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import DAY, made_authority, now


def purposes(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_clients_and_servers_get_certificates_for_one_purpose_each() -> None:
    authority = made_authority()
    key = new_key().public_key()
    person = authority.issue(key, IdentityKind.PERSON, "a" * 32, DAY, now())
    server = authority.issue_for_server(key, DAY, now())
    assert purposes(person) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert purposes(server) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    for each in (person, server):
        each.verify_directly_issued_by(authority.certificate)
        constraints = each.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca) == (True, False)
    own = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (own.ca, own.path_length) == (True, 0)


def test_no_certificate_outlives_the_authority() -> None:
    authority = new_authority("short", datetime.timedelta(hours=1), now())
    certificate = authority.issue(new_key().public_key(), IdentityKind.AGENT, "a" * 32, DAY, now())
    assert certificate.not_valid_after_utc == authority.not_after
    late = now() + datetime.timedelta(hours=2)
    with pytest.raises(StorageError, match="it expired"):
        authority.issue(new_key().public_key(), IdentityKind.AGENT, "a" * 32, DAY, late)


def test_only_keys_on_the_one_curve_are_certified() -> None:
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    with pytest.raises(ParameterError, match="P-256"):
        made_authority().issue(other, IdentityKind.AGENT, "a" * 32, DAY, now())


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_a_name_that_no_certificate_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ParameterError):
        new_authority(name, DAY, now())


def test_the_authority_is_kept_privately_and_made_once(tmp_path: Path) -> None:
    assert read_authority(tmp_path) is None
    authority = made_authority()
    write_authority(authority, tmp_path)
    folder = authority_folder(tmp_path)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "certificate.pem": 0o600, "key.pem": 0o600,
    }  # fmt: skip
    assert folder.stat().st_mode & 0o777 == 0o700
    found = read_authority(tmp_path)
    assert found is not None
    assert (found.der, key_pem(found.key)) == (authority.der, key_pem(authority.key))
    with pytest.raises(StorageError, match="has an authority already"):
        write_authority(made_authority(), tmp_path)
    (folder / "key.pem").chmod(0o644)
    with pytest.raises(StorageError, match="other users may read the authority's private key"):
        read_authority(tmp_path)


def test_a_damaged_authority_is_refused(tmp_path: Path) -> None:
    write_authority(made_authority(), tmp_path)
    folder = authority_folder(tmp_path)
    (folder / "certificate.pem").write_bytes(made_authority().pem)
    with pytest.raises(StorageError, match="do not belong together"):
        read_authority(tmp_path)
    (folder / "key.pem").write_text("")
    with pytest.raises(StorageError, match="restore the folder from a backup"):
        read_authority(tmp_path)


def test_init_makes_an_authority_and_says_its_fingerprint(tmp_path: Path) -> None:
    state = tmp_path / "state"
    arguments = ["init", "--state", str(state), "--name", "Lab 7", "--validity", "10d", "--json"]
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    found = read_authority(state)
    assert found is not None
    assert (document["authority"], document["fingerprint"]) == ("Lab 7", found.fingerprint)
    assert found.not_after - now() == pytest.approx(10 * DAY, abs=DAY / 24)
    assert state.stat().st_mode & 0o777 == 0o700
    again = CliRunner().invoke(program, arguments)
    assert isinstance(again.exception, StorageError)
    kept = CliRunner().invoke(program, [*arguments, "--if-needed", "--name", "Lab 8"])
    assert kept.exit_code == 0 and json.loads(kept.stdout) == document


def test_token_makes_a_join_token_from_the_state_folder_and_says_so_in_the_audit_log(tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["token", "--state", str(tmp_path), "--role", "agent", "--uses", "3", "--label", "rack-1"]
    assert isinstance(runner.invoke(program, arguments).exception, NotReadyError)
    write_authority(authority := made_authority(), tmp_path)
    result = runner.invoke(program, [*arguments, "--valid", "2h", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    token = JoinToken.parse(document["token"])
    assert token.fingerprint == document["fingerprint"] == authority.fingerprint
    store = SqliteStore(tmp_path / "metadata.sqlite")
    with store.snapshot() as read:
        [kept] = read.join_tokens()
        [entry] = read.audit_entries(before=0, most=9)
    store.close()
    assert (kept.token_id, kept.uses_left, kept.labels) == (document["token_id"], 3, ("rack-1",))
    assert kept.expires_at_ms - kept.created_at_ms == 2 * 3_600_000
    assert (entry.call, entry.subject) == ("assay-server token", f"token {kept.token_id}")
    assert document["token"] not in str(entry)
    shown = runner.invoke(program, arguments).stdout.splitlines()
    assert JoinToken.parse(shown[0]).fingerprint == authority.fingerprint


@pytest.mark.parametrize(
    "given", [["--state", "DIR"], ["--config", "FILE"], ["--listen", "unix:s"], ["--json"]]
)
def test_an_option_before_the_verb_is_refused_because_the_verb_does_not_see_it(
    given: list[str], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    told = CliRunner().invoke(program, [*given, "init", "--state", str(state)])
    assert isinstance(told.exception, ParameterError)
    assert str(told.exception).startswith(f"{given[0]}: it comes before the verb 'init'")
    assert not state.exists()
