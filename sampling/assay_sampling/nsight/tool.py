"""A release of one of the tools, and its options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from assay_sampling.errors import ParameterError

Program = Literal["ncu", "nsys"]
PRODUCTS: dict[Program, str] = {"ncu": "Nsight Compute", "nsys": "Nsight Systems"}
_VERSION = re.compile(r"20\d\d\.\d{1,2}(\.\d+)*")


@dataclass(frozen=True)
class ToolVersion:
    """A tool. ``options`` maps each long option to the words of its description."""

    program: str
    version: str
    options: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def has(self, option: str) -> bool:
        """Whether the tool knows an option such as ``--config-file``."""
        return option in self.options

    def offers(self, option: str, value: str) -> bool:
        """Whether the description of an option names a value."""
        return value in self.options.get(option, ())

    def at_least(self, year: int, release: int) -> bool:
        """Whether this is release ``year.release`` or a later one."""
        return _key(self.version) >= (year, release)


@dataclass(frozen=True)
class Release:
    """The release that introduced each option of a tool, and each later value of an option."""

    oldest: str
    always: tuple[str, ...]
    since: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]


def tool_of_release(program: Program, version: str = "") -> ToolVersion:
    """The tool of a release such as "2024.1", with those of our command lines' options that it has.

    Without a version: the options that every release has since the oldest in the table (``releases.toml``).
    Raises ParameterError for a text that is not a release, or for an older one.
    """
    table = _releases()[program]
    if version and not _VERSION.fullmatch(version):
        raise ParameterError(
            "--tool-version", f"{version!r} is not a release of {PRODUCTS[program]}", "write it like 2024.1"
        )
    if version and _key(version) < _key(table.oldest):
        raise ParameterError(
            "--tool-version",
            f"Assay does not know the options of {PRODUCTS[program]} {version}",
            f"use release {table.oldest} or a later one",
        )
    options = [*table.always, *(name for name, first in table.since.items() if _has(version, first))]
    words = {
        name: frozenset(value for value, first in values.items() if _has(version, first))
        for name, values in table.values.items()
    }
    return ToolVersion(program, version, {name: words.get(name, frozenset()) for name in options})


def options_since(program: Program, version: str = "") -> dict[str, str]:
    """The options that only later releases than this one have, each with the first that does.

    Without a version: later than the oldest in the table.
    """
    since = _releases()[program].since
    return {option: first for option, first in since.items() if not _has(version, first)}


def newer_than_oldest(program: Program, version: str) -> bool:
    """Whether a release is newer than the oldest whose options are known; False for ""."""
    return bool(version) and _key(version) > _key(_releases()[program].oldest)


def is_newer(version: str, other: str) -> bool:
    """Whether a release is newer than another; False where one of them is not a release's number."""
    numbers = [match[0] for text in (version, other) if (match := _VERSION.match(text))]
    return len(numbers) == 2 and _key(numbers[0]) > _key(numbers[1])


def oldest_release(program: Program) -> str:
    """The oldest release whose options are known."""
    return _releases()[program].oldest


def _has(version: str, first: str) -> bool:
    return bool(version) and _key(version) >= _key(first)


def _key(version: str) -> tuple[int, int]:
    first, second, *_ = (*(int(part) for part in version.split(".")), 0, 0)
    return first, second


@cache
def _releases() -> dict[str, Release]:
    text = resources.files("assay_sampling.nsight").joinpath("releases.toml").read_text()
    return {name: _release(entry) for name, entry in tomllib.loads(text).items()}


def _release(entry: dict[str, Any]) -> Release:
    return Release(entry["oldest"], tuple(entry["always"]), entry["since"], entry.get("values", {}))
