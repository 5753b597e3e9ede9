"""A server's state from a backup: every file is compared with its hash before anything takes its place.

The restored folder begins a new epoch of fencing tokens, so that no token given out after the backup ever
returns (docs/server-state.md).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files.durable import make_folder, storage_errors, sync_directory, sync_file
from assay_core.files.private_folders import private_opener
from assay_core.identity.roles import IdentityKind, Role
from assay_sampling.errors import AssayError, InputError, ParameterError, StorageError
from assay_server.clock import wall_ms
from assay_server.identity.authority import write_authority
from assay_server.maintenance.authority_key import CERTIFICATE, ENCRYPTED_KEY, decrypted_authority
from assay_server.maintenance.database_copy import METADATA, copy_database
from assay_server.maintenance.manifest import (
    BACKUP_VERSION,
    MANIFEST,
    BackupManifest,
    HashedReader,
    KeptFile,
    parse_manifest,
)
from assay_server.state_lock import locked_state
from assay_server.store.people import Identity, StoredCertificate, StoredToken
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

# Who may more comes later.
_RANKS = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True)
class Restored:
    """``replaced``: where the folder went whose place the restored one took; None: there was none.

    ``revocations``: how many identities, certificates and tokens lost again what they had lost in that
    folder; None: there was none, or its database cannot be read.
    """

    manifest: BackupManifest
    replaced: Path | None
    revocations: int | None = None


def restore_backup(
    place: Path,
    state: Path,
    *,
    passphrase: bytes | None = None,
    without_authority: bool = False,
    replace: bool = False,
) -> Restored:
    """Make ``state`` from a backup.

    A folder that is there is refused, or with ``replace`` moved beside; one in use is always refused. Raises
    ParameterError, InputError if ``place`` is not a backup, StorageError if it is damaged or a disk refuses.
    """
    with storage_errors(state), _opened(place, state) as backup, _locked_place(state, replace=replace):
        manifest = _manifest(backup, place)
        if manifest.authority and passphrase is None and not without_authority:
            raise ParameterError(
                "--passphrase-file",
                "the backup has the certificate authority's key, encrypted",
                "give the file with its passphrase, or --without-authority: everybody then enrols again",
            )
        working = state.with_name(f"{state.name}.restoring-{os.getpid()}")
        make_folder(working)
        try:
            for file in manifest.files:
                if file.name not in (CERTIFICATE, ENCRYPTED_KEY):
                    _copy_checked(file, backup / file.name, working / file.name)
            if manifest.authority and passphrase is not None and not without_authority:
                data = [(backup / name).read_bytes() for name in (CERTIFICATE, ENCRYPTED_KEY)]
                write_authority(decrypted_authority(data[0], data[1], passphrase, backup), working)
            newer = memberships_of(state) if _is_used(state) else None
            revocations = _begin_epoch(working, newer)
            replaced = _make_way(state)
            working.rename(state)
            sync_directory(state.parent)
        except BaseException:
            shutil.rmtree(working, ignore_errors=True)
            raise
    return Restored(manifest, replaced, revocations)


def _manifest(backup: Path, place: Path) -> BackupManifest:
    try:
        data = (backup / MANIFEST).read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            str(place), f"it is not a whole backup: it has no {MANIFEST}", "name what 'backup' made"
        ) from error
    return parse_manifest(data, BackupManifest, place, BACKUP_VERSION)


def _copy_checked(kept_file: KeptFile, source: Path, target: Path) -> None:
    """Copy a file of a backup; raises StorageError if it is not as it was kept."""
    make_folder(target.parent)
    try:
        with source.open("rb") as read, open(target, "xb", opener=private_opener) as written:
            reader = HashedReader(read)
            shutil.copyfileobj(reader, written)
    except FileNotFoundError as error:
        raise StorageError(str(source), "it is missing from the backup", "use another backup") from error
    sync_file(target)
    if reader.kept_file(kept_file.name) != kept_file:
        raise StorageError(str(source), "it has changed since the backup was made", "use another backup")


def _begin_epoch(state: Path, newer: Memberships | None) -> int | None:
    """Begin a new epoch of tokens, and revoke what was revoked since; returns how much that was."""
    with contextlib.closing(SqliteStore(state / METADATA)) as store, store.transaction() as transaction:
        transaction.begin_epoch(wall_ms())
        # Also those that ended since the backup: people log in to the live page again.
        transaction.forget_web_logins([each.key for each in transaction.web_logins()])
        return None if newer is None else take_over(newer, transaction)


@contextlib.contextmanager
def _opened(place: Path, state: Path) -> Iterator[Path]:
    """The backup's files as a folder."""
    if place.is_dir():
        yield place
        return
    unpacked = state.with_name(f"{state.name}.unpacking-{os.getpid()}")
    make_folder(unpacked)
    try:
        with tarfile.open(place) as tar:
            tar.extractall(unpacked, filter="data")
        yield unpacked
    except (tarfile.TarError, EOFError) as error:
        raise InputError(str(place), f"it is not a backup ({error})", "name what 'backup' made") from error
    except FileNotFoundError as error:
        if error.filename and Path(error.filename) == place:
            raise InputError(str(place), "there is no such backup", "name what 'backup' made") from error
        raise
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


