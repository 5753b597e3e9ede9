"""Links to the live page, for whoever asks over gRPC."""

from __future__ import annotations

from assay_core.records.identity import WebLink, WebLinkAsked
from assay_sampling.errors import NotIdentifiedError
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.store.sql import MetadataStore
from assay_server.web.auth.sessions import Sessions

_FOR_EVER_MS = 1 << 62


class WebLinks:
    """Makes links. ``base``: scheme, host and port of the page, set once it listens."""

    def __init__(self, sessions: Sessions, metadata: MetadataStore) -> None:
        self._sessions = sessions
        self._metadata = metadata
        self.base = ""

    def make(self, _request: WebLinkAsked) -> WebLink:
        """A link for the caller. Its session ends with the caller's certificate, or earlier. May block."""
        caller = current_caller()
        if caller is None:
            raise NotIdentifiedError("link", "nobody asked for it", "connect with a certificate")
        ends_at_ms = _FOR_EVER_MS
        if caller.serial:
            with self._metadata.snapshot() as store:
                issued = store.certificates(caller.identity_id)
            ends_at_ms = next((c.expires_at_ms for c in issued if c.serial == caller.serial), ends_at_ms)
        note_subject("link to the live page")
        secret, until_ms = self._sessions.new_link(caller, ends_at_ms)
        return WebLink(f"{self.base}/login?link={secret}", until_ms)
