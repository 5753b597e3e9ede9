"""Links that open a session once, and the sessions of browsers.

A session is bound to the identity that asked for its link: each request looks the identity up again, so a
revocation or another role holds at once. Sessions outlive a restart of the server, so that an open page goes
on after an upgrade: ``web-sessions.json`` in the state folder holds the hashes of their secrets.
Source: docs/security.md, "The live page".
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assay_core.files.durable import storage_errors, write_atomically
from assay_sampling.errors import NotIdentifiedError, NotPermittedError, StorageError
from assay_server.access.caller import OWNER_ID, Caller
from assay_server.clock import wall_ms

_log = logging.getLogger(__name__)

LINK_MS = 2 * 60_000
SESSION_MS = 12 * 3_600_000
FILE = "web-sessions.json"
_SECRET_BYTES = 32
_MOST_LINKS = 1_000
_MOST_SESSIONS = 1_000
_MOST_OF_ONE = 50
_AGAIN = "get a new link: assay login --web"


@dataclass(frozen=True)
class Session:
    """A browser's session: whose it is, with which certificate its link was asked for, and until when.

    ``key``: SHA-256 of its secret, in hexadecimal; the secret itself is only in the browser's cookie.
    """

    key: str
    identity_id: str
    serial: str
    ends_at_ms: int

    @property
    def is_owners(self) -> bool:
        """Whether its link was asked for on the server's own socket."""
        return self.identity_id == OWNER_ID


@dataclass(frozen=True)
class _Link:
    session: Session
    ends_at_ms: int


class Sessions:
    """Links and sessions. Thread-safe.

    Args:
        state: the folder that keeps sessions over restarts.
        now_ms: the wall clock.
    """

    def __init__(self, state: Path, now_ms: Callable[[], int] = wall_ms) -> None:
        self._path = state / FILE
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._links: dict[str, _Link] = {}
        self._sessions = self._kept()

    def new_link(self, caller: Caller, ends_at_ms: int) -> tuple[str, int]:
        """The secret of a new link for the caller, and until when it can be used.

        ``ends_at_ms``: when its session ends at the latest, as the caller's certificate does.
        """
        now_ms = self._now_ms()
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        session = Session("", caller.identity_id, caller.serial, min(now_ms + SESSION_MS, ends_at_ms))
        with self._lock:
            self._links = {key: link for key, link in self._links.items() if link.ends_at_ms > now_ms}
            if len(self._links) >= _MOST_LINKS:
                raise StorageError(
                    "server", f"{_MOST_LINKS:,} links wait to be used", "try again in a minute"
                )
            self._links[_key(secret)] = _Link(session, now_ms + LINK_MS)
        return secret, now_ms + LINK_MS

    def of_link(self, secret: str) -> Session:
        """Whose session a link would open; raises NotIdentifiedError if it cannot be used (any more)."""
        with self._lock:
            link = self._links.get(_key(secret))
        return self._usable(link)

    def opened(self, secret: str) -> tuple[str, Session]:
        """Use up a link: the secret of its new session, and the session. Raises NotIdentifiedError."""
        with self._lock:
            session = self._usable(self._links.pop(_key(secret), None))
            cookie = secrets.token_urlsafe(_SECRET_BYTES)
            session = replace(session, key=_key(cookie))
            self._make_room(session.identity_id)
            self._sessions[session.key] = session
            self._keep()
        return cookie, session

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie; None for an unknown cookie, or if the session has ended."""
        found = self._sessions.get(_key(cookie)) if cookie else None
        return found if found is not None and found.ends_at_ms > self._now_ms() else None

    def alive(self, session: Session) -> Session | None:
        """The session, unless it was ended or is over."""
        found = self._sessions.get(session.key)
        return found if found is not None and found.ends_at_ms > self._now_ms() else None

    def end(self, session: Session) -> None:
        """Log out."""
        with self._lock:
            self._sessions.pop(session.key, None)
            self._keep()

    def _usable(self, link: _Link | None) -> Session:
        if link is None or link.ends_at_ms <= self._now_ms():
            raise NotIdentifiedError("link", "it was used, or is older than two minutes", _AGAIN)
        return link.session

    def _make_room(self, identity_id: str) -> None:
        """Drop sessions that have ended, and the oldest where there are too many."""
        now_ms = self._now_ms()
        alive = {key: each for key, each in self._sessions.items() if each.ends_at_ms > now_ms}
        mine = [key for key, each in alive.items() if each.identity_id == identity_id]
        for key in mine[: max(0, len(mine) - _MOST_OF_ONE + 1)]:
            del alive[key]
        for key in list(alive)[: max(0, len(alive) - _MOST_SESSIONS + 1)]:
            del alive[key]
        self._sessions = alive

    def _kept(self) -> dict[str, Session]:
        """The sessions of an earlier process; a file that cannot be read costs only new logins."""
        try:
            found = json.loads(self._path.read_bytes())
            return {each["key"]: Session(**each) for each in found["sessions"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError):
            _log.warning("%s cannot be read: people log in to the page again", self._path)
            return {}

    def _keep(self) -> None:
        document = {"sessions": [asdict(each) for each in self._sessions.values()]}
        try:
            with storage_errors(self._path):
                write_atomically(self._path, json.dumps(document).encode())
        except StorageError as error:
            _log.warning("sessions of the page end with this process: %s", error)


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
