"""Command lines as the real tools read them: options first, then the program and its own arguments.

Long names may be shortened while they are unique, values follow after a blank or "=", an unknown option is
fatal. Messages are those of Nsight Compute 2024.1 (boost::program_options).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_TRUE, _FALSE = ("on", "yes", "1", "true"), ("off", "no", "0", "false")


class UsageError(Exception):
    """The command line is wrong; the text is the tool's. Never leaves the stand-ins."""


@dataclass(frozen=True)
class Option:
    """An option. ``kind`` is "flag", "text", "bool", "count" or "choice"; ``since`` and ``before`` are
    (year, release); ``default`` is what help shows; ``repeated`` options may be given several times."""

    name: str
    kind: str = "text"
    default: str | None = None
    short: str = ""
    choices: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (9999, 0)
    repeated: bool = False
    help: str = ""

    def exists(self, version: tuple[int, int]) -> bool:
        return self.since <= version < self.before


@dataclass(frozen=True)
class CommandLine:
    """Options that were given (each with all its values) and the program with its arguments."""

    values: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Option]
    program: tuple[str, ...] = field(default=())

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        """The value of an option, or its default ("" without one)."""
        if name in self.values:
            return self.values[name][-1]
        option = self.options.get(name)
        return (option.default or "") if option is not None else ""

    def is_on(self, name: str) -> bool:
        return name in self.values if self.options[name].kind == "flag" else self.text(name) in _TRUE

    def count(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text else None


def parse_command_line(options: Sequence[Option], arguments: Sequence[str]) -> CommandLine:
    """Read ``arguments``; raises UsageError with the tool's own message."""
    by_name = {option.name: option for option in options}
    by_short = {option.short: option for option in options if option.short}
    value_lists: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        token = rest[0]
        if token == "--" or not token.startswith("-") or token == "-":
            rest = rest[1:] if token == "--" else rest
            break
        rest.pop(0)
        option, value = _option(by_name, by_short, token)
        if option.kind == "flag":
            if value is not None:
                raise UsageError(f"option '--{option.name}' does not take any arguments")
            value = ""
        elif value is None:
            if not rest:
                raise UsageError(f"the required argument for option '--{option.name}' is missing")
            value = rest.pop(0)
        _check(option, value)
        if option.name in value_lists and not option.repeated:
            raise UsageError(f"option '--{option.name}' cannot be specified more than once")
        value_lists.setdefault(option.name, []).append(value)
    values = {name: tuple(texts) for name, texts in value_lists.items()}
    return CommandLine(values, by_name, tuple(rest))


def _option(
    by_name: Mapping[str, Option], by_short: Mapping[str, Option], token: str
) -> tuple[Option, str | None]:
    if not token.startswith("--"):
        if token[1] not in by_short:
            raise UsageError(f"unrecognised option '{token}'")
        value = token[2:]
        return by_short[token[1]], (value or None)
    name, equals, value = token[2:].partition("=")
    names = [name] if name in by_name else [long_name for long_name in by_name if long_name.startswith(name)]
    if not names:
        raise UsageError(f"unrecognised option '{token}'")
    if len(names) > 1:
        *most, last = sorted(names)
        listed = "".join(f"'{other}', " for other in most)
        raise UsageError(f"option is ambiguous and matches {listed}and '{last}'")
    return by_name[names[0]], (value if equals else None)


def _check(option: Option, value: str) -> None:
    if option.kind == "choice" and value not in option.choices:
        raise UsageError(f"the argument for option '--{option.name}' is invalid")
    if option.kind == "count" and not value.isdecimal():
        raise UsageError(f"the argument ('{value}') for option '--{option.name}' is invalid")
    if option.kind == "bool" and value not in (*_TRUE, *_FALSE):
        raise UsageError(
            f"the argument ('{value}') for option '--{option.name}' is invalid. "
            "Valid choices are 'on|off', 'yes|no', '1|0' and 'true|false'"
        )
