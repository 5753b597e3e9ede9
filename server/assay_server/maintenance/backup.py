"""A backup of a server's state, also while it serves: one moment of the database, and the files it names.

First the database is copied, then the files that the copy names: published files are never written to again,
so they are still as the database says. A file that is gone by then, or not as published, is a fault that the
backup names; everything else is in it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.program import distribution_version
from assay_sampling.errors import ParameterError
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase
from assay_server.identity.authority import read_authority
from assay_server.maintenance.authority_key import CERTIFICATE, ENCRYPTED_KEY, encrypted_key
from assay_server.maintenance.manifest import MANIFEST, BackupFault, BackupManifest, KeptFile
from assay_server.maintenance.stored_files import METADATA, StoredFile, copy_database, files_named
from assay_server.maintenance.targets import FolderTarget, Target, new_target
from assay_server.records.local_copy import at_hand
from assay_server.records.opening import look_at_records


@dataclass(frozen=True)
class MadeBackup:
    """A backup that was made; ``linked``: how many of its files are hard links to those of the server."""

    manifest: BackupManifest
    linked: int


def make_backup(
    state: Path,
    place: Path,
    *,
    passphrase: bytes | None = None,
    without_authority: bool = False,
    link: bool = True,
    asked: AskedDatabase | None = None,
) -> MadeBackup:
    """Back up the state folder to ``place``, a new folder or a new ``.tar`` file.

    ``passphrase`` encrypts the certificate authority's key. ``asked``: where the database is, if the folder
    does not say it; a backup always holds a SQLite file. Raises ParameterError if it is needed and not
    given or if ``place`` exists, StorageError if the database is damaged or a disk refuses.
    """
    authority = None if without_authority else read_authority(state)
    if authority is not None and passphrase is None:
        raise ParameterError(
            "--passphrase-file",
            "this server has a certificate authority, whose key is never backed up unencrypted",
            "give a file with a passphrase, and keep it elsewhere; or give --without-authority",
        )
    with new_target(place, link=link) as target, storage_errors(place):
        kept_files: list[KeptFile] = []
        with tempfile.TemporaryDirectory(prefix=".assay-backup-", dir=place.parent) as folder:
            database = Path(folder) / METADATA
            copy_database(state, database, asked)
            records = look_at_records(state)
            named = files_named(database, records)
            kept_files.append(target.add(METADATA, database))
            faults: list[BackupFault] = []
            for file in named.files:
                with at_hand(state, records, database, file.name) as path:
                    _keep(path, file, target, kept_files, faults)
        if authority is not None and passphrase is not None:
            kept_files.append(target.add_bytes(CERTIFICATE, authority.pem))
            kept_files.append(target.add_bytes(ENCRYPTED_KEY, encrypted_key(authority, passphrase)))
        manifest = BackupManifest(
            made_at_ms=wall_ms(),
            release=distribution_version(),
            schema_revision=named.revision,
            campaigns=named.campaigns,
            authority=authority is not None,
            files=tuple(kept_files),
            faults=tuple(faults),
        )
        target.add_bytes(MANIFEST, manifest.model_dump_json(indent=1).encode())
    return MadeBackup(manifest, target.linked if isinstance(target, FolderTarget) else 0)


def _keep(
    path: Path, file: StoredFile, target: Target, kept_files: list[KeptFile], faults: list[BackupFault]
) -> None:
    try:
        kept_file = target.add(file.name, path, most_bytes=file.most_bytes, fixed=file.fixed)
    except FileNotFoundError:
        if file.fixed:  # staged segments go when their attempt is published
            faults.append(BackupFault(name=file.name, cause="it is missing"))
        return
    kept_files.append(kept_file)
    if file.content_hash and kept_file.hash != file.content_hash:
        faults.append(BackupFault(name=file.name, cause="it has changed since it was published"))
