"""The identities and withdrawn certificates in memory, so that a call costs no query.

They are read again regularly and after each change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore

# A revocation by another process on the same store holds within a minute; one in this process at once.
REFRESH_SECONDS = 15.0

Listener = Callable[[frozenset[str]], None]


class IdentityDirectory:
    """All identities of the store, and the certificates that were withdrawn though theirs was not.

    Thread-safe.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._identities: dict[str, Identity] = {}
        self._withdrawn: frozenset[str] = frozenset()
        self.refresh()

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with the identities that changed, in the thread that noticed."""
        self._listeners.append(listener)

    def identity(self, identity_id: str) -> Identity | None:
        """The identity as it was last read; None if it was not there then. Does not block."""
        return self._identities.get(identity_id)

    def looked_up(self, identity_id: str) -> Identity | None:
        """The identity, from the store if it is new; may block."""
        identity = self._identities.get(identity_id)
        if identity is None:
            with self._metadata.snapshot() as store:
                identity = store.identity(identity_id)
            if identity is not None:
                self.refresh()
        return identity

    def is_withdrawn(self, serial: str) -> bool:
        """Whether the certificate with this number was withdrawn, as it was last read. Does not block."""
        return serial in self._withdrawn

    def refresh(self) -> None:
        """Read them all; call this after every transaction that changed some."""
        with self._lock:
            with self._metadata.snapshot() as store:
                self._withdrawn = frozenset(c.serial for c in store.certificates() if c.withdrawn_at_ms)
                now = {each.identity_id: each for each in store.identities()}
            before, self._identities = self._identities, now
        changed = {one for one in before.keys() | now.keys() if before.get(one) != now.get(one)}
        if changed:
            for listener in self._listeners:
                listener(frozenset(changed))
