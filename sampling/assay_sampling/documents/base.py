"""The base of all parts of a document: a field's unit and meaning, and the keys that JSON leaves out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def says(meaning: str, unit: str = "") -> FieldInfo:
    """The meaning of a field for the format page and the schema; ``unit`` is empty if it has none."""
    more: dict[str, Any] = {"unit": unit} if unit else {}
    info: FieldInfo = Field(description=meaning, json_schema_extra=more or None)
    return info


def plain(value: Any) -> Any:
    """``value`` as what JSON knows: NumPy scalars and arrays, tuples, sets and paths become plain values, and
    a number that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value


class Part(BaseModel):
    """A part of a document. Keys that a newer release added are ignored when it is read."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=(), arbitrary_types_allowed=False)

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        super().__pydantic_init_subclass__(**settings)
        if cls.left_out_unless_set and not issubclass(cls, ArrangedPart):
            raise TypeError(f"{cls.__name__} leaves keys out, so it must be an ArrangedPart")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return self.model_dump(mode="json")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema of written documents: every key is required except those that may be left out."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        described["required"] = [name for name in cls.model_fields if name not in cls.left_out_unless_set]
        for each in described.get("properties", {}).values():
            each.pop("title", None)
            each.pop("default", None)
        return schema


class ArrangedPart(Part):
    """A part whose JSON form leaves keys out, or has them in another order than its fields.

    ``left_out_unless_set`` names the fields that the JSON form has only if they were given a value,
    ``written_first`` those that it begins with. Only such parts pay for it: a selection has a part of the
    other kind for each representative.
    """

    written_first: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _arranged(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        for name in self.left_out_unless_set - self.model_fields_set:
            document.pop(name, None)
        first = {name: document.pop(name) for name in self.written_first if name in document}
        return {**first, **document} if first else document
