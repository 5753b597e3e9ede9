"""Bundles of submitters in a folder, each under a name of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from assay_core.files.durable import make_folder, replacing, storage_errors, sync_directory

BUNDLES, PACKED = "bundles", ".tar.z"


class BundleFolder:
    """``<state>/bundles/<sha256>-9d5c.tar.z``."""

    def __init__(self, state: Path) -> None:
        self.bundles_folder = state / BUNDLES

    def keep_bundle(self, file: str, source: Path) -> None:
        path = self.bundles_folder / file
        with storage_errors(path):
            make_folder(path.parent)
            try:
                os.link(source, path)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP):
                    raise
                with source.open("rb") as content, replacing(path) as copy:  # of another disk
                    shutil.copyfileobj(content, copy)
            sync_directory(path.parent)

    @contextlib.contextmanager
    def reading_bundle(self, file: str) -> Iterator[Path]:
        yield self.bundles_folder / file

    def has_bundle(self, file: str) -> bool:
        with storage_errors(self.bundles_folder):
            return (self.bundles_folder / file).exists()

    def remove_bundle(self, file: str) -> None:
        with storage_errors(self.bundles_folder):
            (self.bundles_folder / file).unlink(missing_ok=True)
