"""Values of columns, which every database stores alike: text without NUL, finite numbers, documents of both.

PostgreSQL refuses NUL in text and cannot read a part of a JSON document with one anywhere in it; SQLite keeps
both. SQLite stores NaN as null, PostgreSQL as NaN. So NUL becomes a visible sign, and NaN is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition

Record = TypeVar("Record")
Row = Mapping[Any, Any]  # by column

NUL_SIGN = "␀"  # U+2400, symbol for null


def without_nul(text: str) -> str:
    """The text with a visible sign in place of each NUL."""
    return text.replace("\0", NUL_SIGN) if "\0" in text else text


def finite(number: float, of: str = "a number") -> float:
    """The number; raises StorageError if it is not finite."""
    if not math.isfinite(number):
        raise StorageError("metadata", f"{of} is {number}, which cannot be stored")
    return number


def document_text(document: Any) -> str:
    """The JSON text of a document. Raises StorageError if a number in it is not finite."""
    try:
        text = json.dumps(document, allow_nan=False)
        if "\\u0000" in text:
            text = json.dumps(_document_without_nul(document), allow_nan=False)
    except ValueError as error:
        raise StorageError("metadata", f"a document cannot be stored ({error})") from error
    return text


def _document_without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return without_nul(value)
    if isinstance(value, dict):
        return {_document_without_nul(name): _document_without_nul(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_document_without_nul(each) for each in value]
    return value


def plain_values(row: dict[str, Any]) -> dict[str, Any]:
    """A row of any database as every other one would keep it.

    Raises StorageError if a number in it is not finite.
    """
    for name, value in row.items():
        _require_finite(value, name)
    return {name: _document_without_nul(value) for name, value in row.items()}


def _require_finite(value: Any, of: str) -> None:
    if isinstance(value, float):
        finite(value, of)
    elif isinstance(value, dict):
        for name, each in value.items():
            _require_finite(each, f"{of}.{name}")
    elif isinstance(value, list | tuple):
        for each in value:
            _require_finite(each, of)


class StoredText(sa.types.TypeDecorator[str]):
    """Text without NUL."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """The text as it is stored."""
        return None if value is None else without_nul(value)


class StoredNumber(sa.types.TypeDecorator[float]):
    """A finite number."""

    impl = sa.Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        """The number as it is stored; raises StorageError if it is not finite."""
        return None if value is None else finite(value)


def parsed(parse: Callable[[Any], Record], document: Any, subject: str, what: str) -> Record:
    """A document as ``parse`` reads it; raises StorageError if it cannot: ``what`` of ``subject`` it is."""
    try:
        return parse(document)
    except ValueError as error:
        cause = f"{what} is damaged, or of a newer release"
        raise StorageError(subject, cause, "restore a backup") from error


def failure_of(document: Any) -> Failure | None:
    """The failure of a JSON document."""
    return None if document is None else Failure(**document)


def flags_of(documents: Any) -> tuple[ValidityFlag, ...]:
    """The validity flags of JSON documents."""
    return tuple(ValidityFlag(**document) for document in documents)


def shallow(record: Any) -> dict[str, Any]:
    """A dataclass's fields by name, as they are."""
    return {item.name: getattr(record, item.name) for item in dataclasses.fields(record)}


def documents_of(record: Any, *names: str) -> dict[str, Any]:
    """These fields as JSON documents; None stays None."""
    documents: dict[str, Any] = {}
    for name in names:
        value = getattr(record, name)
        if isinstance(value, tuple):
            documents[name] = [dataclasses.asdict(item) for item in value]
        elif isinstance(value, Condition | Failure):
            documents[name] = value.to_dict()
        else:
            documents[name] = None if value is None else dataclasses.asdict(value)
    return documents
