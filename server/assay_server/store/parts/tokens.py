"""Fencing tokens, and the number of the state, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_server.store import statements, tables
from assay_server.store.parts.known import KnownRows
from assay_server.store.tokens import first_of_epoch

STATE_NUMBER = "state"  # a state folder and its database have the same number under this name
_AUTHORITY = "authority"


class TokenRows(KnownRows):
    """Fencing tokens, and the number of the state, in SQL."""

    def state_number(self) -> int | None:
        """The number of the state whose metadata these are; None: it was given none."""
        t = tables.tokens.c
        found = self.connection.scalar(sa.select(t.value).where(t.name == STATE_NUMBER))
        return None if found is None else int(found)

    def keep_state_number(self, number: int) -> None:
        """Give the state its number."""
        self.write(sa.insert(tables.tokens), [{"name": STATE_NUMBER, "value": number}])

    def authority_mark(self) -> int | None:
        """What tells the certificate authority of the servers from others; None: they have none."""
        t = tables.tokens.c
        found = self.connection.scalar(sa.select(t.value).where(t.name == _AUTHORITY))
        return None if found is None else int(found)

    def keep_authority_mark(self, mark: int) -> None:
        """The servers have this authority from now on."""
        self.write(sa.insert(tables.tokens), [{"name": _AUTHORITY, "value": mark}])

    def next_token(self) -> int:
        """A fencing token larger than all earlier ones, including those before a restart."""
        token = self.driver.scalar(statements.advance_token(), {})
        if token is not None:
            return int(token)
        self._keep_token(1)
        return 1

    def begin_epoch(self, now_ms: int) -> int:
        """Begin a later epoch for all further tokens; returns it. ``now_ms``: by the wall clock.

        Tokens of a state that a restored backup replaced never come again: the epoch is at least the
        millisecond of the start, and its first token is chosen at random.
        """
        epoch, token = first_of_epoch(self._last_token(), now_ms)
        self._keep_token(token)
        return epoch

    def _last_token(self) -> int:
        return int(self.driver.scalar(statements.last_token(), {}) or 0)

    def _keep_token(self, token: int) -> None:
        if not self.driver.write(statements.keep_token(), {"value": token}):
            self.driver.write(statements.insert_into(tables.tokens), {"name": "lease", "value": token})
