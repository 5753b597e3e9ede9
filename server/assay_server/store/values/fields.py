"""Fields that several tables hold alike, and the rows of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.launches.table import Condition

Row = Mapping[Any, Any]  # by column


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
        else:
            documents[name] = None if value is None else _document(value)
    return documents


def _document(value: Any) -> dict[str, Any]:
    return value.to_dict() if isinstance(value, Condition | Failure) else dataclasses.asdict(value)
