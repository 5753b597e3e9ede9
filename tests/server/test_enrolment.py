"""Joining, renewal and revocation, without sockets: who gets a certificate, and who does not any more."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Barrier, Thread

import pytest

from assay_core.identity.certificates import certificate_request, certified_identity, read_certificate
from assay_core.identity.join_token import JoinToken
from assay_core.identity.keys import PrivateKey, new_key
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.identity import (
    IdentitiesAsked,
    JoinAsked,
    Joined,
    LeaveAsked,
    NamedForRevocation,
    RenewalAsked,
    TokenAsked,
)
from assay_core.records.machine import Inventory
from assay_sampling.errors import (
    AssayError,
    NotIdentifiedError,
    NotPermittedError,
    ParameterError,
    RefusedError,
)
from assay_server.access.caller import Caller, How, IdentityDirectory, called_by
from assay_server.identity.enrolment import Enrolment
from assay_server.store.model import Agent
from assay_server.store.people import Identity, StoredToken
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import made_authority
from tests.support.server.metadata_stores import METADATA_STORES

AUTHORITY = made_authority()
BOX, OTHER_BOX = "a" * 32, "b" * 32
HOUR_MS = 3_600_000
REFUSED = (NotIdentifiedError, NotPermittedError, ParameterError)


@dataclass
class Office:
    """An enrolment over a store, with a clock that tests move."""

    store: MetadataStore = field(default_factory=lambda: SqliteStore(None))
    now_ms: int = 1_800_000_000_000

    def __post_init__(self) -> None:
        self.directory = IdentityDirectory(self.store)
        self.enrolment = Enrolment(
            self.store,
            self.directory,
            AUTHORITY,
            datetime.timedelta(hours=24),
            now_ms=lambda: self.now_ms,
        )

    def token(self, role: Role = Role.AGENT, name: str = "", **asked: object) -> str:
        return self.enrolment.make_token(TokenAsked(role, name, **asked)).token  # type: ignore[arg-type]

    def join(self, token: str, key: PrivateKey, identity_id: str = BOX, name: str | None = None) -> Joined:
        """``name`` None: one of each box's own."""
        if name is None:
            name = "box" if identity_id in (BOX, "") else f"box {identity_id}"
        secret = JoinToken.parse(token).secret
        return self.enrolment.join(JoinAsked(secret, certificate_request(key), name, identity_id))

    def renew(self, identity_id: str, key: PrivateKey) -> bytes:
        with called_by(Caller(identity_id, "", Role.AGENT)):
            return self.enrolment.renew(RenewalAsked(certificate_request(key))).certificate

    def renew_expired(self, key: PrivateKey, identity_id: str = BOX) -> bytes:
        asked = RenewalAsked(certificate_request(key), identity_id)
        return self.enrolment.renew_expired(asked).certificate

    def store_tokens(self) -> list[StoredToken]:
        with self.store.snapshot() as read:
            return read.join_tokens()

    def revoke(self, subject: str) -> str:
        return self.enrolment.revoke(NamedForRevocation(subject)).what


@pytest.fixture
def office() -> Office:
    return Office()


def identity_of(joined: Joined | bytes) -> tuple[IdentityKind, str]:
    certificate = joined if isinstance(joined, bytes) else joined.certificate
    found = certified_identity(read_certificate(certificate, "c"))
    return found.kind, found.identity_id


def test_a_token_admits_one_agent_with_what_the_token_says(office: Office) -> None:
    token = office.token(labels=("rack-1", "nvlink"), project="sim")
    joined = office.join(token, new_key())
    assert (identity_of(joined), joined.name, joined.role) == ((IdentityKind.AGENT, BOX), "box", Role.AGENT)
    known = office.directory.identity(BOX)
    assert known is not None
    assert (known.role, known.labels, known.project) == (Role.AGENT, ("rack-1", "nvlink"), "sim")
    read_certificate(joined.certificate, "c").verify_directly_issued_by(AUTHORITY.certificate)
    with pytest.raises(NotIdentifiedError, match="it was used as often as it may be"):
        office.join(token, new_key(), OTHER_BOX)
    assert office.directory.identity(OTHER_BOX) is None


