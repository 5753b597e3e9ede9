"""Messages of other programs: the error for unreadable ones, closed sets, conditions, and records.

A record crosses the wire field by field: each of its fields is the field of its message with the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from assay_protos import common_pb2
from assay_sampling.errors import ParameterError
from assay_sampling.running.identity import CacheCondition, ClockCondition, Condition, RunLevel, SmShareKind

ONE_RELEASE = "run the same release of Assay on agent, server and client"

UNSENT = "(unsent)"  # in place of a field's name on the wire

Value = TypeVar("Value", bound=str)
M = TypeVar("M", bound=Message)


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


class Within:
    """In place of a field's name on the wire: the record of that field has its fields in the same message,
    under names of their own where these are given."""

    def __init__(self, **wire_names: str) -> None:
        self._wire_names = wire_names

    def name_of(self, field: _Field) -> str:
        return self._wire_names.get(field.name, field.wire_name)


_WHOLE = Within()


class Record(Generic[M]):
    """A dataclass with its message; ``class Left(Record[LeaveResponse], serial="number")`` renames a field.

    A field is text, a number, bytes, a value of a closed set (:func:`closed_set`), a condition, another
    record, a tuple or a mapping of those, or None if the message has no such field. ``claim=Within()``: the
    fields of that record are fields of the message itself. ``cause=UNSENT``: it stays in its process.
    """

    message_type: ClassVar[type[Message]]
    _wire_names: ClassVar[Mapping[str, str | Within]]

    def __init_subclass__(cls, **wire_names: str | Within) -> None:
        super().__init_subclass__()
        base = next(each for each in cls.__orig_bases__ if get_origin(each) is Record)  # type: ignore[attr-defined]
        cls.message_type, cls._wire_names = get_args(base)[0], wire_names

    def to_proto(self) -> M:
        """The record as a message."""
        message: M = type(self).message_type(**sent_values(self, type(self)))  # type: ignore[assignment]
        return message

    @classmethod
    def from_proto(cls, message: M) -> Self:
        """The record of a message; raises WireError for a value that no field may have."""
        return cls(**received_values(cls, message))

    @classmethod
    def like(cls, *others: Any, **values: Any) -> Self:
        """A record with these values, and in its other fields those of the same name of the first of
        ``others`` that has one; what none has keeps its default."""
        kind: Any = cls
        for name in (each.name for each in fields(kind) if each.name not in values):
            for other in others:
                if hasattr(other, name):
                    values[name] = getattr(other, name)
                    break
        return cls(**values)


def sent_values(record: Any, kind: Any, within: Within = _WHOLE) -> dict[str, Any]:
    """The fields of a message by name, from those that a record of the kind ``kind`` has."""
    values: dict[str, Any] = {}
    for each in fields_of(kind):
        value = getattr(record, each.name)
        if each.within is not None:
            values |= sent_values(value, each.kind, each.within)
        else:
            values[within.name_of(each)] = each.to_proto(value)
    return values


def received_values(kind: Any, message: Any, subject: str = "", within: Within = _WHOLE) -> dict[str, Any]:
    """The fields of a record of the kind ``kind`` by name, from those of a message about ``subject`` ("":
    what the record names first). Raises WireError for a value that no field may have."""
    values: dict[str, Any] = {}
    is_named, subject = bool(subject), subject or message.DESCRIPTOR.name
    for each in fields_of(kind):
        value, name = None, within.name_of(each)
        if each.within is not None:
            value = each.kind(**received_values(each.kind, message, within=each.within))
        elif not each.optional or message.HasField(name):
            value = each.from_proto(getattr(message, name), subject)
        if not (values or is_named) and isinstance(value, str | Record):
            subject = str(value)
        values[each.name] = value
    return values


@dataclass(frozen=True)
class _Field:
    """A field and its conversions; ``from_proto`` is given the value and what it is about."""

    name: str
    wire_name: str
    kind: Any
    to_proto: Callable[[Any], Any]
    from_proto: Callable[[Any, str], Any]
    optional: bool = False
    within: Within | None = None


@cache
def fields_of(record: Any) -> tuple[_Field, ...]:
    """The fields of a record that are sent, each with its conversions; raises TypeError for one that has
    none."""
    hints = get_type_hints(record)
    names = {each.name: record._wire_names.get(each.name, each.name) for each in fields(record)}
    return tuple(_field(name, to, hints[name]) for name, to in names.items() if to != UNSENT)


def _field(name: str, wire_name: str | Within, hint: Any) -> _Field:
    if isinstance(wire_name, Within):
        return _Field(name, name, hint, *_conversions(hint), within=wire_name)
    some = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) in (Union, UnionType) and len(some) == 1:
        to_proto, from_proto = _conversions(some[0])
        return _Field(
            name, wire_name, hint, lambda value: None if value is None else to_proto(value), from_proto, True
        )
    return _Field(name, wire_name, hint, *_conversions(hint))


_Conversions = tuple[Callable[[Any], Any], Callable[[Any, str], Any]]
# Of types that are neither records nor plain values.
_SPECIAL: dict[Any, _Conversions] = {}


def _conversions(hint: Any) -> _Conversions:
    """How values of a type become those of a message, and back."""
    if hint in _SPECIAL:
        return _SPECIAL[hint]
    if hasattr(hint, "from_proto"):
        return (lambda value: value.to_proto()), (lambda message, _subject: hint.from_proto(message))
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple and inner[1:] == (...,):
        one, back = _conversions(inner[0])
        return (
            lambda values: [one(each) for each in values],
            lambda messages, subject: tuple([back(each, subject) for each in messages]),
        )
    if origin is Mapping:
        one, back = _conversions(inner[1])
        return (
            lambda values: {key: one(each) for key, each in values.items()},
            lambda messages, subject: {key: back(each, subject) for key, each in messages.items()},
        )
    if hint not in (str, int, float, bool, bytes):
        raise TypeError(f"no field of a record can be a {hint}")
    return (lambda value: value), (lambda value, _subject: value)


def convert_by(kind: Any, to_proto: Callable[[Any], Any], from_proto: Callable[[Any, str], Any]) -> None:
    """Let fields of records have values of a type; ``from_proto`` is given what a message is about, too."""
    _SPECIAL[kind] = to_proto, from_proto


def closed_set(wire: Any, values: type[Value]) -> ClosedSet[Value]:
    """The closed set of an enumeration, whose values fields of records may have from now on."""
    value_set: ClosedSet[Value] = ClosedSet(wire, values)  # type: ignore[arg-type]
    convert_by(values, value_set.to_proto, value_set.from_proto)
    return value_set


LEVELS: ClosedSet[RunLevel] = ClosedSet(common_pb2.Level, get_args(RunLevel))
_CACHES: ClosedSet[CacheCondition] = ClosedSet(common_pb2.Cache, get_args(CacheCondition))
_CLOCKS: ClosedSet[ClockCondition] = ClosedSet(common_pb2.Clock, get_args(ClockCondition))
_SM_SHARES: ClosedSet[SmShareKind] = ClosedSet(common_pb2.SmShare, get_args(SmShareKind))


def condition_to_proto(condition: Condition) -> common_pb2.Condition:
    """A condition as a message, without the fields that were not recorded."""
    return common_pb2.Condition(
        cache=None if condition.cache is None else _CACHES.to_proto(condition.cache),
        clock=None if condition.clock is None else _CLOCKS.to_proto(condition.clock),
        sm_percent=condition.sm_percent or 0.0,
        sm_share=_SM_SHARES.to_proto(condition.sm_share),
    )


def condition_from_proto(message: common_pb2.Condition, subject: str) -> Condition:
    """A condition from a message about ``subject``; raises WireError for unknown values."""
    return Condition(
        cache=_CACHES.optional_from_proto(message.cache, subject),
        clock=_CLOCKS.optional_from_proto(message.clock, subject),
        sm_percent=message.sm_percent or None,
        sm_share=_SM_SHARES.optional_from_proto(message.sm_share, subject) or "limit",
    )


convert_by(Condition, condition_to_proto, condition_from_proto)
convert_by(RunLevel, LEVELS.to_proto, LEVELS.from_proto)
convert_by(Path, str, lambda text, _subject: Path(text))
