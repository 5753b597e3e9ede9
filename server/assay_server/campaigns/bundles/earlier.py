"""Bundles of earlier releases, which described them in files of the state folder instead of the database.

<state>/bundles/<sha256>.tar.z    the compressed archive
<state>/bundles/<sha256>.json     its size, and who sent it when
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay_core.bundles.form import is_hash
from assay_core.files.durable import storage_errors
from assay_core.records.upload import Bundle
from assay_server.store.model import KeptBundle
from assay_server.store.protocols import MetadataStore, RecordStore
from assay_server.store.records import BUNDLES, PACKED

_log = logging.getLogger(__name__)

TOLD = ".json"


def take_over_bundles(metadata: MetadataStore, records: RecordStore, folders: Sequence[Path]) -> None:
    """Take bundles that files of these folders describe into the database and the place of records.

    A description goes last, so whatever interrupts this, the next start goes on. Several servers may do this
    at one moment in one folder: the row of a bundle, which they write in turn, says which file is the bundle,
    and none of them sweeps before it has been through all descriptions. Raises StorageError.
    """
    for folder in dict.fromkeys(folders):
        for told in sorted((folder / BUNDLES).glob(f"*{TOLD}")):
            with storage_errors(told):
                _take_over(metadata, records, told)


def _take_over(metadata: MetadataStore, records: RecordStore, told: Path) -> None:
    packed = told.with_suffix(PACKED)
    found, in_place = _described(told), _is_in_place(records, packed)
    if found is None or not packed.exists():
        if told.exists():  # else another server has just taken it over
            _log.warning(
                "bundle %s is not whole, or its description is damaged: it must be sent again", packed
            )
            told.unlink(missing_ok=True)
        return
    with metadata.snapshot() as store:
        known = store.bundle(found.bundle.sha256)
    moved = known is None and not in_place
    if moved:
        found = replace(found, file=new_bundle_file(found.bundle.sha256))
        records.keep_bundle(found.file, packed)
    with metadata.transaction() as store:
        known = store.bundle(found.bundle.sha256)
        whole = found if known is None else replace(known, holders={**found.holders, **known.holders})
        store.put_bundle(whole)
    told.unlink(missing_ok=True)
    if moved and whole.file != found.file:
        records.remove_bundle(found.file)  # another server was faster
    if not in_place or whole.file != packed.name:
        packed.unlink(missing_ok=True)


def _is_in_place(records: RecordStore, packed: Path) -> bool:
    """Whether a bundle's file is in the place of records already, under the name that it may keep."""
    if records.place is not None or not records.has_bundle(packed.name):
        return False
    with records.reading_bundle(packed.name) as path:
        return path.resolve() == packed.resolve()


def new_bundle_file(sha256: str) -> str:
    """A name that no other file of a bundle has or had, so that removing one never takes another away."""
    return f"{sha256}-{secrets.token_hex(8)}{PACKED}"


def _described(told: Path) -> KeptBundle | None:
    """What a description says; None if it is damaged."""
    try:
        sha256, document = told.stem, json.loads(told.read_bytes())
        bundle = Bundle(sha256, int(document["bytes"]), int(document["files"]))
        holders = {str(who): int(at) for who, at in document["holders"].items()}
        packed = told.with_suffix(PACKED)
        return KeptBundle(bundle, packed.name, packed.stat().st_size, holders) if is_hash(sha256) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