def test_a_fleets_token_admits_as_many_as_it_says(office: Office) -> None:
    token = office.token(uses=3)
    for number in range(3):
        office.join(token, new_key(), f"{number:032x}")
    with pytest.raises(NotIdentifiedError):
        office.join(token, new_key(), f"{3:032x}")


def test_a_joiner_whose_answer_was_lost_asks_again_with_the_same_key(office: Office) -> None:
    token, key = office.token(), new_key()
    first = office.join(token, key)
    assert identity_of(office.join(token, key)) == identity_of(first)
    with pytest.raises(NotIdentifiedError):
        office.join(token, new_key())


def test_a_used_token_admits_its_joiner_again_and_nobody_else_of_the_same_key(office: Office) -> None:
    token, key = office.token(), new_key()
    office.join(token, key)
    with pytest.raises(NotIdentifiedError, match="it was used as often as it may be"):
        office.join(token, key, OTHER_BOX)
    assert office.directory.identity(OTHER_BOX) is None
    fleet = office.token(uses=2)
    for identity_id in ("c" * 32, "d" * 32):
        office.join(fleet, key, identity_id)
    with pytest.raises(NotIdentifiedError):
        office.join(fleet, key, "e" * 32)


def test_a_withdrawn_token_admits_nobody_who_has_used_it(office: Office) -> None:
    token, key = office.token(uses=2), new_key()
    office.join(token, key)
    [listed] = office.enrolment.identities(IdentitiesAsked()).tokens
    office.revoke(listed.token_id)
    with pytest.raises(NotIdentifiedError):
        office.join(token, key, OTHER_BOX)


@pytest.mark.parametrize("uses", [1, 2])
def test_a_revoked_person_does_not_come_back_with_their_token(office: Office, uses: int) -> None:
    token, key = office.token(Role.ADMIN, "mallory", uses=uses), new_key()
    office.join(token, key, "")
    office.now_ms += 1000
    assert office.revoke("mallory") == "identity"
    for again in (key, new_key()):
        with pytest.raises((NotIdentifiedError, NotPermittedError)):
            office.join(token, again, "")
    assert [each.name for each in office.enrolment.identities(IdentitiesAsked()).identities] == ["mallory"]
    # A token that an admin makes later admits them, as somebody new.
    assert office.join(office.token(Role.VIEWER, "mallory"), new_key(), "").role is Role.VIEWER


def test_a_token_gives_no_other_role_than_its_own(office: Office) -> None:
    viewer, admin = office.token(Role.VIEWER, "bob"), office.token(Role.ADMIN, "bob")
    assert office.join(admin, new_key(), "").role is Role.ADMIN
    with pytest.raises(NotPermittedError, match="has the role admin, and the token is for a viewer"):
        office.join(viewer, new_key(), "")


def test_a_box_does_not_use_up_the_token_of_a_person(office: Office) -> None:
    token = office.token(Role.VIEWER, "vera")
    with pytest.raises(ParameterError, match="the token is for a person"):
        office.join(token, new_key(), BOX)
    assert office.join(token, new_key(), "").role is Role.VIEWER


def test_a_person_does_not_join_with_a_withdrawn_key(office: Office) -> None:
    key = new_key()
    lost = office.join(office.token(Role.ADMIN, "alice"), key, "")
    office.revoke(certified_identity(read_certificate(lost.certificate, "c")).serial)
    with pytest.raises(NotPermittedError, match="withdrawn"):
        office.join(office.token(Role.ADMIN, "alice"), key, "")


def test_a_name_that_is_an_id_protects_nobody_from_revocation(office: Office) -> None:
    """Agents choose their names: two of them take each other's id, one that of a certificate."""
    office.join(office.token(), new_key(), BOX, OTHER_BOX)
    office.join(office.token(), new_key(), OTHER_BOX, BOX)
    lost = office.join(office.token(Role.ADMIN, "alice"), new_key(), "")
    serial = certified_identity(read_certificate(lost.certificate, "c")).serial
    office.join(office.token(), new_key(), "c" * 32, serial)
    assert office.revoke(serial) == "certificate"
    assert office.directory.is_withdrawn(serial)
    for identity_id in (BOX, OTHER_BOX):
        assert office.revoke(identity_id) == "identity"
        known = office.directory.identity(identity_id)
        assert known is not None and known.revoked_at_ms
    office.join(office.token(), new_key(), "d" * 32, "")
    with pytest.raises(ParameterError, match="no identity, token or certificate"):
        office.revoke("")


