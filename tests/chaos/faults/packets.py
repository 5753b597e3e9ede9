"""Below TCP: frames that are lost, late, doubled or overtaken, and connections of which one end is gone."""

from __future__ import annotations

import signal
from abc import abstractmethod
from typing import ClassVar

from tests.chaos.faults.seam import Fault
from tests.chaos.laboratory import LEASE_SECONDS, waited
from tests.chaos.needs import Need
from tests.support.machine.frames import FrameCounts, PacketWeather
from tests.support.machine.packet_wires import PacketWire


class PacketFault(Fault):
    """A fault that changes the weather of one packet wire for a while."""

    needs = frozenset({Need.PACKETS})
    weight = 3
    shortest, longest = 1.0, 5.0

    @property
    @abstractmethod
    def weather(self) -> PacketWeather:
        """What happens to frames meanwhile."""

    @abstractmethod
    def proof(self, happened: FrameCounts) -> str:
        """What of it happened to frames; "" if nothing did."""

    @property
    def wire(self) -> PacketWire:
        """The packet wire of the box."""
        assert self.box.packets is not None
        return self.box.packets

    def inject(self) -> None:
        self._before = self.wire.counts
        self.wire.set(self.weather)

    def heal(self) -> None:
        self.wire.set()

    def effect(self) -> str:
        return self.proof(self.wire.counts.since(self._before))


class PacketLoss(PacketFault):
    """Frames are lost in both directions; TCP sends them again."""

    kind = "packet_loss"
    weight = 5

    @property
    def weather(self) -> PacketWeather:
        return PacketWeather(lost=self.chance.choice([0.02, 0.1, 0.3]))

    def proof(self, happened: FrameCounts) -> str:
        both = happened.lost and happened.passed
        return f"{happened.lost} frames lost, {happened.passed} passed" if both else ""


class PacketDelay(PacketFault):
    """Frames are late, by more or less, so that they overtake each other."""

    kind = "packet_delay"

    @property
    def weather(self) -> PacketWeather:
        late = self.chance.uniform(0.02, 0.4)
        return PacketWeather(delay_seconds=late, jitter_seconds=late / 2)

    def proof(self, happened: FrameCounts) -> str:
        return f"{happened.delayed} frames were late" if happened.delayed else ""


class PacketDuplicates(PacketFault):
    """Frames arrive twice."""

    kind = "packet_duplicates"

    @property
    def weather(self) -> PacketWeather:
        return PacketWeather(duplicated=self.chance.choice([0.2, 1.0]))

    def proof(self, happened: FrameCounts) -> str:
        return f"{happened.duplicated} frames came twice" if happened.duplicated else ""


class PacketReordering(PacketFault):
    """Frames are overtaken by others."""

    kind = "packet_reordering"

    @property
    def weather(self) -> PacketWeather:
        return PacketWeather(overtaken=self.chance.choice([0.1, 0.4]))

    def proof(self, happened: FrameCounts) -> str:
        return f"{happened.overtaken} frames were overtaken" if happened.overtaken else ""


class PacketCut(PacketFault):
    """No frame arrives at either end, and nobody is told; sometimes for longer than a lease."""

    kind = "packet_cut"
    shortest, longest = 1.0, 1.6 * LEASE_SECONDS

    @property
    def weather(self) -> PacketWeather:
        return PacketWeather(deaf_near=True, deaf_far=True)

    def proof(self, happened: FrameCounts) -> str:
        return f"{happened.unheard} frames for nobody" if happened.unheard else ""


class DeafEnd(PacketFault):
    """One end hears nothing, not even that its frames arrived, and sends them again."""

    kind = "packet_half_open"
    shortest, longest = 1.0, 1.6 * LEASE_SECONDS

    @property
    def weather(self) -> PacketWeather:
        agent = self.chance.random() < 0.5
        return PacketWeather(deaf_far=agent, deaf_near=not agent)

    def proof(self, happened: FrameCounts) -> str:
        both = happened.unheard and happened.passed
        return f"{happened.unheard} frames unheard, {happened.passed} passed" if both else ""


class GoneWithoutGoodbye(PacketFault):
    """An agent dies while its wire is cut: its connections stay open at the other end, with nobody there."""

    kind = "half_open_connections"
    shortest, longest = 0.5, 1.2 * LEASE_SECONDS
    number: ClassVar[int] = signal.SIGKILL

    @property
    def weather(self) -> PacketWeather:
        return PacketWeather(deaf_near=True, deaf_far=True)

    def inject(self) -> None:
        self._open = self.box.wire.open_connections
        super().inject()
        deaths = len(self.program.deaths)
        self.program.send(self.number)
        waited(lambda: len(self.program.deaths) > deaths, 30)

    def heal(self) -> None:
        self._still_open = min(self._open, self.box.wire.open_connections)
        super().heal()

    def proof(self, happened: FrameCounts) -> str:
        return f"{self._still_open} connections had nobody at one end" if self._still_open else ""
