"""The wire between an agent and the server: cut, slow, stuck, or deaf on one side."""

from __future__ import annotations

from abc import abstractmethod

from tests.chaos.faults.seam import Fault
from tests.chaos.laboratory import LEASE_SECONDS, waited
from tests.chaos.wire import FAIR, Weather, WireCounts


class WireFault(Fault):
    """A fault that changes the weather of one wire for a while."""

    shortest, longest = 0.5, 4.0

    @property
    @abstractmethod
    def weather(self) -> Weather:
        """What happens on the wire meanwhile."""

    @abstractmethod
    def proof(self, happened: WireCounts) -> str:
        """What of it happened to somebody; "" if nothing did."""

    def inject(self) -> None:
        self._before = self.box.wire.counts
        self.box.wire.set(self.weather)

    def heal(self) -> None:
        self.box.wire.set(FAIR)

    def effect(self) -> str:
        return self.proof(self.box.wire.counts.since(self._before))


class NetworkCut(WireFault):
    """Connections are reset, and no new one is made."""

    kind = "network_cut"
    weight = 8

    @property
    def weather(self) -> Weather:
        return Weather(cut=True)

    def proof(self, happened: WireCounts) -> str:
        hit = happened.resets + happened.refused
        return f"{happened.resets} resets, {happened.refused} refused" if hit else ""


class Partition(NetworkCut):
    """As above, for longer than a lease: others get the attempts, and this agent's come too late."""

    kind = "partition"
    weight = 3
    shortest, longest = 1.2 * LEASE_SECONDS, 1.8 * LEASE_SECONDS


class NetworkDelay(WireFault):
    """Everything arrives late, in both directions."""

    kind = "network_delay"
    weight = 5

    @property
    def weather(self) -> Weather:
        return Weather(delay_seconds=self.chance.uniform(0.1, 0.6))

    def proof(self, happened: WireCounts) -> str:
        return f"{happened.delayed} pieces were late" if happened.delayed else ""


class NetworkSlow(WireFault):
    """A few kilobytes a second."""

    kind = "network_slow"
    weight = 3

    @property
    def weather(self) -> Weather:
        return Weather(bytes_per_second=self.chance.choice([4_000, 20_000, 60_000]))

    def proof(self, happened: WireCounts) -> str:
        return f"{happened.delayed} pieces were slowed" if happened.delayed else ""


class BrokenStreams(WireFault):
    """Connections break in the middle of a message, again and again."""

    kind = "broken_streams"
    weight = 6
    shortest = 1.0

    @property
    def weather(self) -> Weather:
        return Weather(break_after_bytes=self.chance.choice([3_000, 12_000, 60_000]))

    def proof(self, happened: WireCounts) -> str:
        return f"{happened.resets} connections broke" if happened.resets else ""


class HalfOpen(WireFault):
    """The agent's messages arrive, the server's answers do not: what was stored is sent a second time."""

    kind = "half_open"
    weight = 6
    shortest = 1.0

    @property
    def weather(self) -> Weather:
        return Weather(answers_lost=True)

    def proof(self, happened: WireCounts) -> str:
        lost = happened.lost_bytes and happened.bytes_passed
        return f"{happened.lost_bytes:,} bytes of answers were lost" if lost else ""


class LateMessages(WireFault):
    """Nothing passes for longer than a lease, then all of it arrives, over the same connections."""

    kind = "late_messages"
    weight = 4
    shortest, longest = 1.1 * LEASE_SECONDS, 1.6 * LEASE_SECONDS

    @property
    def weather(self) -> Weather:
        return Weather(held=True)

    def heal(self) -> None:
        super().heal()
        self._arrived()

    def _arrived(self) -> None:
        """What was held passes at once; it is counted when it has."""
        waited(lambda: self.box.wire.counts.late_bytes > self._before.late_bytes, 3)

    def proof(self, happened: WireCounts) -> str:
        late = happened.late_bytes
        return f"{late:,} bytes arrived {self.seconds:.1f} s late" if late else ""
