"""Reads YAML into plain values with their lines, within hard bounds.

The parser's events are folded without recursion, so depth, size and number of values are capped while
reading. Aliases are refused: they let a small file expand to a huge value. PyYAML's own node trees do not
work here: it builds them recursively before anything can be counted, and an alias in them has the mark of
its anchor, so its own line is lost.

Plain words follow the core schema of YAML 1.2.2 (section 10.3.2), not YAML 1.1 as in PyYAML: numbers with
underscores or to base 60 (whose reading takes quadratic time) do not exist, and ``yes``, ``no``, ``on`` and
``off`` are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from assay_sampling.errors import CampaignError, MissingExtraError
from assay_server.limits import CAMPAIGN_FILE_LIMITS, CampaignFileLimits

REMEDY = "correct the file; 'assay docs campaign-file' shows every key"
_LIMITS_REMEDY = "make it smaller; 'assay docs limits' has every bound"
_LONGEST_SHOWN = 40

# YAML 1.2.2, section 10.3.2.
_CORE = (
    ("null", re.compile(r"null|Null|NULL|~|")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (
        "float",
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
            r"|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"
        ),
    ),
)
_NUMBERS = ("int", "float")
_CORE_KINDS = (*(kind for kind, _ in _CORE), "str")
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


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet, and its place."""

    place: Place
    values: dict[str, Any] | list[Any]
    key: str | None = None


def parse_yaml(text: str, file_name: str, limits: CampaignFileLimits = CAMPAIGN_FILE_LIMITS) -> Document:
    """Read one YAML document; raises CampaignError naming the line of the fault."""
    if len(text.encode(errors="surrogatepass")) > limits.campaign_file_bytes:
        raise CampaignError(
            file_name,
            f"it is larger than {limits.campaign_file_bytes:,} bytes",
            "split it into several campaigns",
        )
    with _syntax_errors(file_name, text):
        return _Folder(file_name, limits).fold(_events(text, file_name))