def test_a_token_expires_and_a_strangers_was_never_made(office: Office) -> None:
    token = office.token(valid_ms=HOUR_MS)
    office.now_ms += HOUR_MS
    with pytest.raises(NotIdentifiedError, match="it has expired"):
        office.join(token, new_key())
    with pytest.raises(NotIdentifiedError, match="this server did not make it"):
        office.join(JoinToken.new(AUTHORITY.der).text, new_key())


def test_only_the_hash_of_a_token_is_kept(office: Office) -> None:
    token = JoinToken.parse(office.token())
    with office.store.snapshot() as read:
        [kept] = read.join_tokens()
    assert kept.secret_hash == token.secret_hash
    assert token.secret.hex() not in repr(kept) and str(token.secret) not in repr(kept)


def test_joining_again_keeps_the_identity_for_the_same_key_only(office: Office) -> None:
    key = new_key()
    office.join(office.token(), key)
    office.now_ms += 40 * 24 * HOUR_MS
    again = office.join(office.token(labels=("moved",)), key, name="renamed")
    assert identity_of(again) == (IdentityKind.AGENT, BOX)
    known = office.directory.identity(BOX)
    assert known is not None and (known.name, known.labels) == ("renamed", ("moved",))
    thief = office.token()
    with pytest.raises(NotPermittedError, match="belongs to another key"):
        office.join(thief, new_key())
    # What was refused did not use the token up.
    office.join(thief, new_key(), OTHER_BOX)


@pytest.mark.parametrize("name", ["box", "BOX", "\N{FULLWIDTH LATIN SMALL LETTER B}ox"])
def test_a_box_gets_no_name_of_another(office: Office, name: str) -> None:
    """A name that only looks like the other's counts, too."""
    office.join(office.token(), new_key(), name="box")
    second, key = office.token(), new_key()
    with pytest.raises(NotPermittedError, match=f"another agent has this name: {BOX}") as caught:
        office.join(second, key, OTHER_BOX, name)
    assert caught.value.remedy.endswith(f"an admin frees its name with: assay admin revoke {BOX}")
    assert office.directory.identity(OTHER_BOX) is None
    office.revoke(BOX)
    assert office.join(second, key, OTHER_BOX, name).name == name


def test_the_id_of_an_agent_of_the_socket_needs_a_token_of_its_own(office: Office) -> None:
    with office.store.transaction() as store:
        store.put_agent(Agent(BOX, "s", "rack-7", Inventory(), (), 0))
    fleet, key = office.token(), new_key()
    with pytest.raises(NotPermittedError, match="worked for this server without a certificate") as caught:
        office.join(fleet, key, name="rack-7")
    assert "assay admin token --role agent --name rack-7" in caught.value.remedy
    assert "assay-agent new-identity" in caught.value.remedy
    with pytest.raises(NotPermittedError, match=f"another agent has this name: {BOX}"):
        office.join(fleet, key, OTHER_BOX, name="rack-7")
    for name in ("rack-8", ""):
        with pytest.raises(NotPermittedError):
            office.join(office.token(name=name), key)
    assert office.join(office.token(name="rack-7"), key, name="rack-7").name == "rack-7"
    # Now it has a key of its own, which says who it is.
    assert office.join(office.token(), key, name="renamed").name == "renamed"
    with pytest.raises(NotPermittedError, match="belongs to another key"):
        office.join(office.token(name="rack-7"), new_key(), name="rack-7")


