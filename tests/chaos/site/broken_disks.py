"""Disks of a site that fill up or fail: of its servers and their caches, of PostgreSQL, of the bucket.

A disk fails by a loop device over a failing file where the machine allows one. PostgreSQL's otherwise fails
by the library that is loaded into it, and what is printed says which of the two it was.
"""

from __future__ import annotations

import errno
import re

from tests.chaos.faults.devices import DeviceFault, DiskFallsReadOnly, DiskLost
from tests.chaos.faults.disk import DiskFull, FailingSync, InterposedDisk
from tests.chaos.faults.seam import Fault, Whom
from tests.chaos.interposing import Operation
from tests.chaos.laboratory import waited
from tests.chaos.needs import Need
from tests.support.machine.failing_device import FailingDevice

_PANIC = re.compile(r"PANIC:  [^\n]{0,80}")
_FAILED_BUCKET = re.compile("input/output error|read-only file system", re.IGNORECASE)
_FULL_BUCKET = re.compile("no space left on device|low disk space|out of disk space", re.IGNORECASE)


class DeviceErrors(DeviceFault):
    """Each write to the block device below the state returns EIO, and sometimes each read."""

    whom = Whom.SERVER
    kind = "device_errors"
    needs = frozenset({Need.FAILING_DEVICES})
    said = re.compile("Input/output error|Read-only file system")
    noticed_seconds = 10.0  # a server whose records are in a bucket touches its disk seldom

    def fail(self) -> None:
        disk = self.disk
        assert isinstance(disk, FailingDevice)
        self._device, self._before = disk, disk.failed
        disk.break_device(reads=self.chance.random() < 0.5)

    def effect(self) -> str:
        failed = self._device.failed
        writes, reads = failed.writes - self._before.writes, failed.reads - self._before.reads
        if not writes + reads or not self._noticed:
            return ""
        return f"loop device over a failing file: {writes} writes and {reads} reads failed; {self._noticed}"


class DatabaseDeviceErrors(DeviceErrors):
    """PostgreSQL's device returns EIO: it panics, as it must after a failed fsync, and recovers."""

    whom = Whom.DATABASE
    kind = "database_device_errors"
    said = _PANIC


class DatabaseSyncErrors(FailingSync):
    """As :class:`DatabaseDeviceErrors`, where there is no such device: PostgreSQL's calls return EIO."""

    whom = Whom.DATABASE
    kind = "database_fsync_errors"
    needs = frozenset({Need.DATABASE_CALLS})

    def effect(self) -> str:
        found = super().effect()
        return f"preloaded library: {found}" if found else ""


class DatabaseDiskLost(DiskLost):
    """PostgreSQL's disk is gone, and with it all that was not durable."""

    whom = Whom.DATABASE
    kind = "database_disk_lost"
    said = _PANIC
    noticed_seconds = 10.0


class DatabaseFallsReadOnly(DiskFallsReadOnly):
    """The kernel lets nobody write to PostgreSQL's disk any more."""

    whom = Whom.DATABASE
    kind = "database_falls_read_only"
    said = _PANIC
    noticed_seconds = 10.0


class DatabaseDiskFull(DiskFull):
    """PostgreSQL's disk is full: for real where it has its own."""

    whom = Whom.DATABASE
    kind = "database_disk_full"
    shortest, longest = 1.0, 3.0

    def heal(self) -> None:
        if self._disk is not None:
            waited(lambda: "No space left" in self.program.said(self._log), 8)
        super().heal()
        self.lab.wait_until_well(self.target)


class StateErrors(InterposedDisk):
    """Reading and writing files of a server's state folder returns EIO for a while."""

    whom = Whom.SERVER
    kind = "state_errors"
    operations = Operation.READS | Operation.WRITES | Operation.CHANGES
    error = errno.EIO


class CacheErrors(StateErrors):
    """Reading and writing the cache of records returns EIO for a while, and nothing else does."""

    kind = "cache_errors"
    part = "records-cache/"
    weight = 5

    def heal(self) -> None:
        # Between two publications nobody wants it.
        waited(lambda: self.program.meddling.counters().failed > self._before.failed, 10)
        super().heal()


class BucketDeviceErrors(DeviceErrors):
    """The device below the bucket returns EIO: SeaweedFS answers with errors, or ends."""

    whom = Whom.BUCKET
    kind = "bucket_device_errors"
    weight = 4
    said = _FAILED_BUCKET


class BucketDiskLost(DiskLost):
    """The bucket's disk is gone; what SeaweedFS had answered for was durable, and is there again."""

    whom = Whom.BUCKET
    kind = "bucket_disk_lost"
    needs = frozenset({Need.FAILING_DEVICES})
    weight = 4
    said = _FAILED_BUCKET
    noticed_seconds = 10.0


class BucketFull(Fault):
    """The disk of the bucket is full; its owner makes room and starts SeaweedFS again."""

    kind = "bucket_full"
    whom = Whom.BUCKET
    needs = frozenset({Need.BUCKET_DISK})
    weight = 5
    shortest, longest = 1.0, 4.0

    def inject(self) -> None:
        disk = self.lab.disk_of(self.target)
        assert disk is not None
        self._disk, self._log = disk, self.program.log_bytes
        self._left = disk.fill()

    def heal(self) -> None:
        self._said = waited(lambda: _FULL_BUCKET.search(self.program.said(self._log)), 10)
        self.program.end()
        self._disk.empty()
        self.program.start()
        self.lab.wait_until_well(self.target)

    def effect(self) -> str:
        return f"{self._left:,} bytes were left, and it said {self._said[0]!r}" if self._said else ""


BROKEN_DISKS: tuple[type[Fault], ...] = (
    DeviceErrors, DatabaseDeviceErrors, DatabaseSyncErrors, DatabaseDiskLost, DatabaseFallsReadOnly,
    DatabaseDiskFull, StateErrors, CacheErrors, BucketFull, BucketDeviceErrors, BucketDiskLost,
)  # fmt: skip