@contextlib.contextmanager
def _locked_place(state: Path, *, replace: bool) -> Iterator[None]:
    """Hold the place of the state folder against servers; raises StorageError if there is one to stay."""
    if not state.exists():
        make_folder(state.parent)
        yield
        return
    with locked_state(state):
        if _is_used(state) and not replace:
            raise StorageError(
                str(state),
                "there is a state folder already",
                "name a new one, or give --replace: then this one is moved beside it, and nothing is removed",
            )
        yield


def _make_way(state: Path) -> Path | None:
    """Make the place of the state folder free; returns where the folder went that was there."""
    if not state.exists():
        return None
    if not _is_used(state):
        (state / "lock").unlink(missing_ok=True)
        state.rmdir()
        return None
    aside = state.with_name(f"{state.name}.replaced-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}")
    state.rename(aside)
    return aside


def _is_used(state: Path) -> bool:
    return state.exists() and any(path.name != "lock" for path in state.iterdir())


@dataclass(frozen=True)
class Memberships:
    """Identities, certificates and tokens of a state folder that a restored one replaces.

    A backup knows nothing of what came after it. Without these, whoever was revoked, demoted or logged out
    since would be let in again, and used tokens could be used again.
    """

    identities: tuple[Identity, ...] = ()
    certificates: tuple[StoredCertificate, ...] = ()
    tokens: tuple[StoredToken, ...] = ()


def memberships_of(state: Path) -> Memberships | None:
    """Those of a state folder, which is left as it is; None if its database is missing or cannot be read."""
    with tempfile.TemporaryDirectory(prefix=".assay-restore-", dir=state.parent) as folder:
        try:
            copy_database(state, Path(folder) / METADATA)
            with contextlib.closing(SqliteStore(Path(folder) / METADATA)) as store, store.snapshot() as read:
                return Memberships(
                    tuple(read.identities()), tuple(read.certificates()), tuple(read.join_tokens())
                )
        except AssayError:
            return None


def take_over(newer: Memberships, store: SqlTransaction) -> int:
    """Take what newer memberships have withdrawn into restored ones; returns how many of them change.

    Nobody gets more rights by it: people keep the lower of their roles then and now.
    """
    changes = 0
    for one in newer.identities:
        then = store.identity(one.identity_id)
        if then is None and not one.revoked_at_ms:
            continue  # it joined since the backup was made: it is unknown, and joins again
        now = one if then is None else _restricted(then, one)
        if now != then:
            store.put_identity(now)
            changes += 1
    certificates = {each.serial: each for each in store.certificates()}
    for certificate in newer.certificates:
        # Also one that was issued since: the restored server would take it for one of its own.
        if certificate.withdrawn_at_ms and not (
            (same := certificates.get(certificate.serial)) and same.withdrawn_at_ms
        ):
            store.put_certificate(certificate)
            changes += 1
    left = {each.token_id: each.uses_left for each in newer.tokens}
    for token in store.join_tokens():
        uses_left = min(token.uses_left, left.get(token.token_id, 0))
        if uses_left < token.uses_left:
            store.put_join_token(replace(token, uses_left=uses_left))
            changes += 1
    return changes


def _restricted(then: Identity, now: Identity) -> Identity:
    """An identity as it was restored, without the rights that it has lost since."""
    role = then.role
    if then.kind is IdentityKind.PERSON:
        role = min(then.role, now.role, key=_RANKS.index)
    return replace(then, role=role, revoked_at_ms=then.revoked_at_ms or now.revoked_at_ms)
