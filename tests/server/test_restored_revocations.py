"""A restored backup lets nobody in again whom the replaced folder had revoked, demoted or logged out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from assay_core.identity.roles import IdentityKind, Role
from assay_server.cli.program import program
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.restore import Memberships, restore_backup, take_over
from assay_server.store.people import Identity, StoredCertificate, StoredToken
from assay_server.store.sqlite import SqliteStore

VERA = Identity("a" * 32, IdentityKind.PERSON, "vera", Role.ADMIN, "vision")
BOX = Identity("b" * 32, IdentityKind.AGENT, "box", Role.AGENT)
NEW = Identity("c" * 32, IdentityKind.AGENT, "new", Role.AGENT)
CERTIFICATE = StoredCertificate("01", VERA.identity_id, "key", 1, 9_999_999_999_999)
SINCE = replace(CERTIFICATE, serial="02", withdrawn_at_ms=7)
TOKEN = StoredToken("t-1", "hash", Role.AGENT, uses_left=5, expires_at_ms=9_999_999_999_999)


def write(state: Path, *members: Identity | StoredCertificate | StoredToken) -> None:
    state.mkdir(exist_ok=True)
    store = SqliteStore(state / "metadata.sqlite")
    with store.transaction() as transaction:
        for each in members:
            if isinstance(each, Identity):
                transaction.put_identity(each)
            elif isinstance(each, StoredCertificate):
                transaction.put_certificate(each)
            else:
                transaction.put_join_token(each)
    store.close()


def found(state: Path) -> Memberships:
    store = SqliteStore(state / "metadata.sqlite")
    with store.snapshot() as read:
        told = Memberships(tuple(read.identities()), tuple(read.certificates()), tuple(read.join_tokens()))
    store.close()
    return told


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that changed after its backup, beside it, was made."""
    state = tmp_path / "state"
    write(state, VERA, BOX, CERTIFICATE, TOKEN)
    make_backup(state, tmp_path / "kept")
    write(state, replace(VERA, role=Role.VIEWER, project="sound"), replace(BOX, revoked_at_ms=5), NEW, SINCE)
    write(state, replace(TOKEN, uses_left=2))
    return state


def test_what_was_revoked_since_the_backup_stays_revoked(state: Path, tmp_path: Path) -> None:
    restored = restore_backup(tmp_path / "kept", state, replace=True)
    assert restored.revocations == 4 and restored.replaced is not None
    told = found(state)
    assert told.identities == (replace(VERA, role=Role.VIEWER), replace(BOX, revoked_at_ms=5))
    assert told.certificates == (CERTIFICATE, SINCE)
    assert told.tokens == (replace(TOKEN, uses_left=2),)
    # The replaced folder is as it was.
    assert NEW in found(restored.replaced).identities


def test_without_a_readable_folder_it_is_said_that_they_are_valid_again(state: Path, tmp_path: Path) -> None:
    (state / "metadata.sqlite").write_bytes(b"not a database")
    asked = ["restore", str(tmp_path / "kept"), "--state", str(state), "--replace"]
    told = CliRunner().invoke(program, [*asked, "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["revocations"] is None
    assert found(state).identities == (VERA, BOX)


roles = st.sampled_from([Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN])


moments = st.tuples(roles, st.integers(0, 1), st.integers(0, 3))


@given(moments, moments)
def test_nobody_gets_more_than_both_then_and_now_allow(
    before_that: tuple[Role, int, int], after_that: tuple[Role, int, int]
) -> None:
    then, revoked_then, uses_then = before_that
    now, revoked_now, uses_now = after_that
    store = SqliteStore(None)
    before = replace(VERA, role=then, revoked_at_ms=revoked_then)
    with store.transaction() as transaction:
        transaction.put_identity(before)
        transaction.put_join_token(replace(TOKEN, uses_left=uses_then))
    after = replace(VERA, role=now, revoked_at_ms=revoked_now)
    newer = Memberships((after,), (), (replace(TOKEN, uses_left=uses_now),))
    with store.transaction() as transaction:
        take_over(newer, transaction)
        assert take_over(newer, transaction) == 0  # the second time there is nothing left to do
    with store.snapshot() as read:
        [person], [token] = read.identities(), read.join_tokens()
    order = [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN]
    assert order.index(person.role) == min(order.index(then), order.index(now))
    assert bool(person.revoked_at_ms) == bool(revoked_then or revoked_now)
    assert token.uses_left == min(uses_then, uses_now)
