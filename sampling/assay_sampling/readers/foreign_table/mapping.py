"""The mapping of a table's columns to the launch table: a small TOML file.

``[launches]`` names, for a column of the launch table, the column of the file, a constant or a text made of
columns; ``[counters]`` the same for counters; the keys before them say what is true of the whole table.

Format: docs/how-to/foreign-tables.md.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assay_sampling.counters.definitions import registry
from assay_sampling.errors import InputError
from assay_sampling.files.reading import require_file
from assay_sampling.launches.table import BASE_FIELDS, TEXT_COLUMNS
from assay_sampling.readers.numbers import COUNTER_UNITS, base_of, unit_factor

PAGE = "'assay docs foreign-tables' has the format, with examples"
TARGETS: Mapping[str, str] = {
    item.name.removesuffix("_id") if item.name in TEXT_COLUMNS else item.name: item.name
    for item in BASE_FIELDS
}
TEXTS = tuple(name for name, column in TARGETS.items() if column in TEXT_COLUMNS)
# Columns that may be given in another unit than their own.
_BASE_UNITS = {
    "duration_ns": "ns", "start_ns": "ns",
    "shared_memory_bytes": "byte", "dynamic_shared_memory_bytes": "byte",
}  # fmt: skip
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class Source(BaseModel):
    """Where a value comes from: a ``column``, a constant ``value``, or a ``text`` with {columns} in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str | None = None
    value: str | int | float | None = None
    text: str | None = None
    unit: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of(self) -> Source:
        if sum(each is not None for each in (self.column, self.value, self.text)) != 1:
            raise ValueError("give one of column, value and text")
        return self

    def columns(self) -> tuple[str, ...]:
        """The columns of the file that it reads."""
        if self.text is not None:
            return tuple(_PLACEHOLDER.findall(self.text))
        return () if self.column is None else (self.column,)

    def parts(self) -> Iterator[tuple[str, bool]]:
        """The pieces of ``text`` in order, and whether each is the name of a column."""
        for index, piece in enumerate(_PLACEHOLDER.split(self.text or "")):
            if piece:
                yield piece, index % 2 == 1


Cell = str | int | float


