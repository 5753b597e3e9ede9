"""Real disks under the programs: read-only at the start of a box, or failing while they write."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from typing import ClassVar

from tests.chaos.faults.seam import Fault, Whom
from tests.chaos.laboratory import waited
from tests.chaos.needs import Need
from tests.support.machine.disks import Disk, DiskError, LoopDisk

_READ_ONLY = re.compile("Read-only file system|readonly database")
_START_SECONDS = 20.0


class DeviceFault(Fault):
    """A fault of the disk that holds the program's state. It is mended while nobody lives on it."""

    whom = Whom.ANYBODY
    needs = frozenset({Need.FAILING_DISKS})
    weight = 2
    shortest, longest = 1.0, 4.0
    said: ClassVar[re.Pattern[str]]  # by whoever noticed it
    noticed_seconds: ClassVar[float] = 4.0  # an agent that waits for work touches its disk seldom

    @property
    def disk(self) -> Disk:
        """The disk of the program's state."""
        disk = self.lab.disk_of(self.target)
        assert disk is not None
        return disk

    @abstractmethod
    def fail(self) -> None:
        """Let the disk fail."""

    def inject(self) -> None:
        self._log, self._deaths = self.program.log_bytes, len(self.program.deaths)
        self._logs_of_servers = self.lab.logged_by_servers()
        self.fail()

    def heal(self) -> None:
        self._noticed = waited(self._what_it_noticed, self.noticed_seconds)
        self.program.end()
        self.mend()
        self.program.start()
        if self.target in self.lab.services:
            self.lab.wait_until_well(self.target)

    def mend(self) -> None:
        """Make the disk good again while nobody uses it."""
        assert isinstance(self.disk, LoopDisk)
        self.disk.mend()

    def _what_it_noticed(self) -> str:
        if found := self.said.search(self.program.said(self._log)):
            return f"said {found[0]!r}"
        # An agent hands the attempts that its disk refuses back, and says why to the server.
        handed_back = rf"of agent {re.escape(self.target)}: [^\n]*(?:{self.said.pattern})"
        if re.search(handed_back, self.lab.said_by_servers(self._logs_of_servers)):
            return "handed attempts back for it"
        died = self.program.deaths[self._deaths :]
        return f"ended with {died[0]}" if died else ""

    def effect(self) -> str:
        return self._noticed


class DiskFallsReadOnly(DeviceFault):
    """The kernel finds an error on the disk and lets nobody write, not even to files that are open."""

    kind = "disk_falls_read_only"
    said = _READ_ONLY

    def fail(self) -> None:
        self.disk.fall_read_only()


class DiskLost(DeviceFault):
    """Each call returns EIO, and what was not made durable is lost: as when a disk loses its power."""

    kind = "disk_lost"
    said = re.compile("Input/output error|disk I/O error|database is damaged")

    def fail(self) -> None:
        self.disk.lose()


class StartsReadOnly(DeviceFault):
    """An agent dies, and its state is remounted read-only before it starts again."""

    kind = "agent_starts_read_only"
    whom = Whom.AGENTS
    needs = frozenset({Need.DISKS})
    said = _READ_ONLY

    def fail(self) -> None:
        self.program.end()
        _as_soon_as_nobody_writes(self.disk, read_only=True)
        self.program.start()
        waited(self._what_it_noticed, _START_SECONDS)

    def mend(self) -> None:
        _as_soon_as_nobody_writes(self.disk, read_only=False)


class ServerStartsReadOnly(StartsReadOnly):
    """The server dies, and its state is remounted read-only before it starts again."""

    kind = "server_starts_read_only"
    whom = Whom.SERVER
    needs = frozenset({Need.FAILING_DISKS})


def _as_soon_as_nobody_writes(disk: Disk, *, read_only: bool) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return disk.remount(read_only=read_only)
        except DiskError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)
