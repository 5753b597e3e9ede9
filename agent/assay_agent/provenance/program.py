"""The program of a run as a file: where it lies, its size and SHA-256, told only if it stayed that file.

It is hashed just before it is started, once per file and agent: a file is known by device, inode, size and
times. One that changes while it is read, or while it runs, is told without a hash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.execution.pinned import Pinned
from assay_sampling.running.attempt_facts import ProgramFact

MOST_BYTES = 4 << 30
_CHUNK_BYTES = 1 << 20
_MOST_KNOWN = 256
# Folders that a confined program sees as the agent does.
_SYSTEM = ("/usr/", "/opt/")
_CHANGED = "it changed while it was read"

# Device, inode, size in bytes, and the times of the last change of content and of the file's state (ns). The
# last one is the kernel's own: the owner cannot set it back.
_Identity = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class StartedProgram:
    """The program of a run as it was just before its start; ``identity`` is None where it was not opened."""

    fact: ProgramFact
    resolved: str = ""
    identity: _Identity | None = None

    def after_run(self) -> StartedProgram:
        """The program after the run: without a hash if another file is there now."""
        if not self.fact.sha256:
            return self
        try:
            same = _identity(os.stat(self.resolved)) == self.identity  # noqa: PTH116 - a text as it was resolved
        except OSError:
            same = False
        if same:
            return self
        return replace(self, fact=replace(self.fact, sha256="", note="it changed while it ran"))


class HashedPrograms:
    """Hashes of the programs that this process has read. Thread-safe; the least recently used go first."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[_Identity, str] = OrderedDict()
        self._lock = threading.Lock()

    def started(
        self,
        program: str,
        directory: Path,
        environment: Mapping[str, str],
        *,
        pins: Iterable[Pinned] = (),
        inside: Path | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> StartedProgram:
        """The program that is about to be started; never raises for what its file is.

        Args:
            program: the first word of the command: a path, or a name that is searched in PATH.
            directory: the working directory.
            environment: of the run.
            pins: what a policy judged; a pinned program must still be that very file.
            inside: the folder of a submitter's files, in which it runs confined: a file of it is told by its
                path there, and only files that the program itself could read are opened.
            stopped: whether to read no further.
        """
        if inside is not None and "/" in program and not program.startswith("/"):
            return self._of_bundle(program, inside, stopped)
        resolved = _resolved(program, directory, environment)
        if not resolved:
            return StartedProgram(ProgramFact(program, note="it was not found"))
        shown = resolved
        if inside is not None and not resolved.startswith(_SYSTEM):
            return StartedProgram(ProgramFact(program, note="it lies outside of the submitter's files"))
        judged = next((pin.identity for pin in pins if pin.resolved == resolved and pin.identity), None)
        try:
            return self._opened(resolved, ProgramFact(shown), judged, stopped)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return StartedProgram(ProgramFact(shown, note=f"it cannot be read ({why})"), resolved)

    def _of_bundle(self, program: str, files: Path, stopped: Callable[[], bool]) -> StartedProgram:
        """A program of a submitter's files, in which there are no links before it runs."""
        shown = os.path.normpath(program)
        if shown.startswith("../"):
            return StartedProgram(ProgramFact(program, note="it lies outside of the submitter's files"))
        try:
            return self._opened(str(files / shown), ProgramFact(shown), None, stopped, only_there=False)
        except OSError as error:
            return StartedProgram(ProgramFact(shown, note=f"it cannot be read ({error.strerror})"))

    def _opened(
        self,
        resolved: str,
        fact: ProgramFact,
        judged: tuple[int, ...] | None,
        stopped: Callable[[], bool],
        *,
        only_there: bool = True,
    ) -> StartedProgram:
        # Without waiting: a pipe may have taken the name. Its last part is no link, because it was resolved.
        descriptor = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            state = os.fstat(descriptor)
            identity = _identity(state)
            fact = replace(fact, size_bytes=state.st_size)
            if not stat.S_ISREG(state.st_mode):
                fact = replace(fact, size_bytes=0, note="it is not a plain file")
            elif (only_there and _place_of(descriptor) != resolved) or judged not in (None, identity[:4]):
                fact = replace(fact, note=_CHANGED)
            elif state.st_size > MOST_BYTES:
                fact = replace(fact, note=f"it has more than {MOST_BYTES:,} bytes, which are not read")
            else:
                fact = self._hashed(descriptor, identity, fact, stopped)
            return StartedProgram(fact, resolved, identity)
        finally:
            os.close(descriptor)

    def _hashed(
        self, descriptor: int, identity: _Identity, fact: ProgramFact, stopped: Callable[[], bool]
    ) -> ProgramFact:
        with self._lock:
            digest = self._hashes.get(identity)
            if digest is not None:
                self._hashes.move_to_end(identity)
        if digest is None:
            digest = _sha256(descriptor, fact.size_bytes, stopped)
            if _identity(os.fstat(descriptor)) != identity:
                return replace(fact, note=_CHANGED)
            if not digest:
                return replace(fact, note="the run was stopped while it was read")
            with self._lock:
                self._hashes[identity] = digest
                while len(self._hashes) > _MOST_KNOWN:
                    self._hashes.popitem(last=False)
        return replace(fact, sha256=digest)


def _place_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a text to compare


def _sha256(descriptor: int, size_bytes: int, stopped: Callable[[], bool]) -> str:
    """Of the first ``size_bytes``: a file that grows meanwhile is not read for ever. "" if stopped."""
    digest, rest = hashlib.sha256(), size_bytes
    while rest > 0 and (data := os.read(descriptor, min(rest, _CHUNK_BYTES))):
        digest.update(data)
        rest -= len(data)
        if stopped():
            return ""
    return digest.hexdigest()


def _identity(state: os.stat_result) -> _Identity:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _resolved(program: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Where the program lies, links followed; "" if a name is not in PATH."""
    try:
        if "/" not in program:
            program = shutil.which(program, path=environment.get("PATH", "")) or ""
        return os.path.realpath(directory / program) if program else ""
    except (OSError, ValueError):
        return ""


PROGRAMS = HashedPrograms()
