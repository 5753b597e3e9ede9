"""Helpers of all conversions: the error for unreadable messages, and closed sets as enumerations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from assay_sampling.errors import ParameterError

ONE_RELEASE = "run the same release of Assay on agent, server and client"

Value = TypeVar("Value", bound=str)


class WireError(ParameterError):
    """The other program sent a message that this one cannot act on."""

    def __init__(self, subject: str, cause: str) -> None:
        super().__init__(subject, cause, ONE_RELEASE)


class ClosedSet(Generic[Value]):
    """Our values and the protobuf enumeration that represents them.

    Args:
        wire: the generated enumeration. ``RunState`` has ``RUN_STATE_DONE`` for "done", and
            ``RUN_STATE_UNSPECIFIED`` if none is given.
        values: our values; each has its enumerator.
    """

    def __init__(self, wire: Any, values: Iterable[Value]) -> None:
        self.name: str = wire.DESCRIPTOR.name
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).upper()
        self._wire_names = {value: f"{prefix}_{value.upper()}" for value in values}
        self._values = {wire.Value(name): value for value, name in self._wire_names.items()}

    @property
    def values(self) -> tuple[Value, ...]:
        """Our values."""
        return tuple(self._wire_names)

    def to_proto(self, value: Value) -> str:
        """The name of a value's enumerator, which message constructors take."""
        return self._wire_names[value]

    def from_proto(self, number: int, subject: str) -> Value:
        """The value of a number; raises WireError, naming ``subject``, for an unknown number."""
        if number not in self._values:
            known = ", ".join(self._wire_names)
            raise WireError(subject, f"its {self.name} has the number {number}, which is not one of {known}")
        return self._values[number]

    def optional_from_proto(self, number: int, subject: str) -> Value | None:
        """The value of a number; None if it is unspecified. Raises as :meth:`from_proto` does."""
        return self.from_proto(number, subject) if number else None
