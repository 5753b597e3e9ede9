"""What a machine must offer so that a kind of fault is possible."""

from __future__ import annotations

from enum import StrEnum


class Need(StrEnum):
    """What a kind of fault needs of the machine; the laboratory says what it has."""

    PACKETS = "wires below TCP"
    DISKS = "disks of their own"
    FAILING_DISKS = "disks that fail"
    FAILING_DEVICES = "block devices that fail"
    DATABASE_CALLS = "a library in PostgreSQL"
    BUCKET_DISK = "a disk of the bucket's own"
