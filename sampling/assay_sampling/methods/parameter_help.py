"""Help for the parameters of a selection method: their names, values, defaults and meanings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_BOUNDS = (("minimum", ">= "), ("exclusiveMinimum", "> "), ("maximum", "<= "), ("exclusiveMaximum", "< "))


@dataclass(frozen=True)
class ParameterHelp:
    """One parameter: the ``values`` it takes, in words, and its ``default`` as one types it, "" for none."""

    name: str
    values: str
    default: str
    help: str


def parameter_help(parameters: type[BaseModel]) -> tuple[ParameterHelp, ...]:
    """The parameters of a method, in the order of its model."""
    schema = parameters.model_json_schema()
    definitions = schema.get("$defs", {})
    return tuple(
        ParameterHelp(
            name=name,
            values=_values(schema["properties"][name], definitions),
            default=_typed(field.get_default(call_default_factory=True)),
            help=field.description or "",
        )
        for name, field in parameters.model_fields.items()
    )


def parameter_table(parameters: type[BaseModel]) -> str:
    """The parameters of a method as a Markdown table."""
    rows = ["| parameter | default | values | meaning |", "|---|---|---|---|"]
    for each in parameter_help(parameters):
        cells = (f"`{each.name}`", each.default or "-", each.values, each.help)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _values(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _values(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return ", or ".join(filter(None, (_values(each, definitions) for each in schema["anyOf"])))
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "true|false",
        "string": "text",
        "null": "",
    }
    bounds = " and ".join(f"{sign}{schema[key]:g}" for key, sign in _BOUNDS if key in schema)
    kind = words.get(str(schema.get("type")), str(schema.get("type", "")))
    return f"{kind} {bounds}".strip()


def _typed(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
