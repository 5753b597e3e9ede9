"""What a backup or an archive says of itself: every file with its size and hash, in ``manifest.json``.

Hashes are BLAKE2b-256 in hexadecimal, as everywhere in the state folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from assay_core.files.durable import storage_errors
from assay_sampling.errors import InputError
from assay_server.content_hash import fresh_hash_of

MANIFEST = "manifest.json"
BACKUP_VERSION = 1


def _inside(name: str) -> str:
    """A relative name that stays inside of its folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or str(path) != name:
        raise ValueError(f"{name!r} does not name a file inside")
    return name


class KeptFile(BaseModel):
    """A file; ``name`` is relative, with slashes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_inside)]
    bytes: int = Field(ge=0)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")


def kept_file_of(name: str, path: Path) -> KeptFile:
    """A file as it is now, under this name. Raises StorageError."""
    with storage_errors(path):
        return KeptFile(name=name, bytes=path.stat().st_size, hash=fresh_hash_of(path))


class HashedReader:
    """Reads a file, at most ``most_bytes`` of it (None: all), and hashes what was read."""

    def __init__(self, file: IO[bytes], most_bytes: int | None = None) -> None:
        self._file, self._most_bytes = file, most_bytes
        self._bytes, self._hash = 0, hashlib.blake2b(digest_size=32)

    def read(self, size: int = -1) -> bytes:
        if self._most_bytes is not None:
            rest = self._most_bytes - self._bytes
            size = rest if size < 0 else min(size, rest)
        data = self._file.read(size)
        self._hash.update(data)
        self._bytes += len(data)
        return data

    def kept_file(self, name: str) -> KeptFile:
        """What was read so far, as a file of this name."""
        return KeptFile(name=name, bytes=self._bytes, hash=self._hash.hexdigest())


class BackupFault(BaseModel):
    """A file that the database names and the backup lacks, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cause: str


class BackupManifest(BaseModel):
    """A backup of a whole server; ``authority``: whether it has the authority's encrypted key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["assay-server-backup"] = "assay-server-backup"
    version: int = BACKUP_VERSION
    made_at_ms: int
    release: str
    schema_revision: str
    campaigns: int
    authority: bool
    files: tuple[KeptFile, ...]
    faults: tuple[BackupFault, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


Document = TypeVar("Document", bound=BaseModel)


def parse_manifest(data: bytes, kind: type[Document], place: Path, newest: int) -> Document:
    """A manifest; raises InputError for anything else, and for one of a newer release."""
    try:
        document = kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "document"
        raise InputError(
            str(place), f"its {MANIFEST} is not one of ours (field {field}: {first['msg']})", "make it again"
        ) from error
    if getattr(document, "version", 0) > newest:
        raise InputError(str(place), "a newer Assay made it", "use that release or a later one")
    return document
