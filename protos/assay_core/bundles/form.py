"""The one form that a bundle has: equal files give equal bytes, so the hash of the bytes is its name.

A POSIX ustar archive (IEEE Std 1003.1-1988) with folders and regular files alone, sorted by the parts of
their names, a folder before what is in it; times, owners and further mode bits are 0, files have mode 0644 or
0755, folders 0755; it ends with two blocks of zeros. For transport and storage it is compressed with zlib.
Whoever reads one compares each header with the only one that is allowed, so links, devices and extensions of
the format cannot be expressed.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass

from assay_sampling.errors import InputError

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
SUBJECT = "bundle"
FILE_MODE, PROGRAM_MODE, FOLDER_MODE = 0o644, 0o755, 0o755
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BundleBounds:
    """Bounds of one bundle: bytes of the archive, files and folders in it, bytes of the longest name."""

    bytes: int = 256 << 20
    entries: int = 10_000
    path_bytes: int = 200


DEFAULT_BOUNDS = BundleBounds()


@dataclass(frozen=True)
class Entry:
    """A file or folder of a bundle; ``parts`` are those of its name. ``size`` in bytes; 0 for a folder."""

    parts: tuple[str, ...]
    is_folder: bool
    size: int = 0
    executable: bool = False

    @property
    def name(self) -> str:
        return "/".join(self.parts)

    @property
    def key(self) -> tuple[bytes, ...]:
        """What entries are sorted by."""
        return tuple(part.encode() for part in self.parts)

    @property
    def padding(self) -> int:
        """Zeros after its content."""
        return -self.size % BLOCK


def is_hash(text: str) -> bool:
    """Whether a text can be the name of a bundle: 64 hexadecimal digits in small letters."""
    return _HASH.fullmatch(text) is not None


def refused(
    name: str, cause: str, remedy: str = "pack the bundle again with: assay lab submit"
) -> InputError:
    """The error for a bundle that cannot be; ``name``: of the entry, "" for all of it."""
    return InputError(f"{SUBJECT}: {name}" if name else SUBJECT, cause, remedy)


def require_name(parts: tuple[str, ...], bounds: BundleBounds) -> None:
    """Raises InputError for a name that leaves the bundle, or that is too long or cannot be printed."""
    name = "/".join(parts)
    if not parts or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise refused(repr(name), "its name leads out of the bundle")
    if not name.isprintable():
        raise refused(repr(name), "its name cannot be printed", "rename it")
    if len(name.encode()) > bounds.path_bytes:
        raise refused(repr(name), f"its name has more than {bounds.path_bytes} bytes", "use shorter names")


def header(entry: Entry) -> bytes:
    """The header block of an entry. Raises InputError for a name that ustar cannot hold."""
    info = tarfile.TarInfo(entry.name)
    info.type = tarfile.DIRTYPE if entry.is_folder else tarfile.REGTYPE
    info.mode = FOLDER_MODE if entry.is_folder else PROGRAM_MODE if entry.executable else FILE_MODE
    info.size = entry.size
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError as error:
        cause = "a part of its name, or the folder before it, is longer than tar can hold"
        raise refused(repr(entry.name), cause, "use shorter names") from error


def entry_of(block: bytes, bounds: BundleBounds) -> Entry:
    """The entry that a header describes. Raises InputError unless it is exactly :func:`header` of it."""
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError) as error:
        raise refused("", f"a header of it cannot be read ({error})") from error
    shown = repr(info.name[:100])
    if info.type not in (tarfile.REGTYPE, tarfile.DIRTYPE):
        raise refused(shown, "it is a link, a device or an extension; only files and folders are taken")
    name = info.name.rstrip("/") if info.type == tarfile.DIRTYPE else info.name
    parts = tuple(name.split("/"))
    require_name(parts, bounds)
    entry = Entry(parts, info.type == tarfile.DIRTYPE, info.size, info.mode == PROGRAM_MODE)
    if entry.is_folder and (info.size or info.mode != FOLDER_MODE):
        raise refused(shown, "a folder of a bundle has mode 0755 and no bytes")
    if entry.is_folder:
        entry = Entry(parts, is_folder=True)
    if info.size < 0 or header(entry) != block:
        raise refused(shown, "its header is not the canonical one (mode 0644 or 0755, no owner, no time)")
    return entry
