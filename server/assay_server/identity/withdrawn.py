"""The withdrawn certificates in memory, so that a call costs no query."""

from __future__ import annotations

from assay_server.store.sql import MetadataStore


class WithdrawnCertificates:
    """Serial numbers of certificates that were withdrawn though their identity was not. Thread-safe."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._serials: frozenset[str] = frozenset()
        self.refresh()

    def __contains__(self, serial: str) -> bool:
        return serial in self._serials

    def refresh(self) -> None:
        """Read them again: regularly, for changes by other processes, and after each change here."""
        with self._metadata.snapshot() as store:
            self._serials = frozenset(c.serial for c in store.certificates() if c.withdrawn_at_ms)
