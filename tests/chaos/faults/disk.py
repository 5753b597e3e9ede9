"""Disks that are full, read-only, slow, or lie; files that were torn or have changed."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from tests.chaos.faults.seam import Fault, Whom
from tests.chaos.interposing import Operation
from tests.chaos.laboratory import waited
from tests.chaos.wire import FAIR, Weather

_SAID_FULL = re.compile("no space|must stay free|disk is full", re.IGNORECASE)


class InterposedDisk(Fault):
    """Calls on files of the program's state folder fail, or wait."""

    whom = Whom.ANYBODY
    shortest, longest = 0.5, 3.0
    operations = Operation.WRITES | Operation.CHANGES
    error = 0
    every = 1
    sleep_ms = 0
    part = ""  # only files whose paths contain it

    def inject(self) -> None:
        self._before = self.program.meddling.counters()
        self.program.meddling.set(
            self.operations, error=self.error, every=self.every, sleep_ms=self.sleep_ms, part=self.part
        )

    def heal(self) -> None:
        self.program.meddling.set()

    def effect(self) -> str:
        failed = self.program.meddling.counters().failed - self._before.failed
        return f"{failed} calls failed with {errno.errorcode[self.error]}" if failed else ""


class ReadOnlyDisk(InterposedDisk):
    """The file system falls to read-only, as after an error of the disk."""

    kind = "disk_read_only"
    error = errno.EROFS


class FailingSync(InterposedDisk):
    """fsync and fdatasync return EIO, each time or every third time."""

    kind = "failing_fsync"
    weight = 5
    operations = Operation.SYNCS
    error = errno.EIO

    def inject(self) -> None:
        self.every = self.chance.choice([1, 3])
        super().inject()


class SlowSync(InterposedDisk):
    """Each fsync takes up to a second."""

    kind = "slow_fsync"
    operations = Operation.SYNCS

    def inject(self) -> None:
        self.sleep_ms = self.chance.randint(100, 900)
        super().inject()

    def effect(self) -> str:
        slept = self.program.meddling.counters().slept - self._before.slept
        return f"{slept} calls took {self.sleep_ms} ms longer" if slept else ""


class DiskFull(InterposedDisk):
    """The disk is full: for real on a disk of the program's own, else by ENOSPC."""

    kind = "disk_full"
    weight = 5
    error = errno.ENOSPC

    def inject(self) -> None:
        self._disk = self.lab.disk_of(self.target)
        self._log = self.program.log_bytes
        if self._disk is None:
            super().inject()
        else:
            self._left = self._disk.fill()

    def heal(self) -> None:
        if self._disk is None:
            super().heal()
        else:
            self._disk.empty()

    def effect(self) -> str:
        if self._disk is None:
            return super().effect()
        noticed = _SAID_FULL.search(self.program.said(self._log))
        return f"{self._left:,} bytes were left, and the program said so" if noticed else ""


class TornWrite(Fault):
    """A write is cut in half and the process dies, as when the power goes."""

    kind = "torn_write"
    whom = Whom.ANYBODY
    weight = 6
    _SECONDS = 8.0

    def inject(self) -> None:
        self._before = self.program.meddling.counters()
        self._deaths = len(self.program.deaths)
        server = ("metadata.sqlite-wal", "staging/", ".parquet", "")
        self._part = self.chance.choice(
            server if self.target in self.lab.services else ("spool/", ".seg", "")
        )
        self.program.meddling.set(torn=1, part=self._part)
        waited(lambda: len(self.program.deaths) > self._deaths, self._SECONDS)

    def heal(self) -> None:
        self.program.meddling.set()

    def effect(self) -> str:
        torn = self.program.meddling.counters().tears - self._before.tears
        return f"in a file of {self._part or 'the state'}" if torn else ""


class FlippedSpool(Fault):
    """One bit flips in a segment that waits in an agent's spool."""

    kind = "flipped_bit_in_spool"
    needs_server = True
    weight = 4

    def inject(self) -> None:
        self._flipped = ""
        self._before = self._damaged()
        # What was sent and not acknowledged is read from the disk again.
        self.box.wire.set(Weather(cut=True))
        waited(self._flip, 6)

    def _flip(self) -> bool:
        segments = sorted((self.box.state / "spool").glob("*/segment-*.seg"), key=_changed_at)
        self._flipped = _flip_a_bit(segments[-1], self.chance.random()) if segments else ""
        return bool(self._flipped)

    def heal(self) -> None:
        self.box.wire.set(FAIR)

    def _damaged(self) -> set[str]:
        folder = self.box.state / "spool-damaged"
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def effect(self) -> str:
        found = self._flipped and waited(lambda: self._damaged() - self._before, 15)
        return f"{self._flipped}: noticed" if found else ""


class FlippedStaging(Fault):
    """One bit flips in a segment that the server has acknowledged, while the server is down."""

    kind = "flipped_bit_in_staging"
    whom = Whom.SERVER
    weight = 3

    def inject(self) -> None:
        self._flipped, self._log = "", self.program.log_bytes
        self.program.end()
        staged = [path for path in self.lab.state.glob("staging/*/slice-*") if path.stat().st_size > 0]
        if staged:
            path = self.chance.choice(sorted(staged))
            self._run_id = path.parent.name
            self._flipped = _flip_a_bit(path, 0.1 + 0.8 * self.chance.random())

    def heal(self) -> None:
        self.program.start()
        self.lab.wait_for_server()

    def effect(self) -> str:
        if not self._flipped:
            return ""
        noticed = waited(lambda: self._noticed(self._run_id), 15)
        return f"{self._flipped}: noticed" if noticed else ""

    def _noticed(self, run_id: str) -> bool:
        attempts = self.lab.ask(lambda owner: owner.run(run_id))["attempts"]
        causes = [each["failure"]["cause"] for each in attempts if each["failure"]]
        return any("has changed since it was acknowledged" in cause for cause in causes)


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _flip_a_bit(path: Path, where: float) -> str:
    """Flip a bit at a part (0..1) of a file; says which file, "" if it is gone."""
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                return ""
            at = int(where * size)
            file.seek(at)
            [byte] = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 8]))
    except FileNotFoundError:
        return ""
    return f"{path.parent.name}/{path.name}, byte {at}"
