"""What a wire does to the frames that it carries: a function of chance and time, without a kernel."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, fields
from enum import IntEnum
from random import Random

_TYPE = slice(12, 14)  # of an Ethernet frame
_CARRIED = (b"\x08\x00", b"\x08\x06")  # IPv4 and ARP
# A frame that is overtaken waits for so long: several frames of a stream that is being sent.
_OVERTAKEN_SECONDS = 0.01, 0.05


class End(IntEnum):
    """The two ends of a wire."""

    NEAR = 0
    FAR = 1

    @property
    def other(self) -> End:
        return End(1 - self)


@dataclass(frozen=True)
class PacketWeather:
    """What happens to frames, in both directions unless an end is named.

    Attributes:
        lost, duplicated, overtaken: parts (0..1) of the frames.
        delay_seconds: how late each frame arrives.
        jitter_seconds: by how much more or less, so that frames overtake each other.
        deaf_near, deaf_far: this end gets no frame.
    """

    lost: float = 0.0
    duplicated: float = 0.0
    overtaken: float = 0.0
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    deaf_near: bool = False
    deaf_far: bool = False

    def is_deaf(self, end: End) -> bool:
        return self.deaf_far if end is End.FAR else self.deaf_near


FAIR = PacketWeather()


@dataclass
class FrameCounts:
    """Frames so far, by what happened to them."""

    passed: int = 0
    lost: int = 0
    duplicated: int = 0
    overtaken: int = 0
    delayed: int = 0
    unheard: int = 0  # were for a deaf end

    def since(self, before: FrameCounts) -> FrameCounts:
        """What happened after ``before``."""
        return FrameCounts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})


class FrameQueue:
    """Frames on their way through one wire."""

    def __init__(self, chance: Random) -> None:
        self.weather = FAIR
        self.counts = FrameCounts()
        self._chance = chance
        self._waiting: list[tuple[float, int, End, bytes]] = []
        self._number = 0

    def put(self, now: float, frame: bytes, to: End) -> None:
        """A frame was sent to an end."""
        if frame[_TYPE] not in _CARRIED:
            return
        weather, counts, chance = self.weather, self.counts, self._chance
        if weather.is_deaf(to):
            counts.unheard += 1
            return
        if chance.random() < weather.lost:
            counts.lost += 1
            return
        copies = 1 + (chance.random() < weather.duplicated)
        counts.duplicated += copies - 1
        for _ in range(copies):
            self._number += 1
            heapq.heappush(self._waiting, (now + self._late_by(), self._number, to, frame))

    def _late_by(self) -> float:
        weather, chance = self.weather, self._chance
        late = weather.delay_seconds
        if weather.jitter_seconds:
            late += chance.uniform(-1, 1) * weather.jitter_seconds
        if late > 0:
            self.counts.delayed += 1
        if chance.random() < weather.overtaken:
            self.counts.overtaken += 1
            late += chance.uniform(*_OVERTAKEN_SECONDS)
        return max(0.0, late)

    def due(self, now: float) -> list[tuple[End, bytes]]:
        """Frames that arrive by now, in the order in which they do."""
        found = []
        while self._waiting and self._waiting[0][0] <= now:
            _, _, to, frame = heapq.heappop(self._waiting)
            found.append((to, frame))
        self.counts.passed += len(found)
        return found

    def next_due(self) -> float | None:
        """When the next frame arrives; None: none is on its way."""
        return self._waiting[0][0] if self._waiting else None
