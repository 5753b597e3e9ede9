"""Bundles and who sent them, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_core.records.upload import Bundle
from assay_server.store import tables
from assay_server.store.model import KeptBundle
from assay_server.store.parts.record_cache import CachedRecords

_B, _H = tables.bundles.c, tables.bundle_holders.c


class BundleRows(CachedRecords):
    """Bundles and who sent them, in SQL."""

    def bundle(self, sha256: str) -> KeptBundle | None:
        return next(iter(self._bundles(_B.sha256 == sha256)), None)

    def bundles(self) -> list[KeptBundle]:
        """All bundles, in the order of their names."""
        return self._bundles(sa.true())

    def _bundles(self, which: sa.ColumnElement[bool]) -> list[KeptBundle]:
        both = tables.bundles.outerjoin(tables.bundle_holders, _B.sha256 == _H.sha256)
        query = sa.select(tables.bundles, _H.holder, _H.asked_at_ms).select_from(both).where(which)
        bundles: dict[str, KeptBundle] = {}
        holders: dict[str, dict[str, int]] = {}
        for row in self.rows(query.order_by(_B.sha256, _H.holder)):
            bundle = Bundle(row["sha256"], row["bytes"], row["files"])
            of_bundle = holders.setdefault(bundle.sha256, {})
            if row["holder"] is not None:
                of_bundle[row["holder"]] = row["asked_at_ms"]
            bundles[bundle.sha256] = KeptBundle(bundle, row["file"], row["stored_bytes"], of_bundle)
        return list(bundles.values())

    def bundle_bytes(self, holder: str) -> tuple[int, int]:
        """The stored bytes of the bundles that somebody sent, and of all."""
        size = sa.func.coalesce(sa.func.sum(_B.stored_bytes), 0)
        mine = sa.select(size).where(_B.sha256.in_(sa.select(_H.sha256).where(_H.holder == holder)))
        own, every = (self.connection.scalar(query) for query in (mine, sa.select(size)))
        return int(own or 0), int(every or 0)

    def put_bundle(self, kept_bundle: KeptBundle) -> None:
        """Add or replace a bundle with its holders."""
        sha256 = kept_bundle.bundle.sha256
        self.delete_bundle(sha256)
        row = {"sha256": sha256, "bytes": kept_bundle.bundle.bytes, "files": kept_bundle.bundle.files}
        self.write(
            sa.insert(tables.bundles),
            [{**row, "file": kept_bundle.file, "stored_bytes": kept_bundle.stored_bytes}],
        )
        holders = [
            {"sha256": sha256, "holder": who, "asked_at_ms": at} for who, at in kept_bundle.holders.items()
        ]
        self.write(sa.insert(tables.bundle_holders), holders)

    def delete_bundle(self, sha256: str) -> None:
        """Remove a bundle, if it is there."""
        self.write(sa.delete(tables.bundle_holders).where(_H.sha256 == sha256))
        self.write(sa.delete(tables.bundles).where(_B.sha256 == sha256))
