"""Reads the events of a trace in Chrome's JSON format bit by bit, without the whole text in memory.

The file is either an object with a member ``traceEvents`` (and others, before or after it) or a list of
events. The standard library's scanner decodes one value at a time from a window over the text, so one block
and its events are in memory. Its numbers are exact: fractions come as Decimal. Written by hand because
``json`` and pydantic need the whole text.

Where fractions need not be exact, the events of a block are taken at once, cut off between two objects. If
that is JSON, the cut is between two elements, since JSON is read from left to right in one way. The caller
may take their text (:mod:`assay_sampling.readers.kineto.at_once`); else pydantic decodes it, in a third of
the scanner's time; else the scanner reads on.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_blocks

_BLOCK_BYTES = 1 << 20
_LARGEST_VALUE_CHARACTERS = 256 << 20
_SEPARATOR = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_BLANKS = " \t\n\r"
_BETWEEN_OBJECTS = re.compile(r"\}[ \t\n\r]*,[ \t\n\r]*(?=\{)")
# How far from the end of the window the last event in it may begin.
_TAIL_CHARACTERS = 1 << 14
_READ_AGAIN = "copy it again from where it was recorded, or record it again"


class JsonEvents:
    """Iterates over the events of one file, some at a time; fractions are Decimal.

    ``take_text`` is given the text of several events, objects with commas between them, and returns how many
    it took, or None where it refuses: only what it refuses comes, with fractions as float.

    ``members`` holds the other members of the outermost object, complete at the end; ``count`` the
    events read so far, ``read_bytes`` the bytes (decompressed).

    Raises InputError where the file is cut off, damaged or not JSON; the error says how far it was read.
    """

    def __init__(self, path: Path, *, take_text: Callable[[bytes], int | None] | None = None) -> None:
        self.path = path
        self._take_text = take_text
        self.members: dict[str, Any] = {}
        self.count = 0
        self.read_bytes = 0
        self._blocks = read_blocks(path, _BLOCK_BYTES)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._decode = json.JSONDecoder(parse_float=Decimal, parse_constant=_constant).raw_decode
        self._text = ""
        self._position = 0
        self._ended = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        first = self._next_character()
        if first == "[":
            self._position += 1
            yield from self._elements()
        elif first == "{":
            self._position += 1
            yield from self._object()
        else:
            raise self._damaged("it is neither an object nor a list")
        if self._skip_blanks():
            raise self._damaged("there is text after the end of the trace")

    def _object(self) -> Iterator[Sequence[Any]]:
        character = self._next_character()
        while character != "}":
            key = self._value()
            if not isinstance(key, str):
                raise self._damaged("a member has no name")
            self._expect(":")
            if key == "traceEvents":
                self._expect("[")
                yield from self._elements()
            else:
                self.members[key] = self._value()
            character = self._next_character()
            if character == ",":
                self._position += 1
                character = self._next_character()
            elif character != "}":
                raise self._damaged("a comma is missing")
        self._position += 1

    def _elements(self) -> Iterator[Sequence[Any]]:
        if self._next_character() == "]":
            self._position += 1
            return
        while True:
            if self._take_text is not None:
                yield self._elements_at_once(self._take_text)
            yield self._elements_in_sight()
            event = self._value()
            self.count += 1
            yield [event]
            character = self._next_character()
            self._position += 1
            if character == "]":
                return
            if character != ",":
                raise self._damaged("a comma is missing")
            self._next_character()

    def _elements_at_once(self, take_text: Callable[[bytes], int | None]) -> Sequence[Any]:
        """The elements in the window up to the last place between two objects, unless they were taken; none
        if that is not JSON."""
        tail = max(self._position, len(self._text) - _TAIL_CHARACTERS)
        places = [(match.start(), match.end()) for match in _BETWEEN_OBJECTS.finditer(self._text, tail)]
        if not places:
            return []
        cut, following = places[-1]
        text = self._text[self._position : cut + 1].encode()
        events: list[Any] = []
        count = take_text(text)
        if count is None:
            try:
                events = from_json(b"[" + text + b"]", cache_strings="all")
            except ValueError:
                return []
            count = len(events)
        # A decoder that fails counts the lines before, so there should be none.
        self._text, self._position = self._text[following:], 0
        self.count += count
        return events

    def _elements_in_sight(self) -> Sequence[Any]:
        """The elements that are in the window with a comma after them; stops before anything else."""
        text, decode, separator = self._text, self._decode, _SEPARATOR.match
        events: list[Any] = []
        try:
            while True:
                event, end = decode(text, self._position)
                comma = separator(text, end)
                if comma is None:
                    return events
                self._position = comma.end()
                self.count += 1
                events.append(event)
        except (ValueError, RecursionError, ArithmeticError):
            return events

    def _value(self) -> Any:
        """The next value. A number counts as complete once the window shows what follows it."""
        self._next_character()
        characters = 1
        while True:
            try:
                value, end = self._decode(self._text, self._position)
                if end < len(self._text) or self._ended:
                    self._position = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise self._cut() from error
                if len(self._text) - self._position > _LARGEST_VALUE_CHARACTERS:
                    raise self._damaged(error.msg) from error
            except (ValueError, RecursionError, ArithmeticError) as error:
                raise self._damaged(str(error)) from error
            # The window doubles, so that a long value is not scanned over and over.
            self._read(characters)
            characters *= 2

    def _expect(self, character: str) -> None:
        if self._next_character() != character:
            raise self._damaged(f"{character!r} is missing")
        self._position += 1

    def _next_character(self) -> str:
        """Skip blanks and return the next character without consuming it. Raises InputError at the end."""
        character = self._skip_blanks()
        if not character:
            raise self._cut()
        return character

    def _skip_blanks(self) -> str:
        while True:
            text, position = self._text, self._position
            while position < len(text) and text[position] in _BLANKS:
                position += 1
            self._position = position
            if position < len(text):
                return text[position]
            if self._ended:
                return ""
            self._read()

    def _read(self, blocks: int = 1) -> None:
        """Append ``blocks`` blocks to the window at once, because each call copies all of it."""
        parts = [self._text[self._position :]]
        while blocks and not self._ended:
            parts.append(self._next_text())
            blocks -= 1
        self._text = "".join(parts)
        self._position = 0

    def _next_text(self) -> str:
        try:
            block = next(self._blocks, b"")
        except InputError as error:
            raise InputError(self.path, f"{error.cause}; {self._progress()}", error.remedy) from error
        self._ended = not block
        self.read_bytes += len(block)
        try:
            return self._decoder.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            raise InputError(
                self.path,
                f"it is not UTF-8 text ({error.reason}); {self._progress()}",
                "clean it with: iconv -f UTF-8 -t UTF-8 -c",
            ) from error

    def _progress(self) -> str:
        return f"{self.count} events in {self.read_bytes:,} bytes were read before that"

    def _cut(self) -> InputError:
        return InputError(self.path, f"the JSON text is cut off or not JSON; {self._progress()}", _READ_AGAIN)

    def _damaged(self, cause: str) -> InputError:
        return InputError(
            self.path, f"the JSON text is damaged ({cause[:200]}); {self._progress()}", _READ_AGAIN
        )


def _constant(text: str) -> float:
    # NaN and Infinity are not JSON, but traces have them in fields that nobody needs. Where one is needed,
    # the caller refuses it with the number of its event.
    return math.inf if text == "Infinity" else -math.inf if text == "-Infinity" else math.nan
