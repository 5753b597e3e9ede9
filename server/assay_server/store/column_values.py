"""Values of columns, which every database stores alike: text without NUL, finite numbers, documents of both.

PostgreSQL refuses NUL in text and cannot read a part of a JSON document with one anywhere in it; SQLite keeps
both. SQLite stores NaN as null, PostgreSQL as NaN. So NUL becomes a visible sign, and NaN is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, TypeVar, get_origin

import sqlalchemy as sa

from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Slot
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.compiled import CompiledCampaign, Placement, SlicePlan
from assay_server.store.model import Hold

Record = TypeVar("Record")
Row = Mapping[Any, Any]  # by column

NUL_SIGN = "␀"  # U+2400, symbol for null


def without_nul(value: Any) -> Any:
    """A text, or a document with texts in it, with a visible sign in place of each NUL."""
    if isinstance(value, str):
        return value.replace("\0", NUL_SIGN) if "\0" in value else value
    if isinstance(value, dict):
        return {without_nul(name): without_nul(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nul(each) for each in value]
    return value


def finite(value: Any, of: str = "a number") -> Any:
    """A number, or a document; raises StorageError if a number in it is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise StorageError("metadata", f"{of} is {value}, which cannot be stored")
    if isinstance(value, dict):
        for name, each in value.items():
            finite(each, f"{of}.{name}")
    elif isinstance(value, list | tuple):
        for each in value:
            finite(each, of)
    return value


def document_text(document: Any) -> str:
    """The JSON text of a document. Raises StorageError if a number in it is not finite."""
    try:
        text = json.dumps(document, allow_nan=False)
        if "\\u0000" in text:
            text = json.dumps(without_nul(document), allow_nan=False)
    except ValueError as error:
        raise StorageError("metadata", f"a document cannot be stored ({error})") from error
    return text


class StoredText(sa.types.TypeDecorator[str]):
    """Text without NUL."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """The text as it is stored."""
        return None if value is None else str(without_nul(value))


class StoredNumber(sa.types.TypeDecorator[float]):
    """A finite number."""

    impl = sa.Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        """The number as it is stored; raises StorageError if it is not finite."""
        return None if value is None else float(finite(value))


class StoredEnum(sa.types.TypeDecorator[StrEnum]):
    """One of an enumeration's texts."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """The text as it is stored."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> StrEnum | None:
        """The member; raises ValueError if it has none with this text."""
        return None if value is None else self.kind(value)


class Document(sa.types.TypeDecorator[Any]):
    """A value as a JSON document: ``write`` makes it, ``read`` makes the value again."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, read: Callable[[Any], Any], write: Callable[[Any], Any]) -> None:
        super().__init__(none_as_null=True)
        self.read, self.write = read, write

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        """The document as it is stored."""
        return None if value is None else self.write(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """The value of a document."""
        return None if value is None else self.read(value)


def parsed(parse: Callable[[Any], Record], document: Any, subject: str, what: str) -> Record:
    """A document as ``parse`` reads it; raises StorageError if it cannot: ``what`` of ``subject`` it is."""
    try:
        return parse(document)
    except ValueError as error:
        cause = f"{what} is damaged, or of a newer release"
        raise StorageError(subject, cause, "restore a backup") from error


def documents_of(records: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Dataclasses as JSON documents."""
    return [dataclasses.asdict(record) for record in records]


def shallow(record: Any) -> dict[str, Any]:
    """A dataclass's fields by name, as they are."""
    return dict(vars(record))


def _command(document: Mapping[str, Any]) -> CommandSource:
    bundle = document.get("bundle")
    read = {"argv": tuple(document["argv"]), "bundle": None if bundle is None else Bundle(**bundle)}
    return CommandSource(**{**document, **read})


def _slot(document: Mapping[str, Any]) -> Slot:
    device = InstalledDevice(**document["device"]) if document.get("device") else None
    return Slot(**{**document, "profilers": tuple(document["profilers"]), "device": device})


def flags_of(documents: Any) -> tuple[ValidityFlag, ...]:
    """The validity flags of JSON documents."""
    return tuple(ValidityFlag(**document) for document in documents)


def _as_it_is(document: Any) -> Any:
    return document


# By the type of a field. Of compiled campaigns, plans and placements whoever reads a record makes the value,
# and names the record if it cannot be read.
_TYPES: Mapping[Any, sa.types.TypeEngine[Any]] = {
    str: StoredText(),
    int: sa.BigInteger(),
    bool: sa.Boolean(),
    float: StoredNumber(),
    bytes: sa.LargeBinary(),
    tuple[str, ...]: Document(tuple, list),
    Mapping[str, str]: Document(_as_it_is, dict),
    tuple[Hold, ...]: Document(lambda names: tuple(map(Hold, names)), list),
    tuple[ValidityFlag, ...]: Document(flags_of, documents_of),
    tuple[Slot, ...]: Document(lambda documents: tuple(map(_slot, documents)), documents_of),
    Failure: Document(lambda document: Failure(**document), Failure.to_dict),
    Condition: Document(lambda document: Condition(**document), Condition.to_dict),
    CommandSource: Document(_command, dataclasses.asdict),
    CompiledCampaign: Document(_as_it_is, CompiledCampaign.to_document),
    SlicePlan: Document(_as_it_is, SlicePlan.to_document),
    Placement: Document(_as_it_is, Placement.to_document),
}


def column_type(kind: Any) -> sa.types.TypeEngine[Any]:
    """The type of columns for values of a type."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return StoredEnum(kind)
    return _TYPES[str if get_origin(kind) is Literal else kind]