class TableMapping(BaseModel):
    """How the rows of a table are launches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpu: Source | None = None
    compute_capability: str = ""
    tool: str = ""
    synthetic: bool = False
    level: Literal["detailed", "light"] | None = None
    records: str = ""
    separator: str = Field(default=",", min_length=1, max_length=1)
    only: dict[str, Cell | list[Cell]] = {}
    skip: dict[str, Cell | list[Cell]] = {}
    repeat: str | int = 1
    expand: str | None = None
    other_columns: list[str] = []
    launches: dict[str, Source]
    counters: dict[str, Source] = {}

    @field_validator("gpu", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"value": value} if isinstance(value, str) else value

    @property
    def has_counters(self) -> bool:
        return bool(self.counters or self.other_columns)

    def columns(self) -> tuple[str, ...]:
        """The columns of the file that it names, each once."""
        sources = (
            *([] if self.gpu is None else [self.gpu]),
            *self.launches.values(),
            *self.counters.values(),
        )
        named = [column for source in sources for column in source.columns()]
        named += [*self.only, *self.skip, *([self.expand] if self.expand else [])]
        named += [self.repeat] if isinstance(self.repeat, str) else []
        return tuple(dict.fromkeys(named))


def read_mapping(path: Path) -> TableMapping:
    """Read a mapping; raises InputError naming the key that is unknown, missing or of a wrong value."""
    require_file(path, f"write a mapping; {PAGE}")
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8"))
        mapping = TableMapping.model_validate(document)
    except RecursionError as error:
        raise InputError(path, "its values are nested too deep", PAGE) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"it cannot be read as text ({error})", PAGE) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        cause = first["msg"][:1].lower() + first["msg"][1:]
        raise InputError(path, cause, PAGE, field=key or None) from error
    except ValueError as error:  # tomllib's own, and numbers of thousands of digits
        raise InputError(path, f"it is not TOML: {error}", PAGE) from error
    for key, cause, remedy in _faults(mapping):
        raise InputError(path, cause, remedy, field=key)
    return mapping


def factor_of(target: str, source: Source) -> float:
    """The factor that brings a column of the launch table to its own unit."""
    unit = _BASE_UNITS.get(target)
    factor = None if unit is None or source.unit is None else unit_factor(source.unit, unit)
    return 1.0 if factor is None else factor


def counter_unit(name: str, source: Source, unit_by_name: str) -> tuple[str, float]:
    """The base unit of a counter, and the factor to it."""
    own_unit = registry()[name].unit if name in registry() else None
    if source.unit is None:
        return own_unit or unit_by_name, 1.0
    if own_unit is not None:
        return own_unit, unit_factor(source.unit, own_unit) or 1.0
    return base_of(source.unit) or ("1", 1.0)


def _faults(mapping: TableMapping) -> Iterator[tuple[str, str, str]]:
    """Key, cause and remedy of what no field alone shows to be wrong."""
    yield from _launch_faults(mapping)
    yield from _counter_faults(mapping)
    if mapping.level == "light" and mapping.has_counters:
        yield "level", "a light table has no counters", "leave out level, or the counters"
    if mapping.level == "detailed" and not mapping.has_counters:
        yield "level", "a detailed table has counters, and none is mapped", "name some below [counters]"
    if isinstance(mapping.repeat, int) and mapping.repeat < 1:
        yield "repeat", f"{mapping.repeat} is below 1", "leave it out, or name a column of counts"
    if mapping.expand and mapping.repeat != 1:
        yield "repeat", "expand makes several launches of a row already", "leave one of both out"
    if (mapping.expand or mapping.repeat != 1) and "launch" in mapping.launches:
        yield (
            "launches.launch",
            "a row becomes several launches, which cannot have one number",
            "leave it out",
        )


def _launch_faults(mapping: TableMapping) -> Iterator[tuple[str, str, str]]:
    for target, source in mapping.launches.items():
        key = f"launches.{target}"
        if target not in TARGETS:
            yield key, "the launch table has no such column", _instead(target)
        yield from _unit_faults(key, source, _BASE_UNITS.get(target))
        if source.text is not None and target not in TEXTS:
            yield key, "it is a number, and a text is given", "give a column or a value"
    if "kernel" not in mapping.launches:
        yield (
            "launches.kernel",
            "every launch needs the name of its kernel",
            "name its column, or give a value",
        )


def _counter_faults(mapping: TableMapping) -> Iterator[tuple[str, str, str]]:
    for name, source in mapping.counters.items():
        key = f"counters.{name}"
        if name in TARGETS or name in TARGETS.values():
            yield key, "it is no counter", f"write it below [launches]; {PAGE}"
        if source.text is not None or isinstance(source.value, str):
            yield key, "it is a number, and a text is given", "give a column or a number"
        if name in registry():
            yield from _unit_faults(key, source, registry()[name].unit)
        elif source.unit is not None and base_of(source.unit) is None:
            yield key, f"there is no unit {source.unit!r}", f"use one of {', '.join(COUNTER_UNITS)}"


def _unit_faults(key: str, source: Source, base: str | None) -> Iterator[tuple[str, str, str]]:
    if source.unit is None:
        return
    if base is None:
        yield key, f"it has no unit, and {source.unit!r} is given", "leave out the unit"
    elif unit_factor(source.unit, base) is None:
        how = "ns, us, ms or s" if base == "ns" else base
        yield key, f"{source.unit!r} is no unit of a quantity in {base!r}", f"use {how}"


def _instead(target: str) -> str:
    close = difflib.get_close_matches(target, TARGETS, n=1)
    if target.split("_", maxsplit=1)[0] in ("duration", "time", "latency"):
        close = ["duration_ns"]
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}There are {', '.join(TARGETS)}; counters belong below [counters]"
