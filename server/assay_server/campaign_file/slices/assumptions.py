"""Assumptions of forecasts and plans about programs, tools and disks, until something is measured."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_sampling.errors import ParameterError


class Assumptions(BaseModel):
    """Assumptions of a forecast about programs, tools and disks: guesses of the order of magnitude."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    launches: int = Field(100_000, ge=0, description="launches a workload makes in one run")
    program_seconds: float = Field(60.0, ge=0, description="seconds a workload runs without a profiler")
    start_seconds: float = Field(
        10.0, ge=0, description="seconds a tool takes to start and to write a report"
    )
    trace_slowdown: float = Field(1.2, ge=1, description="times longer a program runs under light tracing")
    pass_milliseconds: float = Field(5.0, ge=0, description="milliseconds a pass over one launch takes")
    restore_milliseconds: float = Field(
        20.0, ge=0, description="milliseconds to save and restore memory for a launch of several passes"
    )
    playback_launches_per_second: float = Field(
        200_000.0, gt=0, description="launches a second that a recording is played at"
    )
    launch_bytes: float = Field(40.0, ge=0, description="bytes stored for a launch without counters")
    counter_bytes: float = Field(4.0, ge=0, description="bytes stored for each counter of a launch")


def assumptions(given: Mapping[str, str]) -> Assumptions:
    """The defaults, overridden by ``given``; raises ParameterError for an impossible name or value."""
    try:
        return Assumptions.model_validate(dict(given))
    except ValidationError as error:
        details = error.errors()[0]
        name = str(details["loc"][0])
        if details["type"] == "extra_forbidden":
            known = ", ".join(Assumptions.model_fields)
            raise ParameterError("--assume", f"there is no assumption {name!r}", f"use {known}") from None
        cause = f"{name}={details['input']}: {details['msg'][:1].lower()}{details['msg'][1:]}"
        raise ParameterError(
            "--assume", cause, f"it is {Assumptions.model_fields[name].description}"
        ) from None
