"""Code that a workload compiles while it runs: kept for each command, and the same for all its runs.

Triton, PyTorch's inductor and CUDA compile kernels at run time, and measure variants to choose one. Where
each run begins without a cache, each chooses anew, so launches differ from run to run, and Nsight Compute
replays the launches that only measure variants. So the first run of a command fills a cache and is not
measured; later runs begin with a copy of it, which is removed with them. What is kept never changes.

<state>/compile-caches/<key>/
    files/...     read-only
    cache.json    {"version": 1, "hash": "...", "files": 12, "bytes": 34567}

The key holds whatever makes a cache another one: command, variables, program, scripts, the submitter's
files, the kind of GPU and the driver, so no command ever runs what another one compiled. Triton keeps
absolute paths, so the copy lies at the same place for all runs on a GPU.

Source: triton/runtime/cache.py; torch/_inductor/runtime/cache_dir_utils.py of PyTorch 2.4 and later; CUDA
C++ Programming Guide, "CUDA Environment Variables" (``CUDA_CACHE_PATH``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from assay_agent.execution.removal import remove_tree
from assay_core.files.private_folders import make_private_folder
from assay_core.records.work import CommandSource
from assay_sampling.running.identity import Device

_log = logging.getLogger(__name__)

FOLDER = "compile-caches"
# The variable of each compiler, and its folder in the cache.
VARIABLES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
}
MOST_BYTES, MOST_FILES = 2 << 30, 100_000
KEPT_BYTES = 8 << 30
_VERSION = 1
_READ_BYTES = 1 << 20
_SCRIPT = ".py"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class CacheRecord:
    """What is kept of a command. ``hash``: BLAKE2b-128 of names and contents; "" if it compiled nothing."""

    version: int
    hash: str
    files: int
    bytes: int


class CacheNotKeptError(Exception):
    """The files that a run compiled cannot be kept: they are too many, or too large."""


def cache_variables(folder: Path) -> dict[str, str]:
    """The variables that make the compilers keep their results in ``folder``."""
    return {name: str(folder / part) for name, part in VARIABLES.items()}


def cache_key(command: CommandSource, device: Device, driver_version: str, path: str) -> str:
    """The name of a command's cache on a kind of GPU; ``path``: where its program is looked for."""
    folder = Path(command.working_directory or "/")
    program = shutil.which(command.argv[0], path=path) or command.argv[0]
    scripts = [] if command.bundle else [program, *(word for word in command.argv if word.endswith(_SCRIPT))]
    described = {
        "argv": command.argv,
        "directory": "" if command.bundle else command.working_directory,
        "variables": sorted(command.environment.items()),
        "bundle": command.bundle.sha256 if command.bundle else "",
        "scripts": [_identity(folder / each) for each in scripts],
        "gpu": (device.name, device.compute_capability, device.sm_count, driver_version),
    }
    return hashlib.blake2b(json.dumps(described).encode(errors="replace"), digest_size=16).hexdigest()


def _identity(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change (ns) of a file; (0, 0) if it cannot be read."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return state.st_size, state.st_mtime_ns


class CompileCache:
    """The cache of one command during one attempt.

    Args:
        state: the agent's folder.
        key: see :func:`cache_key`.
        copy: the folder of the attempt in which its compilers work; it exists, and is empty.
        give: called for each file and folder that is put there.
    """

    def __init__(self, state: Path, key: str, copy: Path, give: Callable[[Path], None]) -> None:
        self._folder = state / FOLDER / key
        self._copy, self._give = copy, give
        self._begun_files = 0
        self.record: CacheRecord | None = None

    def begin(self) -> None:
        """Put a copy of what is kept into the attempt's folder; a damaged one is removed. Raises OSError.

        ``record`` is None afterwards if nothing is known of the command.
        """
        self.record = _read_record(self._folder)
        if self.record is not None and self.record.files:
            os.utime(self._folder)
            if _copied(self._folder / "files", self._copy, self._give)[0] != self.record.hash:
                _log.warning(
                    "the compile cache %s was changed by somebody, and is filled again", self._folder
                )
                remove_tree(self._folder)
                self._empty()
                self.record = None
        self._begun_files = self.record.files if self.record else 0

    def fill(self) -> bool:
        """Keep what the first run compiled, and begin with it; False: it compiled nothing.

        Raises CacheNotKeptError, with an empty cache in place; OSError.
        """
        make_private_folder(self._folder.parent)
        with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix=".partial-") as work:
            new = Path(work, "cache")
            (new / "files").mkdir(parents=True)
            try:
                digest, files, size = _copied(self._copy, new / "files", _seal)
            except CacheNotKeptError:
                self._empty()
                raise
            record = CacheRecord(_VERSION, digest if files else "", files, size)
            (new / "cache.json").write_text(json.dumps(asdict(record)))
            with contextlib.suppress(FileExistsError, OSError):  # a run on another GPU was faster
                new.rename(self._folder)
            for folder, _, _ in os.walk(work):
                Path(folder).chmod(0o700)  # so that the rest can be removed
        _make_room(self._folder)
        self._empty()
        self.begin()
        return bool(files)

    def added_files(self) -> int:
        """How many files the run has compiled besides what it began with."""
        return max(0, sum(1 for _ in _files(self._copy)) - self._begun_files)

    def _empty(self) -> None:
        with os.scandir(self._copy) as entries:
            for entry in entries:
                remove_tree(Path(entry.path))


