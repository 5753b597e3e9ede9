"""Reads YAML into plain values with their lines, within hard bounds.

Values are made from the parser's events, so depth, size and number of values are capped while reading.
Aliases are refused: they let a small file expand to a huge value. PyYAML's own node trees do not work here:
it builds them recursively before anything can be counted, and an alias in them has the mark of its anchor,
so its own line is lost.

Plain words follow the core schema of YAML 1.2.2 (section 10.3.2), not YAML 1.1 as in PyYAML: numbers with
underscores or to base 60 (whose reading takes quadratic time) do not exist, and ``yes``, ``no``, ``on`` and
``off`` are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from assay_sampling.errors import CampaignError, MissingExtraError
from assay_server.limits import CAMPAIGN_FILE_LIMITS, CampaignFileLimits

REMEDY = "correct the file; 'assay docs campaign-file' shows every key"
_LIMITS_REMEDY = "make it smaller; 'assay docs limits' has every bound"
_LONGEST_SHOWN = 40

# YAML 1.2.2, section 10.3.2: how plain words of each kind look, and are read.
_CORE: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    "int": (
        re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
        lambda text: int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)),
    ),
    "float": (
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"
        ),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
}
_NUMBERS = ("int", "float")
_CORE_TAG = "tag:yaml.org,2002:"

Place = tuple[str | int, ...]


@dataclass
class Document:
    """``values`` as plain Python, ``lines`` (1-based) by place: keys of mappings, positions in lists."""

    values: Any = None
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a place, or of the nearest entry around it that has one."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return 1


def parse_yaml(text: str, file_name: str, limits: CampaignFileLimits = CAMPAIGN_FILE_LIMITS) -> Document:
    """Read one YAML document; raises CampaignError naming the line of the fault."""
    if len(text.encode(errors="surrogatepass")) > limits.campaign_file_bytes:
        raise CampaignError(
            file_name,
            f"it is larger than {limits.campaign_file_bytes:,} bytes",
            "split it into several campaigns",
        )
    try:
        import yaml  # noqa: PLC0415 - belongs to the extra "server"
    except ImportError as error:
        raise MissingExtraError(file_name, "yaml", "server") from error
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _Reader(yaml, file_name, limits, events).document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) if isinstance(error.position, int) else 0
        cause = f"the character #x{ord(chr(error.character)):04x} does not belong in a text file"
        raise CampaignError(f"{file_name}:{line + 1}", cause, "save the file as UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        raise _syntax_error(file_name, text, line, str(error.problem or error.context)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise CampaignError(file_name, f"it cannot be read as YAML ({error})", REMEDY) from None


class _Reader:
    """Makes values from the events of the parser, each at its place."""

    def __init__(self, yaml: Any, file_name: str, limits: CampaignFileLimits, events: Iterator[Any]) -> None:
        self._yaml, self._file_name, self._limits, self._events = yaml, file_name, limits, events
        self._lines: dict[Place, int] = {}
        self._values = 0

    def document(self) -> Document:
        values, documents = None, 0
        for event in self._events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(event, "a second document begins", "give each campaign its own file")
            elif isinstance(event, self._yaml.NodeEvent):
                values = self._value(event, ())
        return Document(values, self._lines)

    def _value(self, event: Any, place: Place) -> Any:
        """The value that begins with an event; nested at most as deep as the limits say."""
        self._refuse_alias(event)
        if isinstance(event, self._yaml.ScalarEvent):
            value = self._scalar(event)
            self._count(event, place)
            return value
        if len(place) >= self._limits.campaign_file_depth:
            raise self._error(event, f"it is nested more than {self._limits.campaign_file_depth} deep")
        self._count(event, place)
        if isinstance(event, self._yaml.MappingStartEvent):
            return self._mapping(place)
        values: list[Any] = []
        for item in self._until_end():
            values.append(self._value(item, (*place, len(values))))
        return values

    def _mapping(self, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for event in self._until_end():
            self._refuse_alias(event)
            if not isinstance(event, self._yaml.ScalarEvent):
                raise self._error(event, "a key must be a word, not a list or mapping")
            self._require_short(event)
            key, entry = event.value, (*place, event.value)
            if key in values:
                raise self._error(event, f"the key {key!r} appears twice, first on line {self._lines[entry]}")
            self._lines[entry] = event.start_mark.line + 1
            values[key] = self._value(next(self._events), entry)
        return values

    def _until_end(self) -> Iterator[Any]:
        """The events up to the end of the innermost list or mapping."""
        while not isinstance(event := next(self._events), self._yaml.CollectionEndEvent):
            yield event

    def _refuse_alias(self, event: Any) -> None:
        if isinstance(event, self._yaml.AliasEvent):
            raise self._error(event, "aliases (*name) are not supported here", "write out the value")

    def _count(self, event: Any, place: Place) -> None:
        self._values += 1
        if self._values > self._limits.campaign_file_values:
            raise self._error(event, f"it has more than {self._limits.campaign_file_values:,} values")
        self._lines.setdefault(place, event.start_mark.line + 1)

    def _require_short(self, event: Any) -> None:
        most = self._limits.campaign_scalar_characters
        if len(event.value) > most:
            cause = f"a value has {len(event.value):,} characters; at most {most:,} are allowed"
            raise self._error(event, cause, _LIMITS_REMEDY)

    def _scalar(self, event: Any) -> Any:
        """Numbers, true, false and null of the core schema; everything else, including dates, is text."""
        self._require_short(event)
        kind, text = self._kind(event), event.value
        if kind == "str":
            return text
        most = self._limits.campaign_number_characters
        if kind in _NUMBERS and len(text) > most:
            cause = f"a number has {len(text):,} characters; at most {most} are allowed"
            raise self._error(event, cause, _LIMITS_REMEDY)
        form, read = _CORE[kind]
        # No campaign file may hold NaN, so it stands for a text that does not fit its tag.
        value = read(text) if form.fullmatch(text) else math.nan
        if isinstance(value, float) and not math.isfinite(value):
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
            raise self._error(event, f"{shown!r} cannot be read as {kind}")
        return value

    def _kind(self, event: Any) -> str:
        """The kind of a scalar, by its tag or else by its form."""
        tag = event.tag
        if tag == "!" or (tag is None and not event.implicit[0]):
            return "str"
        if tag is None:
            return next((kind for kind, (form, _) in _CORE.items() if form.fullmatch(event.value)), "str")
        kind = str(tag.removeprefix(_CORE_TAG))
        if kind not in _CORE and kind != "str":
            raise self._error(event, f"the tag {tag[:100]!r} is not supported here", "write the plain value")
        return kind

    def _error(self, event: Any, cause: str, remedy: str = REMEDY) -> CampaignError:
        return CampaignError(f"{self._file_name}:{event.start_mark.line + 1}", cause, remedy)


def _syntax_error(file_name: str, text: str, line: int, problem: str) -> CampaignError:
    lines = text.splitlines() or [""]
    line = min(line, len(lines) - 1)
    shown = lines[line]
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        return CampaignError(
            f"{file_name}:{line + 1}", "it is indented with a tab", "indent with spaces: YAML allows no tabs"
        )
    return CampaignError(f"{file_name}:{line + 1}", f"it is not YAML here: {problem}", REMEDY)
