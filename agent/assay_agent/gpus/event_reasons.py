"""NVML's clock event reasons, which earlier drivers call throttle reasons: the bits and what they mean.

``IDLE``, ``APPLICATION_CLOCKS`` and ``DISPLAY`` are harmless. Source: docs/validity.md, "How the GPU is
watched".
"""

from __future__ import annotations

from enum import IntFlag


class EventReason(IntFlag):
    """A bit of the event reasons."""

    IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    SOFTWARE_POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    HARDWARE_POWER_BRAKE = 0x80
    DISPLAY = 0x100
    BOARD_LIMIT = 0x200
    RELIABILITY = 0x400


THERMAL = EventReason.SOFTWARE_THERMAL | EventReason.HARDWARE_THERMAL
LIMITS = EventReason.SYNC_BOOST | EventReason.BOARD_LIMIT | EventReason.RELIABILITY
_NAMES = {reason.value: reason.name.lower() for reason in EventReason if reason.name}


def reason_names(bits: int) -> list[str]:
    """The names of the bits, lowest first; a bit without a name as its number."""
    names = []
    for position in range(bits.bit_length()):
        bit = 1 << position
        if bits & bit:
            names.append(_NAMES.get(bit, hex(bit)))
    return names
