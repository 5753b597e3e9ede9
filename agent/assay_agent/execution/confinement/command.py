"""A command whose files a submitter sent, and the space in which one attempt runs it."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.execution.confinement.leftovers import remove_strange, require_plain
from assay_agent.execution.confinement.means import FOLDERS, Means
from assay_agent.execution.confinement.place import TMPFS, Place, PlaceError
from assay_agent.execution.confinement.view import View
from assay_agent.execution.errors import ProfilerError
from assay_core.bundles.reading import BundleReader, Unpacked
from assay_core.files.durable import storage_errors
from assay_core.records.work import CommandSource
from assay_sampling.errors import InputError
from assay_sampling.running.failures import FailureClass

_READ_BYTES = 1 << 20
FILES = "files"
_WRITABLE = ("home", "tmp", "job", "compiled")
_PLACE, _REFUSAL = "place", "not-started"
# Failures that full files may be behind.
_OF_FULL = (
    FailureClass.APPLICATION_FAILED,
    FailureClass.DROPPED_EVENTS,
    FailureClass.IMPORTER_FAILED,
    FailureClass.INPUT_UNREADABLE,
    FailureClass.NOTHING_PROFILED,
    FailureClass.REPORT_SHORT,
    FailureClass.WINDOW_SHORT,
)


@dataclass(frozen=True)
class BundledCommand(CommandSource):
    """A command that the policy lets run in its bundle, confined by ``means``.

    ``packed``: the compressed bundle on this box; None until it is fetched.
    """

    means: Means = dataclasses.field(kw_only=True)
    packed: Path | None = None

    @classmethod
    def of(cls, command: CommandSource, means: Means) -> BundledCommand:
        """The command, to be confined."""
        fields = {item.name: getattr(command, item.name) for item in dataclasses.fields(CommandSource)}
        return cls(**fields, means=means)

    def fetched(self, packed: Path) -> BundledCommand:
        """The command with its bundle."""
        return dataclasses.replace(self, packed=packed)


class Space:
    """The private folders of one attempt, as a confined program sees them. Remove it after the last command.

    Args:
        command: with its bundle on the box.
        subject: of errors.
        base: a private folder of the agent's; the place is made in it, under a short path.
        view: what its tools need to read besides.
    """

    def __init__(self, command: BundledCommand, subject: str, base: Path, view: View) -> None:
        self._command, self._subject = command, subject
        self.place = Place(base / _PLACE, command.means.disk_bytes)
        self._refusal = base / _REFUSAL
        self.home, self.temporary, self.job, self.compiled = (self.place.path / name for name in _WRITABLE)
        self.files = self.job / FILES
        writable = tuple((str(self.place.path / name), f"{TMPFS}/{name}") for name in _WRITABLE)
        self._view = dataclasses.replace(view, writable=writable)

    def make(self) -> None:
        """Unpack the bundle, checked once more. Raises ProfilerError if it is not as it was sent, OSError."""
        assert self._command.packed is not None and self._command.bundle is not None
        self._refusal.unlink(missing_ok=True)
        try:
            self.place.open((*FOLDERS, *_WRITABLE))
        except PlaceError as error:
            raise ProfilerError(FailureClass.TOOL_UNUSABLE, self._subject, str(error)) from error
        try:
            reader = BundleReader(self._command.bundle, Unpacked(self.files))
            with self._command.packed.open("rb") as file:
                while data := file.read(_READ_BYTES):
                    reader.feed(data)
            reader.finish()
        except InputError as error:
            self._command.packed.unlink(missing_ok=True)  # the next attempt fetches it again
            raise ProfilerError(
                FailureClass.INPUT_UNREADABLE, error.subject, error.cause, "submit the campaign again"
            ) from error
        except OSError as error:
            raise self.room_failure(error) or error from None
        self.files.chmod(0o755)
        for folder, folders, files in os.walk(self.files):
            for each in ("", *folders, *files):
                self.place.give(Path(folder, each))

    def command(self, argv: Sequence[str], folder: Path) -> list[str]:
        """The command that runs ``argv`` in this space."""
        return self._command.means.command(argv, self._view, folder, self.place, self._refusal)

    def clean(self) -> None:
        """After a command: links and other strange things at the places where the agent reads are gone.

        Raises ProfilerError if the command was not started, or the files are gone.
        """
        if self._refusal.exists():
            why = self._refusal.read_text()
            raise ProfilerError(FailureClass.TOOL_UNUSABLE, self._subject, f"it was not started: {why}")
        if not self.place.lives:
            cause = "the process that holds its files was ended, by a person or for lack of memory"
            raise ProfilerError(FailureClass.BOX_MEMORY, self._subject, cause)
        for folder in (self.home, self.temporary, self.job):
            remove_strange(folder)

    def require_plain(self, path: Path) -> None:
        """Raises ProfilerError for a file of the run that is a link, or lies behind one."""
        if not require_plain(path, self.job):
            raise ProfilerError(
                FailureClass.INPUT_UNREADABLE,
                self._subject,
                f"its output {path.name!r} is a link, or lies behind one, and is not followed",
                "write a file there",
            )

    def copied(self, path: Path, folder: Path) -> Path:
        """A file of the run in a folder of the agent's, for a library that resolves paths itself: only the
        kernel finds the way to the place. Raises ProfilerError for a link or a file with holes, StorageError.
        """
        self.require_plain(path)
        copy = folder / path.name
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source:
            if os.fstat(source.fileno()).st_size > self._command.means.disk_bytes:
                cause = f"its output {path.name!r} says that it is larger than its disk"
                raise ProfilerError(FailureClass.INPUT_UNREADABLE, self._subject, cause)
            with storage_errors(copy), copy.open("wb") as target:
                shutil.copyfileobj(source, target, _READ_BYTES)
        path.unlink()
        return copy

    def room_failure(self, error: BaseException | None) -> ProfilerError | None:
        """The failure of a run that ended with ``error`` because its files are as large as they may be.

        It writes nowhere else, so whatever says that a disk is full means these.
        """
        cause = error.cause if isinstance(error, ProfilerError) else str(error)
        if isinstance(error, ProfilerError):
            is_disk_full = error.failure_class is FailureClass.DISK_FULL
            full = is_disk_full or (error.failure_class in _OF_FULL and self.place.is_full())
        else:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full:
            return None
        most = self._command.means.disk_bytes
        return ProfilerError(
            FailureClass.DISK_LIMIT,
            self._subject,
            f"its files, of {most / 2**20:,.0f} MiB together at most, were full: {cause}",
        )

    def remove(self) -> None:
        """Free all that the run wrote, whatever it made of it. Never raises."""
        self.place.close()
