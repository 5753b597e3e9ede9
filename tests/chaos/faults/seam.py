"""What a fault is: it is injected, lasts, is healed, and proves that it took hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import ClassVar

from tests.chaos.laboratory import Box, Laboratory
from tests.chaos.needs import Need
from tests.chaos.programs import Program

SERVER = "server"


class Whom(StrEnum):
    """Whom a kind of fault can hit; what comes after ANYBODY is there in a site alone."""

    SERVER = "server"
    AGENTS = "agents"
    ANYBODY = "anybody"
    DATABASE = "database"
    BUCKET = "bucket"
    BALANCER = "balancer"
    SCHEDULER = "scheduler"
    WORKERS = "workers"


class RuleBrokenError(Exception):
    """Assay did what it must never do."""


@dataclass(frozen=True)
class Outcome:
    """What became of one fault.

    Attributes:
        effect: what proves that it took hold; "" if nothing does, and then it does not count.
        broken: what Assay did although it must never; "" if it did nothing of that kind.
    """

    kind: str
    target: str
    began_seconds: float
    seconds: float
    effect: str
    broken: str = ""


class Fault(ABC):
    """One fault of one target. Made for each use; used once, in the order of its methods.

    Attributes:
        kind: its name in every table.
        whom: whom it can hit.
        weight: how often it comes, compared with others.
        needs_server: the server must be well while it lasts.
        early: it comes before others.
        needs: what the machine must offer.
        longest: seconds from injection to healing, at most; how many is drawn.
    """

    kind: ClassVar[str]
    whom: ClassVar[Whom] = Whom.AGENTS
    weight: ClassVar[int] = 4
    needs_server: ClassVar[bool] = False
    early: ClassVar[bool] = False
    needs: ClassVar[frozenset[Need]] = frozenset()
    shortest: ClassVar[float] = 0.0
    longest: ClassVar[float] = 0.0

    def __init__(self, lab: Laboratory, target: str, chance: Random) -> None:
        self.lab = lab
        self.target = target
        self.chance = chance
        self.seconds = chance.uniform(self.shortest, self.longest)

    @property
    def program(self) -> Program:
        """The program that it hits."""
        return self.lab.program(self.target)

    @property
    def box(self) -> Box:
        """The agent that it hits."""
        return self.lab.boxes[self.target]

    @abstractmethod
    def inject(self) -> None:
        """Begin; raises RuleBrokenError."""

    def heal(self) -> None:  # noqa: B027 - many heal by themselves
        """Mend what is still broken; called after ``seconds``, whatever happened."""

    @abstractmethod
    def effect(self) -> str:
        """What proves that it took hold, after it was healed; "" if it did not."""