def test_leaving_withdraws_all_certificates_of_the_callers_key_and_no_other(office: Office) -> None:
    key, other = new_key(), new_key()
    mine = certified_identity(
        read_certificate(office.join(office.token(Role.VIEWER, "vera"), key, "").certificate, "c")
    )
    theirs = certified_identity(
        read_certificate(office.join(office.token(Role.VIEWER, "vera"), other, "").certificate, "c")
    )
    renewed = certified_identity(read_certificate(office.renew(mine.identity_id, key), "c"))
    with called_by(Caller(mine.identity_id, "vera", Role.VIEWER, serial=renewed.serial)):
        assert office.enrolment.leave(LeaveAsked()).serial == renewed.serial
    assert office.directory.is_withdrawn(mine.serial) and office.directory.is_withdrawn(renewed.serial)
    assert not office.directory.is_withdrawn(theirs.serial)
    with (
        called_by(Caller("owner", "owner", Role.ADMIN, how=How.SOCKET)),
        pytest.raises(NotIdentifiedError, match="no certificate to withdraw"),
    ):
        office.enrolment.leave(LeaveAsked())


def test_revoking_names_the_open_tokens_that_it_joined_with_and_withdraws_them_if_asked(
    office: Office,
) -> None:
    fleet, single, unused = office.token(uses=3), office.token(), office.token(uses=5)
    key = new_key()
    office.join(fleet, key)
    office.join(single, key)
    hashes = {each.secret_hash: each.token_id for each in office.store_tokens()}
    fleet_id = hashes[JoinToken.parse(fleet).secret_hash]
    told = office.enrolment.revoke(NamedForRevocation(BOX))
    assert (told.tokens, told.tokens_withdrawn) == ((fleet_id,), False)
    # What it says is so: the box would come back as another one.
    office.join(fleet, new_key(), OTHER_BOX)
    told = office.enrolment.revoke(NamedForRevocation(BOX, tokens=True))
    assert (told.tokens, told.tokens_withdrawn) == ((fleet_id,), True)
    with pytest.raises(NotIdentifiedError, match="or withdrawn"):
        office.join(fleet, new_key(), "c" * 32)
    office.join(unused, new_key(), "c" * 32)


def test_revoking_a_key_names_its_tokens_and_an_expired_one_is_none(office: Office) -> None:
    token = office.token(Role.VIEWER, "vera", uses=2)
    lost = office.join(token, new_key(), "")
    serial = certified_identity(read_certificate(lost.certificate, "c")).serial
    assert len(office.enrolment.revoke(NamedForRevocation(serial)).tokens) == 1
    office.now_ms += HOUR_MS
    assert office.enrolment.revoke(NamedForRevocation(serial)).tokens == ()


def test_a_person_gets_an_identity_by_name_and_keeps_it_on_every_machine(office: Office) -> None:
    first = office.join(office.token(Role.SUBMITTER, "alice"), new_key(), "", "")
    second = office.join(office.token(Role.SUBMITTER, "alice"), new_key(), "", "ignored")
    assert identity_of(first) == identity_of(second)
    assert (second.name, second.role) == ("alice", Role.SUBMITTER)
    assert identity_of(office.join(office.token(Role.VIEWER, "bob"), new_key(), "")) != identity_of(first)
    with pytest.raises(ParameterError, match="alice has the role submitter already"):
        office.token(Role.ADMIN, "alice")


def test_an_agents_token_gives_nobody_a_persons_identity(office: Office) -> None:
    _, alice = identity_of(office.join(office.token(Role.ADMIN, "alice"), new_key(), ""))
    with pytest.raises(NotPermittedError):
        office.join(office.token(), new_key(), alice)
    for wrong in ("", "x", "A" * 32, "a" * 31, "a" * 33):
        with pytest.raises(ParameterError, match="32 hexadecimal digits"):
            office.join(office.token(), new_key(), wrong)


def test_a_renewed_certificate_is_for_the_same_identity_and_a_known_key(office: Office) -> None:
    key = new_key()
    office.join(office.token(), key)
    office.now_ms += 16 * HOUR_MS
    renewed = office.renew(BOX, key)
    assert identity_of(renewed) == (IdentityKind.AGENT, BOX)
    until = certified_identity(read_certificate(renewed, "c")).not_after_ms
    assert until == office.now_ms + 24 * HOUR_MS
    with pytest.raises(NotPermittedError, match="belongs to another key"):
        office.renew(BOX, new_key())
    with pytest.raises(NotIdentifiedError), called_by(Caller("owner", "", Role.ADMIN, how=How.SOCKET)):
        office.enrolment.renew(RenewalAsked(certificate_request(key)))


