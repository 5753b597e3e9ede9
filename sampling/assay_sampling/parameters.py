"""The base class for parameters of built-in methods and rules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

# What a representative stands for: launches, instructions, or time in the light run.
WeightKind = Literal["launches", "instructions", "light_time"]

# What a selection divides into groups: launches, or operations, whose launches are their parts.
Unit = Literal["launch", "operation"]

_LARGEST_WHOLE = 1 << 53


class Parameters(BaseModel):
    """Base of the parameters of built-in methods: typed, bounded, and no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _countable(cls, value: Any) -> Any:
        """Whole numbers become int64 in NumPy, and some float64."""
        if isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
            raise PydanticCustomError("too_large", "Input should be at most 2^53")
        return value


class MethodParameters(Parameters):
    """Base of the parameters of selection methods: those that every method has."""

    weights: WeightKind | None = Field(
        default=None,
        description=(
            'The weights for other GPUs, conditions and simulators: by default "light_time" if there is a '
            "light run, else those of the method. Given as light_time, launches are drawn in proportion to "
            "it. The profile itself is never scored by light time."
        ),
    )