def _events(text: str, file_name: str) -> Iterator[Any]:
    try:
        import yaml  # noqa: PLC0415 - belongs to the extra "server"
    except ImportError as error:
        raise MissingExtraError(file_name, "yaml", "server") from error
    yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class _Folder:
    def __init__(self, file_name: str, limits: CampaignFileLimits) -> None:
        import yaml  # noqa: PLC0415 - belongs to the extra "server"

        self._yaml = yaml
        self._limits = limits
        self._file_name = file_name
        self._open: list[_Open] = []
        self._document = Document()
        self._values = 0
        self._documents = 0

    def fold(self, events: Iterator[Any]) -> Document:
        yaml = self._yaml
        for event in events:
            if isinstance(event, yaml.AliasEvent):
                raise self._error(event, "aliases (*name) are not supported here", "write out the value")
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise self._error(event, "a second document begins", "give each campaign its own file")
            elif isinstance(event, yaml.ScalarEvent):
                self._require_short(event)
                self._take_scalar(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
        return self._document

    def _begin(self, event: Any, values: dict[str, Any] | list[Any]) -> None:
        if self._open and isinstance(self._open[-1].values, dict) and self._open[-1].key is None:
            raise self._error(event, "a key must be a word, not a list or mapping")
        if len(self._open) >= self._limits.campaign_file_depth:
            raise self._error(event, f"it is nested more than {self._limits.campaign_file_depth} deep")
        place = self._place()
        self._put(values, event)
        self._open.append(_Open(place, values))

    def _take_scalar(self, event: Any) -> None:
        around = self._open[-1] if self._open else None
        if around is not None and isinstance(around.values, dict) and around.key is None:
            self._take_key(around, around.values, event)
            return
        self._put(self._scalar(event), event)

    def _take_key(self, around: _Open, values: dict[str, Any], event: Any) -> None:
        if event.value in values:
            first = self._document.lines[(*around.place, event.value)]
            raise self._error(event, f"the key {event.value!r} appears twice, first on line {first}")
        around.key = event.value
        self._document.lines[(*around.place, event.value)] = event.start_mark.line + 1

    def _put(self, value: Any, event: Any) -> None:
        self._values += 1
        if self._values > self._limits.campaign_file_values:
            raise self._error(event, f"it has more than {self._limits.campaign_file_values:,} values")
        place = self._place()
        self._document.lines.setdefault(place, event.start_mark.line + 1)
        if not self._open:
            self._document.values = value
            return
        around = self._open[-1]
        if isinstance(around.values, list):
            around.values.append(value)
        elif around.key is not None:
            around.values[around.key] = value
            around.key = None

    def _place(self) -> Place:
        if not self._open:
            return ()
        around = self._open[-1]
        return (*around.place, len(around.values) if isinstance(around.values, list) else around.key or "")

    def _require_short(self, event: Any) -> None:
        most = self._limits.campaign_scalar_characters
        if len(event.value) > most:
            raise self._error(
                event,
                f"a value has {len(event.value):,} characters; at most {most:,} are allowed",
                _LIMITS_REMEDY,
            )

    def _scalar(self, event: Any) -> Any:
        """Numbers, true, false and null of the core schema; everything else, including dates, is text."""
        kind = self._kind(event)
        if kind == "str":
            return event.value
        most = self._limits.campaign_number_characters
        if kind in _NUMBERS and len(event.value) > most:
            cause = f"a number has {len(event.value):,} characters; at most {most} are allowed"
            raise self._error(event, cause, _LIMITS_REMEDY)
        value = _read_as(kind, event.value)
        if isinstance(value, float) and not math.isfinite(value):
            shown = event.value
            if len(shown) > _LONGEST_SHOWN:
                shown = f"{shown[:_LONGEST_SHOWN]}..."
            raise self._error(event, f"{shown!r} cannot be read as {kind}")
        return value

    def _kind(self, event: Any) -> str:
        """The kind of a scalar, by its tag or else by its form."""
        tag = event.tag
        if tag == "!":
            return "str"
        if tag is None:
            plain = event.implicit[0]
            return next((kind for kind, form in _CORE if plain and form.fullmatch(event.value)), "str")
        kind = tag.removeprefix(_CORE_TAG)
        if kind not in _CORE_KINDS:
            raise self._error(event, f"the tag {tag[:100]!r} is not supported here", "write the plain value")
        return str(kind)

    def _error(self, event: Any, cause: str, remedy: str = REMEDY) -> CampaignError:
        return CampaignError(f"{self._file_name}:{event.start_mark.line + 1}", cause, remedy)


def _read_as(kind: str, text: str) -> Any:
    """A scalar of that kind; NaN, which no campaign file may hold, if the text does not fit."""
    if not next(form for name, form in _CORE if name == kind).fullmatch(text):
        return math.nan
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


@contextmanager
def _syntax_errors(file_name: str, text: str) -> Iterator[None]:
    import yaml  # noqa: PLC0415 - belongs to the extra "server"

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        raise _syntax_error(file_name, text, line, str(error.problem or error.context)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) if isinstance(error.position, int) else 0
        cause = f"the character #x{ord(chr(error.character)):04x} does not belong in a text file"
        raise CampaignError(f"{file_name}:{line + 1}", cause, "save the file as UTF-8 text") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        cause = f"it cannot be read as YAML ({error})"
        raise CampaignError(file_name, cause, REMEDY) from None


def _syntax_error(file_name: str, text: str, line: int, problem: str) -> CampaignError:
    lines = text.splitlines() or [""]
    line = min(line, len(lines) - 1)
    shown = lines[line]
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        return CampaignError(
            f"{file_name}:{line + 1}", "it is indented with a tab", "indent with spaces: YAML allows no tabs"
        )
    return CampaignError(f"{file_name}:{line + 1}", f"it is not YAML here: {problem}", REMEDY)
