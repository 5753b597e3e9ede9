"""Campaigns as files: exported from a server, imported into one, deleted from it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay_client.remote.connection import Connection
from assay_core.files.durable import replacing, storage_errors
from assay_core.records.archive import DeletedCampaign, ImportedCampaign
from assay_sampling.errors import InputError, ParameterError, StorageError

_CHUNK_BYTES = 1 << 20


def export_to(connection: Connection, campaign_id: str, path: Path) -> dict[str, Any]:
    """Write the archive of a campaign that has ended to a new file, complete and durable, or not at all."""
    if path.exists():
        raise ParameterError(str(path), "it exists already", "name a new file: none is replaced")
    size = 0
    with storage_errors(path), replacing(path, private=True) as file:
        for data in connection.export(campaign_id):
            file.write(data)
            size += len(data)
        file.flush()
        _require_whole(Path(file.name))
    return {"campaign_id": campaign_id, "file": str(path), "bytes": size}


def _require_whole(path: Path) -> None:
    """Raises StorageError unless every file of the archive is as its manifest says: read from the disk."""
    with tarfile.open(path) as tar:
        members = {member.name: member for member in tar}
        manifest = tar.extractfile(members["manifest.json"]) if "manifest.json" in members else None
        named = json.loads(manifest.read())["files"] if manifest is not None else []
        for entry in named:
            read = tar.extractfile(members[entry["name"]]) if entry["name"] in members else None
            hashing = hashlib.blake2b(digest_size=32)
            while read is not None and (data := read.read(_CHUNK_BYTES)):
                hashing.update(data)
            if hashing.hexdigest() != entry["hash"]:
                raise StorageError(str(path), f"{entry['name']} did not arrive whole", "export it again")
        if not named:
            raise StorageError(str(path), "it has no manifest", "export it again")


def import_from(connection: Connection, path: Path) -> ImportedCampaign:
    """Hand an archive to the server, which checks it and takes it in, whole or not at all."""
    if not path.is_file():
        raise InputError(str(path), "there is no such file", "name what 'assay lab campaigns export' wrote")
    return connection.take_in(_pieces(path))


def _pieces(path: Path) -> Iterator[bytes]:
    with storage_errors(path), path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            yield data


def archive_to(
    connection: Connection, campaign_id: str, path: Path, *, confirmed: bool, tell: Callable[[str], None]
) -> DeletedCampaign:
    """Export a campaign, check the file, then delete the campaign."""
    if not confirmed:
        raise ParameterError(
            f"campaign {campaign_id}",
            "it is deleted from the server once its archive is written",
            "confirm that with --yes; 'assay lab campaigns export' keeps it there",
        )
    export_to(connection, campaign_id, path)
    tell(f"{path} is written and whole; deleting {campaign_id}")
    return connection.delete(campaign_id, confirmed=True)
