"""Slices chosen from a light run: the plan as it is stored with each detailed run that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

# Why no further slice was chosen: little enough is unseen, the time is up, or a run may have no more.
Ending = Literal["unseen", "budget", "slices"]


@dataclass(frozen=True)
class ChosenSlice:
    """A slice and why it was chosen.

    ``new_percent`` of the light time is in signatures that no earlier slice has and this one does;
    ``unseen_percent`` is what it leaves; ``seconds`` is what the model expects it to take, in all runs.
    """

    launch_skip: int
    launch_count: int
    new_percent: float
    unseen_percent: float
    seconds: float


@dataclass(frozen=True)
class SlicePlan:
    """The slices of the detailed runs of a workload on a GPU, the most unseen light time per second first.

    Args:
        light_run: the light run that they were chosen from, and its number of launches.
        most_unseen_percent: the share of unseen light time to reach.
        ending: why no further slice was chosen.
        start_seconds, skip_seconds, launch_seconds: the model of the cost, summed over the runs: of starting,
            per skipped launch, per profiled launch.
        slices: in the order in which they are measured.
    """

    light_run: str
    launches: int
    most_unseen_percent: float
    ending: Ending
    start_seconds: float
    skip_seconds: float
    launch_seconds: float
    slices: tuple[ChosenSlice, ...]

    @property
    def unseen_percent(self) -> float:
        """The share of the light time that all its slices leave unseen."""
        return self.slices[-1].unseen_percent if self.slices else 100.0

    def to_document(self) -> dict[str, Any]:
        """The plan as JSON."""
        document: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: Any) -> SlicePlan:
        """The plan from its JSON; raises pydantic's ValidationError (a ValueError)."""
        return _adapter().validate_python(document)


@cache
def _adapter() -> TypeAdapter[SlicePlan]:
    return TypeAdapter(SlicePlan)
