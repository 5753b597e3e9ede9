"""A command whose files a submitter sent, and the space in which one attempt runs it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.execution.confinement.leftovers import remove_strange, require_plain
from assay_agent.execution.confinement.means import Means
from assay_agent.execution.confinement.view import View
from assay_agent.execution.environment import remove_if_possible
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.removal import remove_tree
from assay_core.bundles.reading import BundleReader, Unpacked
from assay_core.files.durable import storage_errors
from assay_core.records.work import CommandSource
from assay_sampling.errors import InputError
from assay_sampling.running.failures import FailureClass

_READ_BYTES = 1 << 20
FILES = "files"


@dataclass(frozen=True)
class BundledCommand(CommandSource):
    """A command that the policy lets run in its bundle, confined by ``means``.

    ``packed``: the compressed bundle on this box; None until it is fetched.
    """

    means: Means = dataclasses.field(default_factory=Means)
    packed: Path | None = None

    @classmethod
    def of(cls, command: CommandSource, means: Means) -> BundledCommand:
        """The command, to be confined."""
        given = {item.name: getattr(command, item.name) for item in dataclasses.fields(CommandSource)}
        return cls(**given, means=means)

    def fetched(self, packed: Path) -> BundledCommand:
        """The command with its bundle."""
        return dataclasses.replace(self, packed=packed)


class Space:
    """The private folders of one attempt, as a confined program sees them. Remove it after the last command.

    Args:
        command: with its bundle on the box.
        subject: of errors.
        folders: home, temporary and job, which the program may write.
        view: what its tools need to read besides.
    """

    def __init__(self, command: BundledCommand, subject: str, folders: Sequence[Path], view: View) -> None:
        self._command, self._subject = command, subject
        self._folders = tuple(folders)
        self._job = self._folders[-1]
        self._view = dataclasses.replace(view, writable=tuple(map(str, self._folders)))
        self.files = self._job / FILES
        self._stage = self._job.with_name(f"{self._job.name}-root")

    def make(self) -> None:
        """Unpack the bundle, checked once more. Raises ProfilerError if it is not as it was sent, OSError."""
        assert self._command.packed is not None and self._command.bundle is not None
        remove_tree(self._stage)
        self._stage.mkdir(mode=0o700)
        try:
            reader = BundleReader(self._command.bundle, Unpacked(self.files))
            with storage_errors(self._command.packed), self._command.packed.open("rb") as file:
                while data := file.read(_READ_BYTES):
                    reader.feed(data)
            reader.finish()
        except InputError as error:
            self._command.packed.unlink(missing_ok=True)  # the next attempt fetches it again
            raise ProfilerError(
                FailureClass.INPUT_UNREADABLE, error.subject, error.cause, "submit the campaign again"
            ) from error
        owner = self._command.means.owner
        if owner is not None:
            for folder in self._folders:
                _give(folder, *owner)

    def command(self, argv: Sequence[str], folder: Path) -> list[str]:
        """The command that runs ``argv`` in this space."""
        return self._command.means.command(argv, self._view, folder, self._stage)

    def clean(self) -> None:
        """After a command: links and other strange things at the places where the agent reads are gone."""
        for folder in self._folders:
            remove_strange(folder)

    def require_plain(self, path: Path) -> None:
        """Raises ProfilerError for a file of the run that is a link, or lies behind one."""
        if not require_plain(path, self._job):
            raise ProfilerError(
                FailureClass.INPUT_UNREADABLE,
                self._subject,
                f"its output {path.name!r} is a link, or lies behind one, and is not followed",
                "write a file there",
            )

    def remove(self) -> None:
        """Remove all that the run could write, whatever it made of it. Never raises."""
        for folder in (*self._folders, self._stage):
            remove_if_possible(folder)


def _give(folder: Path, user: int, group: int) -> None:
    """Give a folder with all that is in it to a user; there are no links in it yet."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(place, name), user, group, follow_symlinks=False)  # noqa: PTH118
    os.chown(folder, user, group)
