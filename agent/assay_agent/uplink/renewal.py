"""Keeps the agent's certificate valid: renews it, and takes over what ``assay-agent join`` brings."""

from __future__ import annotations

import logging
import time

from assay_agent.uplink.connection import Connection
from assay_core.identity.credentials import Credentials, CredentialsFolder
from assay_sampling.errors import AssayError

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0


class Renewal:
    """Looks after the credentials of a connection; :meth:`tick` is called regularly, from one thread.

    Args:
        folder: where the credentials are kept.
        connection: uses them.
        longest_pause_seconds: between two looks at them.
    """

    def __init__(
        self,
        folder: CredentialsFolder,
        connection: Connection,
        longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._folder = folder
        self._connection = connection
        self._longest_pause_seconds = longest_pause_seconds
        self._last_stamp = self._stamp()
        self._next_look = 0.0
        self._logged: type[AssayError] | None = None

    def tick(self) -> None:
        """Renew the certificate if it is time or has expired; errors are logged, and it is tried again."""
        credentials = self._connection.credentials
        if credentials is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._pause_seconds(credentials)
        try:
            credentials = self._joined_again(credentials)
            if credentials.renewal_due:
                renewed = self._connection.renew(_RENEW_SECONDS)
                self._folder.write(renewed)
                self._take(renewed)
                _log.info("the certificate was renewed: %s", renewed.identity.serial)
        except AssayError as error:
            if self._logged is not type(error):
                _log.warning("the certificate is not renewed: %s", error)
            self._logged = type(error)

    def _joined_again(self, credentials: Credentials) -> Credentials:
        """The credentials that somebody has put into the folder meanwhile, else those in use."""
        if self._stamp() == self._last_stamp:
            return credentials
        replacement = self._folder.read()
        self._last_stamp = self._stamp()
        if replacement is None or replacement.identity.identity_id != credentials.identity.identity_id:
            return credentials
        if replacement.certificate != credentials.certificate:
            self._take(replacement)
            _log.info("the certificate was replaced: %s", replacement.identity.serial)
        return replacement

    def _take(self, credentials: Credentials) -> None:
        self._connection.use(credentials)
        self._last_stamp = self._stamp()
        self._logged = None

    def _stamp(self) -> tuple[int, int]:
        """Changes whenever the file is replaced."""
        try:
            status = self._folder.path.stat()
        except OSError:
            return (0, 0)
        return status.st_ino, status.st_mtime_ns

    def _pause_seconds(self, credentials: Credentials) -> float:
        """Between two looks: short-lived certificates are looked at more often."""
        identity = credentials.identity
        return min(self._longest_pause_seconds, (identity.not_after_ms - identity.not_before_ms) / 1000 / 50)
