"""The keys of a campaign file that say where and when its runs may be made (docs/scheduling.md)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from assay_server.campaign_file.live_spec import SpecModel
from assay_server.campaign_file.placement import NOT_PLACED, Placement, Requirements

_LABEL = Annotated[str, Field(min_length=1, max_length=200)]
_SM = re.compile(r"sm_?(\d+)(\d)")


def _capabilities(value: Any) -> Any:
    """``9.0``, ``sm_90`` and ``"9.0"``, alone or in a list, as texts like "9.0"."""
    values = value if isinstance(value, list) else [value]
    return [_capability(each) for each in values]


def _capability(value: Any) -> Any:
    match = _SM.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return f"{match[1]}.{match[2]}"
    return f"{value:.1f}" if isinstance(value, float) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_ONE_ARCHITECTURE = {"type": ["string", "number"]}
_Texts = Annotated[
    list[_LABEL],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class RequiresSpec(SpecModel):
    """What a slot must have besides the kind of GPU; missing keys ask for nothing."""

    architecture: Annotated[
        list[Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")]],
        BeforeValidator(_capabilities),
        WithJsonSchema({"anyOf": [_ONE_ARCHITECTURE, {"type": "array", "items": _ONE_ARCHITECTURE}]}),
    ] = Field(default_factory=list, max_length=20)
    gpu: _LABEL | None = None
    sm_count: int | None = Field(default=None, ge=1, le=10_000)
    memory_gib: float | None = Field(default=None, gt=0, le=100_000)
    driver: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$", max_length=40)
    tools: _Texts = Field(default_factory=list, max_length=20)
    labels: _Texts = Field(default_factory=list, max_length=20)
    mig: bool | None = None

    def requirements(self) -> Requirements:
        """As plain data."""
        mig: Literal["", "yes", "no"] = "" if self.mig is None else "yes" if self.mig else "no"
        return Requirements(
            tuple(sorted(set(self.architecture))),
            self.gpu or "",
            self.sm_count or 0,
            float(self.memory_gib or 0.0),
            self.driver or "",
            tuple(sorted(set(self.tools))),
            tuple(sorted(set(self.labels))),
            mig,
        )


ExclusiveSpec = Literal["gpu", "box"]

MOST_GPUS_IN_A_GANG = 64
GangSpec = Annotated[int, Field(ge=2, le=MOST_GPUS_IN_A_GANG)]


def placement_of(
    requires: RequiresSpec | None,
    exclusive: ExclusiveSpec | None,
    gang: GangSpec | None = None,
    base: Placement = NOT_PLACED,
) -> Placement:
    """The placement of a campaign, or of a workload whose keys replace those of its campaign (``base``)."""
    return Placement(
        base.requires if requires is None else requires.requirements(),
        base.exclusive if exclusive is None else exclusive,
        gang or 1,
    )
