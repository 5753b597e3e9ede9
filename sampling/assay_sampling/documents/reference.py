"""The reference of a document, made from its model: tables of fields for people, JSON Schema for programs."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from assay_sampling.documents.base import Part

_BASE = "https://json-schema.org/draft/2020-12/schema"


def field_tables(model: type[Part]) -> str:
    """A table of the document's own keys, then one for each part that it holds, as Markdown."""
    parts = list(_parts(model, {}))
    return "\n\n".join(
        [_table(model), *(f"### {part.__name__}\n\n{_about(part)}{_table(part)}" for part in parts)]
    )


def schema_text(model: type[Part]) -> str:
    """The JSON Schema of what is written today, ready for a file."""
    return json.dumps({"$schema": _BASE, **model.model_json_schema()}, indent=1, ensure_ascii=False) + "\n"


def _about(part: type[Part]) -> str:
    text = " ".join((part.__doc__ or "").split())
    return f"{text}\n\n" if text else ""


def _table(model: type[Part]) -> str:
    lines = ["| key | type | unit | meaning |", "|---|---|---|---|"]
    # Keys that may not be there come last.
    for name, field in sorted(
        model.model_fields.items(), key=lambda pair: pair[0] in model.left_out_unless_set
    ):
        extra = field.json_schema_extra
        unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
        left_out = "; left out if it does not apply" if name in model.left_out_unless_set else ""
        meaning = f"{field.description or ''}{left_out}"
        cells = (f"`{name}`", _type_text(field.annotation), unit, meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


_PLAIN = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def _type_text(kind: Any) -> str:
    """A type for people: ``list of [Row](#row)``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_text(each) for each in arguments))
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin in (list, dict):
        return f"{'list' if origin is list else 'object'} of {_type_text(arguments[-1])}"
    return _link(kind) or _PLAIN.get(kind, "any JSON value")


def _link(kind: Any) -> str:
    is_part = isinstance(kind, type) and issubclass(kind, Part)
    return f"[{kind.__name__}](#{kind.__name__.lower()})" if is_part else ""


def _parts(model: type[Part], parts: dict[type[Part], None]) -> Iterator[type[Part]]:
    """The parts that a model holds, each once, in the order of its fields; each before its own parts."""
    for field in model.model_fields.values():
        for part in _named_in(field.annotation):
            if part not in parts:
                parts[part] = None
                yield part
                yield from _parts(part, parts)


def _named_in(kind: Any) -> Iterator[type[Part]]:
    if isinstance(kind, type) and not get_args(kind) and issubclass(kind, Part):
        yield kind
    for each in get_args(kind):
        yield from _named_in(each)
