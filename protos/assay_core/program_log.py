"""A program's log: one line per event, with the campaign, run and attempt that it is about.

As text: ``2026-11-22T07:13:46.120Z WARNING assay_agent.uplink: the server is away run=4f2a attempt=1``; as
JSON, one object per line with ``time``, ``level``, ``logger``, ``message``, ``exception`` and the fields.
It is the standard library's logging: every package that we use logs through it already.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TextIO

_NOTHING: Mapping[str, str | int] = MappingProxyType({})
_about: ContextVar[Mapping[str, str | int]] = ContextVar("assay_log_about", default=_NOTHING)

# The descriptor, since a fault may end a program whose sys.stderr is no file.
_STANDARD_ERROR = 2


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of a line."""

    TEXT = "text"
    JSON = "json"


@contextlib.contextmanager
def log_about(**fields: str | int) -> Iterator[None]:
    """In the block, every line of this thread or task carries these fields, besides those of outer blocks.

    The names in use are ``campaign``, ``run``, ``slice`` and ``attempt``; a server's calls have ``call``,
    ``address`` and ``caller``.
    """
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def log_about_from_now(**fields: str | int) -> None:
    """Every further line of this thread or task carries these fields, too."""
    _about.set({**_about.get(), **fields})


def set_up_log(level: LogLevel, style: LogFormat, stream: TextIO | None = None) -> None:
    """Log to ``stream``, standard error by default; replaces an earlier set-up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(log_formatter(style))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


def log_crashes() -> None:
    """Write every stack to standard error if a fault in native code (SIGSEGV, SIGABRT) ends the program."""
    faulthandler.enable(_STANDARD_ERROR)


def log_formatter(style: LogFormat) -> logging.Formatter:
    """The formatter that turns a log record into a line."""
    return _JsonLines() if style is LogFormat.JSON else _TextLines()


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A message with a line break, from a kernel's name for example, must not look like two events.
        message = record.getMessage().replace("\n", "\\n")
        fields = "".join(f" {name}={_word(value)}" for name, value in _about.get().items())
        line = f"{_time(record)} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: str | int) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text)
