"""The files of workloads: packed on this machine, and sent unless the server has them from this person."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay_client.remote.connection import Connection
from assay_core.bundles.packing import pack_bundle
from assay_core.files.durable import storage_errors
from assay_core.records.upload import Bundle, BundleChunk

_CHUNK_BYTES = 1 << 20


def send_bundles(connection: Connection, text: str, base: Path) -> dict[str, Bundle]:
    """The bundle of each folder that a campaign file names, all of them on the server.

    Raises InputError, with the name, for what cannot be in a bundle.
    """
    folders = bundle_folders(text)
    if not folders:
        return {}
    with tempfile.TemporaryDirectory(prefix="assay-bundles-") as work:
        packed = {folder: Path(work) / str(number) for number, folder in enumerate(folders)}
        bundles = {folder: pack_bundle(base / folder, path) for folder, path in packed.items()}
        missing = set(connection.missing_bundles(tuple(bundles.values())))
        for folder, bundle in bundles.items():
            if bundle.sha256 in missing:
                connection.send_bundle(_chunks(bundle, packed[folder]))
                missing.discard(bundle.sha256)
    return bundles


def bundle_folders(text: str) -> list[str]:
    """The folders that workloads of a campaign file name, each once; none in a file that cannot be read.

    Then, or without the extra "server", the server says what is wrong.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra, and most files name no bundle
    except ModuleNotFoundError:
        return []
    try:
        document: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    workloads = document.get("workloads") if isinstance(document, dict) else None
    listed = workloads if isinstance(workloads, list) else []
    named = [each.get("bundle") for each in listed if isinstance(each, dict)]
    return list(dict.fromkeys(folder for folder in named if isinstance(folder, str) and folder))


def _chunks(bundle: Bundle, path: Path) -> Iterator[BundleChunk]:
    with storage_errors(path), path.open("rb") as file:
        yield BundleChunk(file.read(_CHUNK_BYTES), bundle)
        while data := file.read(_CHUNK_BYTES):
            yield BundleChunk(data)
