"""Messages that arrive twice, and late."""

from __future__ import annotations

from tests.chaos.faults.seam import Fault


class RepeatedMessages(Fault):
    """Each call of the agent is made twice, and segments are sent again after later ones."""

    kind = "repeated_messages"
    weight = 8
    shortest, longest = 1.0, 4.0

    def inject(self) -> None:
        self._before = self.box.repeats.repeats
        self.box.repeats.arm(True)

    def heal(self) -> None:
        self.box.repeats.arm(False)

    def effect(self) -> str:
        calls, segments = (a - b for a, b in zip(self.box.repeats.repeats, self._before, strict=True))
        return f"{calls} calls and {segments} segments came twice" if calls or segments else ""