def _read_record(folder: Path) -> CacheRecord | None:
    try:
        record = TypeAdapter(CacheRecord).validate_json((folder / "cache.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return record if record.version == _VERSION else None


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(relative name, path) of each plain file, in order of names. Links and pipes are left out."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield str(path.relative_to(folder)), path


def _copied(source: Path, target: Path, finish: Callable[[Path], None]) -> tuple[str, int, int]:
    """Copy the plain files of a folder; their hash, their number and bytes.

    ``finish`` is called for each file and folder that was made. Raises CacheNotKeptError, OSError.
    """
    digest, count, size = hashlib.blake2b(digest_size=16), 0, 0
    made: dict[Path, None] = {}
    for name, path in _files(source):
        count += 1
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        made.update(dict.fromkeys(above for above in place.parents if above.is_relative_to(target)))
        content, length, mode = _copied_file(path, place, MOST_BYTES - size)
        size += length
        _require_keepable(count, size)
        digest.update(json.dumps([name, mode, content.hex()]).encode(errors="surrogateescape"))
        finish(place)
    for folder in sorted(made, key=lambda each: len(each.parts), reverse=True):
        if folder != target:
            finish(folder)
    return digest.hexdigest(), count, size


def _copied_file(source: Path, target: Path, most_bytes: int) -> tuple[bytes, int, int]:
    """Copy one file and its right to be executed; the hash of its content, its bytes, its mode."""
    digest, length = hashlib.blake2b(digest_size=16), 0
    with os.fdopen(os.open(source, _OPEN), "rb") as file, target.open("wb") as copy:
        mode = 0o755 if os.fstat(file.fileno()).st_mode & 0o100 else 0o644
        while data := file.read(_READ_BYTES):
            length += len(data)
            if length > most_bytes:
                raise CacheNotKeptError(f"it compiled more than {MOST_BYTES >> 20:,} MiB")
            digest.update(data)
            copy.write(data)
    target.chmod(mode)
    return digest.digest(), length, mode


def _require_keepable(files: int, size: int) -> None:
    if files > MOST_FILES or size > MOST_BYTES:
        raise CacheNotKeptError(f"it compiled more than {MOST_FILES:,} files or {MOST_BYTES >> 20:,} MiB")


def _seal(path: Path) -> None:
    """Make a file or folder of the kept cache read-only, for this user alone."""
    path.chmod(path.stat().st_mode & 0o500)


def _make_room(newest: Path) -> None:
    """Remove the caches that were not used for longest, until the rest fits."""
    records: Mapping[Path, CacheRecord | None] = {
        folder: _read_record(folder) for folder in newest.parent.iterdir() if folder.name[0] != "."
    }
    total = sum(record.bytes for record in records.values() if record is not None)
    for folder in sorted(records, key=lambda each: each.stat().st_mtime):
        record = records[folder]
        if total <= KEPT_BYTES:
            return
        if folder != newest and record is not None:
            total -= record.bytes
            remove_tree(folder)
