"""Where a run may be made, as the campaign file asks for it: plain data, stored with each run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

# What must be idle while a run is measured: other slots of its GPU, or all other GPUs of its box.
Exclusive = Literal["", "gpu", "box"]


@dataclass(frozen=True, order=True)
class Requirements:
    """What a slot must have besides the kind of GPU; empty and 0 ask for nothing.

    ``architectures``: compute capabilities, one of which it must have ("9.0"). ``gpu``: a pattern of the
    GPU's name, with ``*``. ``sm_count``, ``memory_gib`` and ``driver``: at least this. ``tools``: profilers
    that it offers. ``labels``: of its agent. ``mig``: whether it is a MIG instance; "" if either will do.
    """

    architectures: tuple[str, ...] = ()
    gpu: str = ""
    sm_count: int = 0
    memory_gib: float = 0.0
    driver: str = ""
    tools: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    mig: Literal["", "yes", "no"] = ""


NO_REQUIREMENTS = Requirements()


@dataclass(frozen=True, order=True)
class Placement:
    """What a run asks of the place where it is made.

    ``gang``: over how many GPUs of one box it runs, all of one kind.
    """

    requires: Requirements = NO_REQUIREMENTS
    exclusive: Exclusive = ""
    gang: int = 1

    @property
    def concerns_other_slots(self) -> bool:
        """Whether a run takes more of its box than its own slot."""
        return bool(self.exclusive) or self.gang > 1

    def to_document(self) -> dict[str, Any]:
        """The placement as JSON, without what it does not ask for."""
        document: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return document

    @classmethod
    def from_document(cls, document: Any) -> Placement:
        """The placement from its JSON; raises pydantic's ValidationError (a ValueError)."""
        return _adapter().validate_python(document) if document else NOT_PLACED


NOT_PLACED = Placement()


@cache
def _adapter() -> TypeAdapter[Placement]:
    return TypeAdapter(Placement)
