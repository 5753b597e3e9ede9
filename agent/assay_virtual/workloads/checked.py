"""Reads tables of a TOML document into dataclasses, field by field; errors name the key.

A field of a dataclass says by :func:`key` how its value is read. The stand-in tools read a workload file at
every start, so this uses only the standard library.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

Part = str | int
Reader = Callable[[Any, tuple[Part, ...]], Any]
T = TypeVar("T")

_READER = "reader"


class Fault(Exception):
    """An invalid value: the parts of its key, and what is wrong. Never leaves the loader."""

    def __init__(self, parts: tuple[Part, ...], cause: str) -> None:
        super().__init__(cause)
        self.parts, self.cause = parts, cause


def key(reader: Reader, *default: Any) -> Any:
    """A field of a dataclass that is read by ``reader``; without a default it is required."""
    metadata = {_READER: reader}
    if not default:
        return dataclasses.field(metadata=metadata)
    if isinstance(default[0], dict | list):
        return dataclasses.field(default_factory=type(default[0]), metadata=metadata)
    return dataclasses.field(default=default[0], metadata=metadata)


def read_some(kind: type[Any], values: Any, at: tuple[Part, ...] = ()) -> dict[str, Any]:
    """The fields of a dataclass that a table gives; raises Fault for a key that the dataclass lacks."""
    if not isinstance(values, Mapping):
        raise Fault(at, "Input should be a table")
    readers = {
        field.name: field.metadata[_READER] for field in dataclasses.fields(kind) if _READER in field.metadata
    }
    fields = {name: read(values[name], (*at, name)) for name, read in readers.items() if name in values}
    for name in values:
        if name not in readers:
            raise Fault((*at, name), "there is no such key")
    return fields


def read_table(kind: type[T], values: Any, at: tuple[Part, ...] = ()) -> T:
    """A dataclass from a table; a ValueError of its ``__post_init__`` becomes a fault of the table."""
    if isinstance(values, Mapping):
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            optional = {field.default, field.default_factory} != {dataclasses.MISSING}
            if _READER in field.metadata and not optional and field.name not in values:
                # Invalid keys are reported before missing ones.
                read_some(kind, values, at)
                raise Fault((*at, field.name), "Field required")
    fields = read_some(kind, values, at)
    try:
        return kind(**fields)
    except ValueError as error:
        raise Fault(at, str(error)) from error


def table_of(kind: type[Any]) -> Reader:
    """A table that becomes a dataclass."""
    return lambda value, at: read_table(kind, value, at)


def whole(least: int, greatest: int | None = None, *, below: int | None = None) -> Reader:
    """A whole number within limits."""

    def read(value: Any, at: tuple[Part, ...]) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Fault(at, "Input should be a valid integer")
        _within(value, at, least=least, greatest=greatest, below=below)
        return value

    return read


def number(
    least: float | None = None,
    greatest: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> Reader:
    """A finite number within limits."""

    def read(value: Any, at: tuple[Part, ...]) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Fault(at, "Input should be a valid number")
        if not math.isfinite(value):
            raise Fault(at, "Input should be a finite number")
        _within(value, at, least=least, greatest=greatest, above=above, below=below)
        return float(value)

    return read


def _within(
    value: float,
    at: tuple[Part, ...],
    *,
    least: float | None = None,
    greatest: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    limits = (
        (least, "greater than or equal to", operator.ge),
        (greatest, "less than or equal to", operator.le),
        (above, "greater than", operator.gt),
        (below, "less than", operator.lt),
    )
    for limit, words, holds in limits:
        if limit is not None and not holds(value, limit):
            raise Fault(at, f"Input should be {words} {limit:.15g}")


def text(longest: int, pattern: str = "", *, least: int = 1) -> Reader:
    """A text of at most ``longest`` characters."""

    def read(value: Any, at: tuple[Part, ...]) -> str:
        if not isinstance(value, str):
            raise Fault(at, "Input should be a text")
        if not least <= len(value) <= longest:
            raise Fault(at, f"Input should have {least} to {longest:,} characters")
        if pattern and not re.fullmatch(pattern, value):
            raise Fault(at, f"Input should match the pattern {pattern}")
        return value

    return read


def boolean(value: Any, at: tuple[Part, ...]) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Fault(at, "Input should be true or false")
    return value


def listed(read: Reader, least: int = 0) -> Reader:
    """An array of values of one kind."""

    def read_all(value: Any, at: tuple[Part, ...]) -> list[Any]:
        if not isinstance(value, list):
            raise Fault(at, "Input should be an array")
        if len(value) < least:
            raise Fault(at, f"There should be at least {least} item")
        return [read(item, (*at, index)) for index, item in enumerate(value)]

    return read_all


def mapped(read: Reader, keys: Iterable[str] = ()) -> Reader:
    """A table of values of one kind; only with these ``keys``, if there are any."""
    allowed_keys = tuple(keys)

    def read_all(value: Any, at: tuple[Part, ...]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Fault(at, "Input should be a table")
        for name in value:
            if allowed_keys and name not in allowed_keys:
                raise Fault((*at, name), f"Input should be one of {', '.join(map(repr, allowed_keys))}")
        return {name: read(item, (*at, name)) for name, item in value.items()}

    return read_all