def test_nobody_fills_the_database_with_certificates(office: Office) -> None:
    key = new_key()
    office.join(office.token(), key)
    office.now_ms += 16 * HOUR_MS
    for _ in range(8):
        office.renew(BOX, key)
    with pytest.raises(RefusedError, match="renewed 8 times a moment ago"):
        office.renew(BOX, key)
    office.now_ms += HOUR_MS
    assert identity_of(office.renew(BOX, key)) == (IdentityKind.AGENT, BOX)


def test_an_expired_certificate_is_renewed_within_seven_days_by_its_own_key(office: Office) -> None:
    key = new_key()
    office.join(office.token(), key)
    office.now_ms += (24 + 7 * 24) * HOUR_MS - 1_000
    renewed = certified_identity(read_certificate(office.renew_expired(key), "c"))
    assert (renewed.identity_id, renewed.not_after_ms) == (BOX, office.now_ms + 24 * HOUR_MS)
    with pytest.raises(NotIdentifiedError, match="no certificate for its key"):
        office.renew_expired(new_key())
    office.now_ms += (24 + 7 * 24) * HOUR_MS
    with pytest.raises(NotIdentifiedError, match="expired longer ago than 7 days"):
        office.renew_expired(key)
    # A token still lets the box in as itself.
    assert identity_of(office.join(office.token(), key)) == (IdentityKind.AGENT, BOX)


def test_of_two_boxes_with_one_key_each_renews_its_own_certificate(office: Office) -> None:
    """Images that were cloned after joining have one key."""
    key, fleet = new_key(), office.token(uses=2)
    office.join(fleet, key, BOX)
    office.now_ms += 60_000
    office.join(fleet, key, OTHER_BOX)
    office.now_ms += 30 * HOUR_MS
    for identity_id in (BOX, OTHER_BOX):
        assert identity_of(office.renew_expired(key, identity_id)) == (IdentityKind.AGENT, identity_id)
    with pytest.raises(NotIdentifiedError, match="no certificate for its key"):
        office.renew_expired(key, "c" * 32)


@pytest.mark.parametrize("what", ["identity", "certificate"])
def test_a_revocation_ends_the_grace_period(office: Office, what: str) -> None:
    key = new_key()
    joined = office.join(office.token(), key)
    office.now_ms += 30 * HOUR_MS
    serial = certified_identity(read_certificate(joined.certificate, "c")).serial
    assert office.revoke(BOX if what == "identity" else serial) == what
    with pytest.raises(NotPermittedError, match=r"revoked|withdrawn"):
        office.renew_expired(key)


def test_without_a_grace_period_an_expired_certificate_is_worth_nothing(office: Office) -> None:
    office.enrolment = Enrolment(
        office.store,
        office.directory,
        AUTHORITY,
        datetime.timedelta(hours=24),
        grace=datetime.timedelta(0),
        now_ms=lambda: office.now_ms,
    )
    key = new_key()
    office.join(office.token(), key)
    office.now_ms += 24 * HOUR_MS
    with pytest.raises(NotIdentifiedError, match="expired longer ago than 0 days"):
        office.renew_expired(key)


def test_a_revoked_identity_can_neither_renew_nor_join(office: Office) -> None:
    key = new_key()
    office.join(office.token(), key)
    assert office.revoke("box") == "identity"
    known = office.directory.identity(BOX)
    assert known is not None and known.revoked_at_ms == office.now_ms
    for refused in (lambda: office.renew(BOX, key), lambda: office.join(office.token(), key)):
        with pytest.raises(NotPermittedError, match="revoked"):
            refused()


