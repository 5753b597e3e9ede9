"""What the agent's metrics ask of slots and GPUs when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay_agent.gpus.latest import LatestReading


@dataclass(frozen=True)
class SlotSource:
    """A slot: whether it makes an attempt now, and why it takes no runs ("": it takes them)."""

    measuring: Callable[[], bool]
    out_of_service: Callable[[], str]


@dataclass(frozen=True)
class GpuSource:
    """A GPU of a slot: its number among the agent's GPUs, its slot, and its last sample."""

    number: int
    slot: SlotSource
    latest: LatestReading
