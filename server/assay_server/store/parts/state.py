"""The numbers of the state and of its certificate authority, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_server.store import tables
from assay_server.store.parts.record_cache import CachedRecords

STATE_NUMBER = "state"  # a state folder and its database have the same number under this name
_AUTHORITY = "authority"


class StateRows(CachedRecords):
    """The numbers of the state and of its certificate authority, in SQL."""

    def state_number(self) -> int | None:
        """The number of the state whose metadata these are; None: it was given none."""
        return self.number(STATE_NUMBER)

    def keep_state_number(self, number: int) -> None:
        """Give the state its number."""
        self.keep_number(STATE_NUMBER, number)

    def authority_mark(self) -> int | None:
        """What tells the certificate authority of the servers from others; None: they have none."""
        return self.number(_AUTHORITY)

    def keep_authority_mark(self, mark: int) -> None:
        """The servers have this authority from now on."""
        self.keep_number(_AUTHORITY, mark)

    def number(self, name: str) -> int | None:
        """The number that is kept under this name."""
        t = tables.tokens.c
        number = self.connection.scalar(sa.select(t.value).where(t.name == name))
        return None if number is None else int(number)

    def keep_number(self, name: str, number: int) -> None:
        """Keep a number under this name, in the place of another one."""
        self.put(tables.tokens, {"name": name, "value": number})
