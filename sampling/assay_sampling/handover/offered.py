"""The targets that ``assay export`` offers, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from assay_sampling.errors import ParameterError
from assay_sampling.handover.accel_sim import AccelSimTarget
from assay_sampling.handover.accel_sim_jobs import AccelSimJobsTarget
from assay_sampling.handover.macsim import MacSimTarget
from assay_sampling.handover.nvbit import NvbitTarget
from assay_sampling.handover.perfetto import PerfettoTarget
from assay_sampling.handover.target import Target
from assay_sampling.handover.weights import WeightsTarget

_OFFERED: tuple[Target, ...] = (
    AccelSimTarget(),
    AccelSimJobsTarget(),
    MacSimTarget(),
    NvbitTarget(),
    WeightsTarget(),
    PerfettoTarget(),
)
TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _OFFERED})


def target_called(name: str) -> Target:
    """The target of a name; raises ParameterError for one that does not exist."""
    if name not in TARGETS:
        raise ParameterError("--to", f"there is no target {name!r}", f"use {', '.join(TARGETS)}")
    return TARGETS[name]
