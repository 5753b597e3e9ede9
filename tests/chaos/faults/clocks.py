"""Wall clocks that jump, of a program that runs, and jump back."""

from __future__ import annotations

from tests.chaos.faults.seam import Fault, Whom

_SECOND_NS = 1_000_000_000
_HOUR = 3600


class ClockJump(Fault):
    """The wall clock of one program is seconds, hours or a day off for a while."""

    kind = "clock_jump"
    whom = Whom.ANYBODY
    weight = 8
    shortest, longest = 0.5, 4.0

    def inject(self) -> None:
        self._by = self.chance.choice([-24 * _HOUR, -2 * _HOUR, -45, 45, 2 * _HOUR, 24 * _HOUR])
        self._before = self.program.meddling.counters()
        self.program.meddling.set(clock_offset_ns=self._by * _SECOND_NS)

    def heal(self) -> None:
        self.program.meddling.set()

    def effect(self) -> str:
        reads = self.program.meddling.counters().clock_reads - self._before.clock_reads
        return f"{self._by:+,} s, read {reads} times" if reads else ""
