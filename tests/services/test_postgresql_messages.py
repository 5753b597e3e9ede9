"""Messages of several statements to PostgreSQL, and what its driver keeps back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest
import sqlalchemy as sa

from assay_server.store.connections.prepared import PreparedStatements
from assay_server.store.postgresql import messages as messages_of
from assay_server.store.postgresql.driver import DeferringDriver
from assay_server.store.postgresql.messages import Answer, Command, Dumped, Messages, Refused
from assay_server.store.postgresql.place import place_of
from assay_server.store.postgresql.store import new_engine

ADD = "INSERT INTO kept VALUES (%s::bigint)"
BEGIN, MARK = [("BEGIN", ())], "SAVEPOINT one"


@pytest.fixture
def connection(fresh_database: str) -> Iterator[sa.Connection]:
    engine = new_engine(place_of(fresh_database))
    with engine.connect() as made:
        made.exec_driver_sql("CREATE TABLE kept (number bigint PRIMARY KEY)")
        yield made
    engine.dispose()


@pytest.fixture
def driver(connection: sa.Connection) -> DeferringDriver:
    return DeferringDriver(connection, PreparedStatements(connection.dialect, by_cursor=True))


@pytest.fixture
def messages(connection: sa.Connection, fresh_database: str) -> Iterator[Messages]:
    with psycopg.connect(fresh_database, autocommit=True) as made:
        yield Messages(made)


def answers(messages: Messages, commands: Sequence[Command]) -> list[Answer]:
    return messages.answers(messages.dumped(commands))


def kept(driver: DeferringDriver) -> int:
    return int(driver.value_of("SELECT count(*) FROM kept"))


def test_values_come_back_as_they_were_sent(messages: Messages) -> None:
    sent = (7, -(2**62), 0.1, True, None, "% %s ' ü", b"\x00\xff", "")
    types = ("bigint", "bigint", "float", "boolean", "text", "text", "bytea", "text")
    text = "SELECT '100%%', " + ", ".join(f"%s::{each}" for each in types)
    for _ in range(3):  # the first prepares it
        [answer] = answers(messages, [(text, sent)])
        assert answer.fetchall() == [("100%", *sent)]


def test_only_so_many_statements_stay_prepared(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_of, "MOST_PREPARED", 2)
    for _ in range(2):
        for number in range(4):
            [answer] = answers(messages, [(f"SELECT {number} + %s::int", (1,))])
            assert answer.fetchone() == (number + 1,)
    [names] = answers(messages, [("SELECT count(*) FROM pg_prepared_statements", ())])
    assert names.fetchone() == (2,)


def test_a_text_that_comes_again_in_a_message_is_prepared_once(messages: Messages) -> None:
    for numbers in ((1, 2, 3), (4, 5)):
        found = answers(messages, [("SELECT %s::int", (number,)) for number in numbers])
        assert [each.fetchone() for each in found] == [(number,) for number in numbers]
    [names] = answers(
        messages, [("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%1::int'", ())]
    )
    assert names.fetchone() == (1,)


@pytest.mark.parametrize("bad", ["\ud800", "a\0", object()])
def test_nothing_is_sent_of_a_message_with_a_value_that_cannot_be_sent(
    driver: DeferringDriver, messages: Messages, bad: object
) -> None:
    with pytest.raises((psycopg.Error, UnicodeError)):
        answers(messages, [(ADD, (1,)), (ADD, (2,)), ("SELECT %s::text", (bad,))])
    assert [each.rowcount for each in answers(messages, [(ADD, (1,)), (ADD, (2,))])] == [1, 1]
    assert kept(driver) == 2


def test_bytes_are_sent_as_they_are(driver: DeferringDriver, messages: Messages) -> None:
    table = sa.Table("held", sa.MetaData(), sa.Column("data", sa.LargeBinary))
    [stored] = driver.prepared.of(sa.insert(table), ("data",)).values({"data": b"\x00\xff"})
    for value in (b"\x00\xff", stored):
        [(_, (dumped, _))] = messages.dumped([("SELECT %s::bytea", (value,))])
        assert dumped is not None and bytes(dumped[0]) == b"\x00\xff"
        assert answers(messages, [("SELECT %s::bytea", (value,))])[0].fetchone() == (b"\x00\xff",)


def test_what_is_behind_a_refused_statement_is_not_done(driver: DeferringDriver, messages: Messages) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        answers(messages, [("SELECT 1 / %s::int", (0,)), (ADD, (1,))])
    assert kept(driver) == 0
    assert answers(messages, [(ADD, (1,))])[0].rowcount == 1  # it was not prepared, and is now


def test_the_reason_is_told_when_the_database_ends_a_connection(messages: Messages) -> None:
    with pytest.raises(psycopg.errors.AdminShutdown):
        answers(messages, [("SELECT pg_terminate_backend(pg_backend_pid())", ()), ("SELECT 1", ())])
    with pytest.raises(psycopg.OperationalError):
        answers(messages, [("SELECT 1", ())])


def test_whoever_sent_nothing_undoes_nothing_of_who_was_before(driver: DeferringDriver) -> None:
    driver.begin(BEGIN)
    driver.mark(MARK)
    driver.later(ADD, (1,))
    driver.send()
    assert driver.forget()  # its savepoint is set: it may be undone
    driver.mark(MARK)
    driver.later(ADD, (2,))
    assert not driver.forget()  # the last savepoint is that of the first
    driver.run("COMMIT")
    assert kept(driver) == 1


def test_a_transaction_of_which_nothing_was_sent_ends_without_a_message(driver: DeferringDriver) -> None:
    assert kept(driver) == 0  # so that the connection was used a moment ago
    driver.begin(BEGIN)
    driver.mark(MARK)
    driver.forget()
    driver.run("COMMIT")
    driver.later(ADD, (1,))
    driver.send()  # outside of a transaction, so it is kept
    driver.run("ROLLBACK")
    assert kept(driver) == 1


def left(driver: DeferringDriver, numbers: Sequence[object], told: list[BaseException]) -> None:
    """A member of a group that only writes these numbers."""
    driver.mark(MARK)
    for number in numbers:
        driver.later(ADD, (number,))
    driver.leave("ROLLBACK TO one", told.append)


def test_what_members_left_goes_with_the_next_question(
    driver: DeferringDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(driver)  # so that the connection was used a moment ago
    told: list[BaseException] = []
    lengths = []
    exchanged = Messages.exchanged
    monkeypatch.setattr(
        Messages, "exchanged", lambda self, sent: lengths.append(len(sent)) or exchanged(self, sent)
    )
    driver.begin(BEGIN)
    left(driver, [1, 2], told)
    left(driver, [], told)  # it wrote nothing, so nothing is sent for it
    driver.mark(MARK)
    assert kept(driver) == 2
    driver.leave("ROLLBACK TO one", told.append)
    left(driver, [3], told)
    driver.run("COMMIT")
    assert lengths == [6, 3] and not told
    assert kept(driver) == 3


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_only_those_before_a_member_whose_last_writes_fail_are_kept(
    driver: DeferringDriver, bad: int
) -> None:
    """Those behind it may have known what it wrote; they do it again."""
    told: list[list[BaseException]] = [[], [], []]
    driver.begin(BEGIN)
    for member in range(3):
        numbers = [10 * member, 10 * member] if member == bad else [10 * member, 10 * member + 1]
        left(driver, numbers, told[member])
    driver.mark(MARK)
    with pytest.raises(psycopg.errors.SerializationFailure):
        kept(driver)
    assert not driver.forget()  # so nobody undoes what was never done
    driver.mark(MARK)
    assert kept(driver) == 2 * bad
    driver.later(ADD, (99,))
    driver.run("COMMIT")
    assert [len(each) for each in told] == [int(member >= bad) for member in range(3)]
    assert isinstance(told[bad][0], psycopg.errors.UniqueViolation)
    behind = [type(each[0]) for each in told[bad + 1 :]]
    assert behind == [psycopg.errors.SerializationFailure] * (2 - bad)
    assert kept(driver) == 2 * bad + 1


def test_a_commit_with_a_member_whose_last_writes_fail_is_not_made(driver: DeferringDriver) -> None:
    told: list[BaseException] = []
    driver.begin(BEGIN)
    left(driver, [1], told)
    for number in (1, 1, 2):
        left(driver, [number], told)
    with pytest.raises(psycopg.errors.SerializationFailure):
        driver.run("COMMIT")
    ended = psycopg.errors.SerializationFailure
    assert [type(each) for each in told] == [psycopg.errors.UniqueViolation, ended, ended]
    driver.run("COMMIT")
    assert kept(driver) == 1


def test_a_commit_that_the_database_turns_into_an_undo_is_an_error(driver: DeferringDriver) -> None:
    driver.begin(BEGIN)
    driver.later(ADD, (1,))
    with pytest.raises(psycopg.errors.DivisionByZero):
        driver.value_of("SELECT 1 / 0")
    with pytest.raises(psycopg.errors.SerializationFailure):
        driver.run("COMMIT")
    assert kept(driver) == 0


def test_an_error_of_ones_own_is_not_told_to_who_was_before(driver: DeferringDriver) -> None:
    told: list[BaseException] = []
    driver.begin(BEGIN)
    left(driver, [1], told)
    driver.mark(MARK)
    with pytest.raises(psycopg.errors.DivisionByZero):
        driver.value_of("SELECT 1 / 0")
    assert driver.forget()
    driver.run("ROLLBACK TO one")
    driver.run("COMMIT")
    assert not told and kept(driver) == 1


def test_a_value_that_cannot_be_sent_is_the_error_of_who_wrote_it(driver: DeferringDriver) -> None:
    told: list[BaseException] = []
    driver.begin(BEGIN)
    left(driver, [1], told)
    with pytest.raises((psycopg.Error, UnicodeError)):
        left(driver, ["\ud800"], told)
    assert not driver.forget()
    driver.run("COMMIT")
    assert not told and kept(driver) == 1


def test_what_was_left_is_undone_with_the_transaction(driver: DeferringDriver) -> None:
    told: list[BaseException] = []
    driver.begin(BEGIN)
    assert kept(driver) == 0
    left(driver, [1], told)
    driver.run("ROLLBACK")
    assert not told and kept(driver) == 0


@pytest.mark.parametrize("refused", ["SAVEPOINT second", "ROLLBACK TO second"])
def test_nothing_is_kept_if_a_member_cannot_be_undone(
    driver: DeferringDriver, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """As where an administrator cancels just that statement."""
    told: list[BaseException] = []
    exchanged = Messages.exchanged

    def cancelled(messages: Messages, sent: Sequence[Dumped]) -> tuple[list[Answer], Refused | None]:
        failing = ("SELECT 1 / 0", (None, None))
        return exchanged(messages, [failing if each[0] == refused else each for each in sent])

    monkeypatch.setattr(Messages, "exchanged", cancelled)
    driver.begin(BEGIN)
    for name, numbers in {"first": [1], "second": [2, 2], "third": [3]}.items():
        driver.mark(f"SAVEPOINT {name}")
        for number in numbers:
            driver.later(ADD, (number,))
        driver.leave(f"ROLLBACK TO {name}", told.append)
    driver.mark("SAVEPOINT fourth")
    with pytest.raises(psycopg.OperationalError, match="was not undone"):
        kept(driver)
    assert driver.forget()
    with pytest.raises(psycopg.Error):
        driver.run("ROLLBACK TO fourth")  # so the group is given up
    driver.run("ROLLBACK")
    assert kept(driver) == 0 and not told
