"""Fencing tokens in SQL."""

from __future__ import annotations

from assay_server.store import statements, tables
from assay_server.store.parts.known import KnownRows
from assay_server.store.tokens import first_of_epoch


class TokenRows(KnownRows):
    """Fencing tokens in SQL."""

    def next_token(self) -> int:
        token = self._last_token() + 1
        self._keep_token(token)
        return token

    def begin_epoch(self, now_ms: int) -> int:
        epoch, token = first_of_epoch(self._last_token(), now_ms)
        self._keep_token(token)
        return epoch

    def _last_token(self) -> int:
        return int(self._driver.scalar(statements.last_token(), {}) or 0)

    def _keep_token(self, token: int) -> None:
        if not self._driver.write(statements.keep_token(), {"value": token}):
            self._driver.write(statements.insert_into(tables.tokens), {"name": "lease", "value": token})