def test_a_withdrawn_certificate_takes_all_of_its_key_and_no_other(office: Office) -> None:
    laptop, desk = new_key(), new_key()
    first = office.join(office.token(Role.SUBMITTER, "alice"), laptop, "")
    _, alice = identity_of(first)
    office.join(office.token(Role.SUBMITTER, "alice"), desk, "")
    office.now_ms += HOUR_MS
    renewed = certified_identity(read_certificate(office.renew(alice, laptop), "c"))
    lost = certified_identity(read_certificate(first.certificate, "c"))
    assert office.revoke(lost.serial) == "certificate"
    assert office.directory.is_withdrawn(lost.serial) and office.directory.is_withdrawn(renewed.serial)
    with pytest.raises(NotPermittedError, match="withdrawn"):
        office.renew(alice, laptop)
    assert identity_of(office.renew(alice, desk)) == (IdentityKind.PERSON, alice)
    # Nor does a joiner get in again with the withdrawn key while its token is valid.
    assert office.directory.identity(alice) is not None


def test_a_withdrawn_token_and_what_is_not_known(office: Office) -> None:
    token = office.token(uses=5)
    [listed] = office.enrolment.identities(IdentitiesAsked()).tokens
    assert (listed.uses_left, listed.role) == (5, Role.AGENT)
    assert office.revoke(listed.token_id) == "token"
    with pytest.raises(NotIdentifiedError):
        office.join(token, new_key())
    assert office.enrolment.identities(IdentitiesAsked()).tokens == ()
    with pytest.raises(ParameterError, match="no identity, token or certificate"):
        office.revoke("nobody")


def test_two_of_one_name_are_revoked_by_id(office: Office) -> None:
    """An earlier release let two agents have one name."""
    office.join(office.token(), new_key(), BOX)
    with office.store.transaction() as store:
        store.put_identity(Identity(OTHER_BOX, IdentityKind.AGENT, "box", Role.AGENT))
    with pytest.raises(ParameterError, match="2 identities have this name"):
        office.revoke("box")
    assert office.revoke(BOX) == "identity"
    assert office.revoke("box") == "identity"
    assert all(each.revoked_at_ms for each in office.enrolment.identities(IdentitiesAsked()).identities)


@pytest.mark.parametrize(
    "asked",
    [
        TokenAsked(Role.SUBMITTER),
        TokenAsked(Role.AGENT, uses=0),
        TokenAsked(Role.AGENT, uses=1001),
        TokenAsked(Role.AGENT, valid_ms=0),
        TokenAsked(Role.AGENT, valid_ms=31 * 24 * HOUR_MS),
        TokenAsked(Role.AGENT, labels=("",)),
        TokenAsked(Role.AGENT, labels=tuple(map(str, range(17)))),
        TokenAsked(Role.ADMIN, "x" * 65),
        TokenAsked(Role.ADMIN, "a\nb"),
        TokenAsked(Role.ADMIN, "owner"),
    ],
)
def test_tokens_with_which_nobody_could_join_as_meant_are_refused(office: Office, asked: TokenAsked) -> None:
    with pytest.raises(ParameterError):
        office.enrolment.make_token(asked)


def test_without_an_authority_nobody_can_join() -> None:
    store = SqliteStore(None)
    enrolment = Enrolment(store, IdentityDirectory(store), None, datetime.timedelta(hours=1))
    with pytest.raises(ParameterError, match="assay-server init"):
        enrolment.make_token(TokenAsked(Role.AGENT))


@pytest.fixture(params=METADATA_STORES)
def any_office(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[Office]:
    store = METADATA_STORES[request.param](tmp_path)
    yield Office(store)
    store.close()


def test_of_many_who_join_at_once_with_one_token_one_gets_in(any_office: Office) -> None:
    token, start = any_office.token(), Barrier(6)
    admitted: list[str] = []
    refused: list[AssayError] = []

    def join(identity_id: str) -> None:
        start.wait()
        try:
            any_office.join(token, new_key(), identity_id)
            admitted.append(identity_id)
        except REFUSED as error:
            refused.append(error)

    threads = [Thread(target=join, args=(f"{number:032x}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), len(refused)) == (1, 5)
    with any_office.store.snapshot() as read:
        assert [each.identity_id for each in read.identities()] == admitted
        assert [each.uses_left for each in read.join_tokens()] == [0]
        [certificate] = read.certificates(admitted[0])
    with any_office.store.transaction() as write:
        write.forget_certificate(certificate.serial)
        write.forget_join_tokens(any_office.now_ms + 2 * HOUR_MS)
        assert (write.certificates(), write.join_tokens()) == ([], [])
