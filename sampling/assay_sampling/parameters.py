"""The base class for parameters of built-in methods and rules."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

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
