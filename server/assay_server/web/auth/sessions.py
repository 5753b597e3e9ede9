"""Links that open a session once, and the sessions of browsers.

A session is bound to the identity that asked for its link: each request looks the identity up again, so a
revocation or another role holds at once. Links and sessions are in the database, by the hashes of their
secrets, so they outlive a restart and hold at a standby that takes over.
Source: docs/security.md, "The live page".
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace

from assay_sampling.errors import NotIdentifiedError, NotPermittedError, StorageError
from assay_server.access.caller import Caller
from assay_server.clock import wall_ms
from assay_server.store.people import WebLogin
from assay_server.store.sql import MetadataStore, SqlTransaction

LINK_MS = 2 * 60_000
SESSION_MS = 12 * 3_600_000
_SECRET_BYTES = 32
_MOST_LINKS = 1_000
_MOST_SESSIONS = 1_000
_MOST_OF_ONE = 50
_AGAIN = "get a new link: assay lab login --web"


class Sessions:
    """Links and sessions in a database. Thread-safe.

    Sessions are in memory, so that a request costs no query. Methods may block, and raise StorageError,
    unless they say otherwise.

    Args:
        metadata: keeps them.
        now_ms: the server's clock.
    """

    def __init__(self, metadata: MetadataStore, now_ms: Callable[[], int] = wall_ms) -> None:
        self._metadata = metadata
        self._now_ms = now_ms
        # Logins, logouts and refreshes hold it while they ask the database, so that nothing is in memory
        # which a later answer has removed.
        self._lock = threading.Lock()
        self._logins: dict[str, WebLogin] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read sessions again: regularly, for those that another program ended."""
        with self._lock, self._metadata.snapshot() as store:
            self._logins = {each.key: each for each in store.web_logins() if each.opened}

    def new_link(self, caller: Caller, ends_at_ms: int) -> tuple[str, int]:
        """The secret of a new link for the caller, and until when it can be used.

        ``ends_at_ms``: when its session ends at the latest, as the caller's certificate does.
        """
        now_ms = self._now_ms()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        link = WebLogin(
            _key(secret),
            caller.identity_id,
            caller.serial,
            opened=False,
            made_at_ms=now_ms,
            ends_at_ms=now_ms + LINK_MS,
            session_ends_at_ms=min(now_ms + SESSION_MS, ends_at_ms),
        )
        with self._metadata.transaction() as store:
            links = [each for each in self._still_there(store) if not each.opened]
            if len(links) >= _MOST_LINKS:
                cause = f"{_MOST_LINKS:,} links wait to be used"
                raise StorageError("server", cause, "try again in a minute")
            store.put_web_login(link)
        return secret, link.ends_at_ms

    def of_link(self, secret: str) -> WebLogin:
        """The link of a secret; raises NotIdentifiedError if it cannot be used (any more)."""
        with self._metadata.snapshot() as store:
            return self._usable(store.web_login(_key(secret)))

    def opened(self, secret: str) -> tuple[str, WebLogin]:
        """Use up a link: the secret of its new session, and the session. Raises NotIdentifiedError."""
        cookie = secrets.token_urlsafe(_SECRET_BYTES)
        with self._lock:
            with self._metadata.transaction() as store:
                link = self._usable(store.web_login(_key(secret)))
                session = replace(
                    link,
                    key=_key(cookie),
                    opened=True,
                    made_at_ms=self._now_ms(),
                    ends_at_ms=link.session_ends_at_ms,
                )
                store.forget_web_logins([link.key])
                self._make_room(store, session.identity_id)
                store.put_web_login(session)
            self._logins[session.key] = session
        return cookie, session

    def of_cookie(self, cookie: str) -> WebLogin | None:
        """The session of a cookie; None if there is none. Does not block."""
        return self._alive(self._logins.get(_key(cookie))) if cookie else None

    def alive(self, session: WebLogin) -> WebLogin | None:
        """The session, unless it was ended or is over. Does not block."""
        return self._alive(self._logins.get(session.key))

    def end(self, session: WebLogin) -> None:
        """Log out."""
        with self._lock:
            with self._metadata.transaction() as store:
                store.forget_web_logins([session.key])
            self._logins.pop(session.key, None)

    def _alive(self, session: WebLogin | None) -> WebLogin | None:
        return session if session is not None and session.ends_at_ms > self._now_ms() else None

    def _usable(self, link: WebLogin | None) -> WebLogin:
        if link is None or link.opened or link.ends_at_ms <= self._now_ms():
            raise NotIdentifiedError("link", "it was used, or is older than two minutes", _AGAIN)
        return link

    def _still_there(self, store: SqlTransaction) -> list[WebLogin]:
        """Links and sessions that have not ended, the oldest first; the others are removed."""
        now_ms, every = self._now_ms(), store.web_logins()
        store.forget_web_logins([each.key for each in every if each.ends_at_ms <= now_ms])
        return [each for each in every if each.ends_at_ms > now_ms]

    def _make_room(self, store: SqlTransaction, identity_id: str) -> None:
        """Drop sessions that have ended, and the oldest where there are too many."""
        alive = [each for each in self._still_there(store) if each.opened]
        mine = [each for each in alive if each.identity_id == identity_id]
        gone = {each.key for each in mine[: max(0, len(mine) - _MOST_OF_ONE + 1)]}
        left = [each.key for each in alive if each.key not in gone]
        gone.update(left[: max(0, len(left) - _MOST_SESSIONS + 1)])
        store.forget_web_logins(sorted(gone))
        for key in gone:
            self._logins.pop(key, None)


def csrf_token(cookie: str) -> str:
    """The token that forms of a session carry: who cannot read the page cannot know it."""
    return hmac.new(cookie.encode(), b"assay form", hashlib.sha256).hexdigest()


def require_csrf(cookie: str, token: str) -> None:
    """Raises NotPermittedError unless a form came from a page of the session."""
    if not hmac.compare_digest(csrf_token(cookie).encode(), token.encode()):
        raise NotPermittedError(
            "form", "it did not come from a page of this session", "reload the page and try again"
        )


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
