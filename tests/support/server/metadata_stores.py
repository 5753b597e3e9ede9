"""Every metadata store that there is, for suites that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server import postgresql_server

# By name; each is given a folder of its own, which it may use or not.
METADATA_STORES: dict[str, Callable[[Path], MetadataStore]] = {
    "sqlite file": lambda folder: SqliteStore(folder / "metadata.sqlite"),
    "sqlite in memory": lambda _: SqliteStore(None),
    **postgresql_server.metadata_stores(),  # only where a server is given
}
