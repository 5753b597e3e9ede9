"""Links and sessions of the live page, over every metadata store, and at the server that takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.identity.roles import Role
from assay_sampling.errors import NotIdentifiedError, StorageError
from assay_server.access.caller import Caller
from assay_server.app import Server
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.restore import restore_backup
from assay_server.store.people import WebLogin
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from assay_server.web.auth.sessions import LINK_MS, SESSION_MS, Sessions
from tests.support.server.metadata_stores import METADATA_STORES
from tests.support.server.server_support import HandClock
from tests.support.server.web_lab import COOKIE, web_lab

VERA = Caller("vera-id", "vera", Role.VIEWER, serial="5")
OTTO = Caller("otto-id", "otto", Role.ADMIN)
FAR = 1 << 60


@pytest.fixture(params=METADATA_STORES)
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store = METADATA_STORES[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def logged_in(sessions: Sessions, who: Caller = VERA) -> tuple[str, WebLogin]:
    return sessions.opened(sessions.new_link(who, FAR)[0])


def test_a_link_is_for_two_minutes_and_a_session_for_twelve_hours(
    metadata: MetadataStore, clock: HandClock
) -> None:
    sessions = Sessions(metadata, clock.now_ms)
    late, until_ms = sessions.new_link(VERA, FAR)
    assert until_ms == clock.ms + LINK_MS
    clock.ms += LINK_MS
    with pytest.raises(NotIdentifiedError, match="older than two minutes"):
        sessions.opened(late)
    secret, _ = sessions.new_link(VERA, FAR)
    assert sessions.of_link(secret).serial == "5"
    cookie, session = sessions.opened(secret)
    assert sessions.of_cookie(cookie) == session
    for again in (sessions.opened, sessions.of_link):
        with pytest.raises(NotIdentifiedError):
            again(secret)
    with pytest.raises(NotIdentifiedError):
        sessions.opened(cookie)  # the secret of a session opens nothing
    clock.ms += SESSION_MS
    assert sessions.of_cookie(cookie) is sessions.alive(session) is None
    # A certificate that ends earlier ends the session earlier.
    cookie, session = sessions.opened(sessions.new_link(VERA, clock.ms + 5_000)[0])
    assert session.ends_at_ms == clock.ms + 5_000
    clock.ms += 5_000
    assert sessions.of_cookie(cookie) is None


def test_links_and_logins_hold_at_the_server_that_takes_over(
    metadata: MetadataStore, clock: HandClock
) -> None:
    earlier = Sessions(metadata, clock.now_ms)
    used, unused = (earlier.new_link(VERA, FAR)[0] for _ in range(2))
    cookie, session = earlier.opened(used)
    server = Sessions(metadata, clock.now_ms)
    assert server.of_cookie(cookie) == session
    assert server.opened(unused)[1].identity_id == "vera-id"
    with pytest.raises(NotIdentifiedError):
        server.opened(used)  # one link, one session
    earlier.end(session)
    server.refresh()  # as every 15 s
    assert server.of_cookie(cookie) is server.alive(session) is None


def test_what_is_not_the_cookie_of_a_session_opens_nothing_and_costs_no_query(
    metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(metadata)
    cookie, session = logged_in(sessions)
    link, _ = sessions.new_link(VERA, FAR)
    altered = [cookie[:-1] + ("A" if cookie[-1] != "A" else "B"), cookie.swapcase(), link, "A" * 43]
    assert [sessions.of_cookie(each) for each in altered] == [None] * 4
    monkeypatch.setattr(metadata, "snapshot", lambda: pytest.fail("it was looked up"))
    without_form = [
        "",
        cookie[:-1],
        f"{cookie} ",
        session.key,
        "\x00" * 43,
        "é" * 43,
        "'; DROP TABLE",
        "A" * 9000,
    ]
    assert [sessions.of_cookie(each) for each in without_form] == [None] * len(without_form)
    assert sessions.of_cookie(cookie) == session


def test_one_person_cannot_fill_the_table_of_sessions(metadata: MetadataStore, clock: HandClock) -> None:
    sessions = Sessions(metadata, clock.now_ms)
    other, _ = logged_in(sessions, OTTO)
    cookies = []
    for _ in range(51):
        clock.ms += 1
        cookies.append(logged_in(sessions)[0])
    elsewhere = Sessions(metadata, clock.now_ms)
    for each in (sessions, elsewhere):
        assert each.of_cookie(cookies[0]) is None
        assert all(each.of_cookie(cookie) for cookie in (*cookies[1:], other))


def test_links_are_few_and_what_has_ended_goes(metadata: MetadataStore, clock: HandClock) -> None:
    with metadata.transaction() as store:
        for number in range(1_000):
            store.put_web_login(WebLogin(f"{number:064x}", "vera-id", "", False, 0, clock.ms + 1, FAR))
    sessions = Sessions(metadata, clock.now_ms)
    with pytest.raises(StorageError, match="1,000 links wait"):
        sessions.new_link(OTTO, FAR)
    clock.ms += 1
    logged_in(sessions, OTTO)
    with metadata.snapshot() as store:
        assert [each.identity_id for each in store.web_logins()] == ["otto-id"]


def test_logins_come_back_as_they_were_put(metadata: MetadataStore) -> None:
    first, second = (WebLogin(f"{n:064x}", "id", "5\n'", n == 1, 9 - n, 10, FAR) for n in (1, 2))
    with metadata.transaction() as store:
        store.put_web_login(first)
        store.put_web_login(second)
        assert store.web_logins() == [second, first]
        store.put_web_login(changed := replace(first, ends_at_ms=11))
    with metadata.transaction() as store:
        assert store.web_login(first.key) == changed
        store.forget_web_logins([second.key, "f" * 64])
        store.forget_web_logins([])
    with metadata.snapshot() as read:
        assert read.web_logins() == [changed] and read.web_login(second.key) is None


def test_a_restored_backup_has_no_sessions(make_server: Callable[..., Server], short_path: Path) -> None:
    """Somebody may have logged out since it was made."""
    lab = web_lab(make_server, short_path)
    with closing(lab.browser("admin")) as browser:
        cookie = browser.cookies[COOKIE]
        make_backup(lab.server.settings.state_dir, short_path / "backup", without_authority=True)
    restore_backup(short_path / "backup", short_path / "restored")
    store = SqliteStore(short_path / "restored" / "metadata.sqlite")
    assert Sessions(store).of_cookie(cookie) is None
    with store.snapshot() as read:
        assert read.web_logins() == []
    store.close()


def test_a_session_that_another_program_put_into_the_database_holds_until_it_is_taken_out(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    lab = web_lab(make_server, short_path)
    with (
        closing(SqliteStore(lab.server.settings.state_dir / "metadata.sqlite")) as store,
        closing(lab.browser()) as browser,
        closing(lab.browser("admin")) as admin,
    ):
        elsewhere = Sessions(store)
        cookie, session = elsewhere.opened(elsewhere.new_link(lab.caller("viewer"), FAR)[0])
        browser.cookies.set(COOKIE, cookie)
        lab.notice()
        assert browser.get("/").status_code == 200
        # Another person's form, and another person's token, with this cookie.
        forms = (lab.csrf(admin), lab.csrf(browser))
        codes = [browser.post("/campaigns/made-1/pause", data={"csrf": each}).status_code for each in forms]
        assert codes == [403, 403]
        elsewhere.end(session)
        lab.notice()
        assert browser.get("/").status_code == 401
        assert browser.get("/events/campaigns?release=x").status_code == 401
        assert admin.get("/").status_code == 200
