"""Messages about faults of a campaign file: what is wrong, with the line and the path of the field."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from assay_sampling.errors import CampaignError
from assay_server.campaign_file.spec import Campaign
from assay_server.campaign_file.yaml_source import REMEDY, Document, Place

MOST_ERRORS = 10


@dataclass(frozen=True)
class Fault:
    """A fault and its place in the file."""

    place: Place
    text: str


def error_of(faults: Iterable[Fault], document: Document, file_name: str) -> CampaignError:
    """The error that names file, line and field of the first ten faults, in the order of the file."""
    ordered = sorted(faults, key=lambda fault: document.line(fault.place))
    texts: list[str] = []
    for fault in ordered[:MOST_ERRORS]:
        field = field_path(fault.place)
        cause = f"field {field}: {fault.text}" if field else fault.text
        texts.append(f"{file_name}:{document.line(fault.place)}: {cause}" if texts else cause)
    if len(ordered) > MOST_ERRORS:
        texts.append(f"and {len(ordered) - MOST_ERRORS} more")
    return CampaignError(f"{file_name}:{document.line(ordered[0].place)}", "\n".join(texts), REMEDY)


def fault_of(details: ErrorDetails) -> Fault:
    """A validation error of pydantic as a fault with our message."""
    place: Place = tuple(details["loc"])
    kind, context, value = details["type"], details.get("ctx", {}), shown(details["input"])
    if kind == "extra_forbidden":
        return Fault(place, _unknown_key(place))
    if kind == "missing":
        return Fault(place, "this key is required")
    text = _TEXTS.get(kind, "")
    if text:
        return Fault(place, text.format(value=value, **context))
    if kind == "method":
        return Fault(place, details["msg"])
    if kind in ("detailed", "ranks"):
        return Fault(place, f"{value} is {details['msg']}")
    return Fault(place, f"{details['msg'][:1].lower()}{details['msg'][1:]}, not {value}")


_TEXTS = {
    "literal_error": "{value} is not {expected}",
    "string_type": "{value} is not text; write it in quotes",
    "string_pattern_mismatch": "{value} is not a name made of letters, digits, '.', '_' and '-'",
    "string_too_short": "it is empty",
    "too_short": "it is empty",
    "bool_type": "{value} is neither true nor false",
    "int_type": "{value} is not a whole number",
    "float_type": "{value} is not a number",
    "list_type": "{value} is not a list; begin each item with '- '",
    "model_type": "{value} is not a mapping of keys to values",
    "greater_than": "{value} is not above {gt}",
    "greater_than_equal": "{value} is below {ge}",
    "less_than_equal": "{value} is above {le}",
    "dict_type": "{value} is not a mapping of names to texts",
    "too_long": "it has more than {max_length} items",
    "string_too_long": "it is longer than {max_length} characters",
}


def shown(value: Any) -> str:
    """A value of the file, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def field_path(place: Place) -> str:
    """``workloads[0].recordings[1].light``; "" for the whole file."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _unknown_key(place: Place) -> str:
    """What is wrong with a key that its model does not have."""
    model: type[BaseModel] = Campaign
    for part in place[:-1]:
        if isinstance(part, str):
            model = next(_models_in(model.model_fields[part].annotation))
    close = difflib.get_close_matches(str(place[-1]), model.model_fields, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the keys here are {', '.join(model.model_fields)}"
    return f"unknown key; {hint}"


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models of a field, or of the items of its list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
