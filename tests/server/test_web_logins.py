"""Links and sessions of the live page, over every metadata store, and at two servers of one database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay_core.identity.roles import Role
from assay_sampling.errors import NotIdentifiedError, StorageError
from assay_server.access.caller import Caller
from assay_server.app import Server
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.restore import restore_backup
from assay_server.store.access.people import WebLogin
from assay_server.store.sql import MetadataStore, SqlTransaction
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
    assert sessions.known(cookie) == sessions.looked_up(cookie) == session
    for again in (sessions.opened, sessions.of_link):
        with pytest.raises(NotIdentifiedError):
            again(secret)
    with pytest.raises(NotIdentifiedError):
        sessions.opened(cookie)  # the secret of a session opens nothing
    clock.ms += SESSION_MS
    assert sessions.known(cookie) is sessions.looked_up(cookie) is sessions.alive(session) is None
    # A certificate that ends earlier ends the session earlier.
    cookie, session = sessions.opened(sessions.new_link(VERA, clock.ms + 5_000)[0])
    assert session.ends_at_ms == clock.ms + 5_000
    clock.ms += 5_000
    assert sessions.looked_up(cookie) is None


def test_a_login_at_one_server_holds_at_the_other_and_so_does_the_logout(
    metadata: MetadataStore, clock: HandClock
) -> None:
    here, there = (Sessions(metadata, clock.now_ms) for _ in range(2))
    secret, _ = here.new_link(VERA, FAR)
    cookie, session = there.opened(secret)
    with pytest.raises(NotIdentifiedError):
        here.opened(secret)  # one link, one session, whichever server is asked
    assert here.known(cookie) is None
    assert here.looked_up(cookie) == here.known(cookie) == session
    there.end(session)
    assert there.known(cookie) is there.looked_up(cookie) is None
    here.refresh()  # as every 15 s
    assert here.known(cookie) is here.looked_up(cookie) is here.alive(session) is None


def test_what_is_not_the_cookie_of_a_session_opens_nothing_and_costs_no_query(
    metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(metadata)
    cookie, session = logged_in(sessions)
    link, _ = sessions.new_link(VERA, FAR)
    altered = [cookie[:-1] + ("A" if cookie[-1] != "A" else "B"), cookie.swapcase(), link, "A" * 43]
    assert [sessions.looked_up(each) for each in altered] == [None] * 4
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
    assert [sessions.looked_up(each) for each in without_form] == [None] * len(without_form)
    assert sessions.looked_up(cookie) == session


def test_people_log_in_and_out_while_a_strangers_cookie_is_looked_up(
    metadata: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that ended meanwhile is not kept in memory by a lookup that began before."""
    here, elsewhere = Sessions(metadata), Sessions(metadata)
    mine, other = logged_in(here)[1], logged_in(elsewhere)
    link, _ = here.new_link(OTTO, FAR)
    asked, go, snapshot = threading.Event(), threading.Event(), metadata.snapshot

    def hanging() -> AbstractContextManager[SqlTransaction]:
        found = snapshot()
        with found as store:
            answers = {each.key: each for each in store.web_logins()}
        if threading.current_thread() is not threading.main_thread():
            asked.set()
            assert go.wait(60)
        reader: Any = SimpleNamespace(web_login=answers.get, web_logins=lambda: list(answers.values()))
        return nullcontext(reader)

    monkeypatch.setattr(metadata, "snapshot", hanging)
    with ThreadPoolExecutor(1) as threads:
        lookup = threads.submit(here.looked_up, other[0])
        try:
            assert asked.wait(60)
            here.end(mine)
            assert here.opened(link)[1].identity_id == "otto-id"
            elsewhere.end(other[1])
            here.refresh()
        finally:
            go.set()
        lookup.result(60)
    assert here.known(other[0]) is None and here.looked_up(other[0]) is None


def test_strangers_whose_cookies_are_looked_up_leave_the_page_to_those_who_are_logged_in(
    make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database hangs. Two lookups are under way, 16 wait, and further strangers are refused."""
    lab, go = web_lab(make_server, short_path), threading.Event()
    assert lab.server.page is not None
    monkeypatch.setattr(lab.server.page.sessions, "looked_up", lambda _cookie: go.wait(60) and None)
    with ExitStack() as stack:
        admin = stack.enter_context(closing(lab.browser("admin")))
        threads = stack.enter_context(ThreadPoolExecutor(30))
        stack.callback(go.set)

        def stranger(number: int) -> int:
            with closing(lab.browser()) as browser:
                browser.cookies.set(COOKIE, f"{number:043d}")
                return browser.get("/").status_code

        asked = [threads.submit(stranger, number) for number in range(30)]
        answers = as_completed(asked, 60)
        assert [next(answers).result() for _ in range(12)] == [503] * 12
        assert admin.get("/").status_code == 200
        assert admin.get("/gpus").status_code == 200
        go.set()
        assert [each.result() for each in answers] == [401] * 18


def test_one_person_cannot_fill_the_table_of_sessions(metadata: MetadataStore, clock: HandClock) -> None:
    sessions = Sessions(metadata, clock.now_ms)
    other, _ = logged_in(sessions, OTTO)
    cookies = []
    for _ in range(51):
        clock.ms += 1
        cookies.append(logged_in(sessions)[0])
    elsewhere = Sessions(metadata, clock.now_ms)
    for each in (sessions, elsewhere):
        assert each.looked_up(cookies[0]) is None
        assert all(each.looked_up(cookie) for cookie in (*cookies[1:], other))


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
    assert Sessions(store).looked_up(cookie) is None
    with store.snapshot() as read:
        assert read.web_logins() == []
    store.close()


def test_a_page_lets_in_who_logged_in_at_another_server_until_the_logout_there(
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
