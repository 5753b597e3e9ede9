"""What a run's numbers rest on: campaign, programs, driver and GPUs. If one changes, a run begins anew."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

# A larger file, such as a data set, is known by its size and the time of its last change.
_MOST_HASHED_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_MOST_NAMED = 3


@dataclass(frozen=True)
class Basis:
    """What a run rests on.

    Args:
        text: hash of the campaign's text.
        files: identities of programs, and of the files that their commands and recordings name, by path.
        driver: version of NVIDIA's driver; "" without one.
        gpus: names and UUIDs of GPUs; virtual ones by kind and count.
    """

    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    gpus: tuple[str, ...] = ()

    def changes(self, now: Basis) -> str:
        """What differs ``now``, in words; "" if nothing does."""
        parts = []
        if self.text != now.text:
            parts.append("the campaign or the options differ")
        changed = [path for path, identity in now.files.items() if self.files.get(path) != identity]
        changed += [path for path in self.files if path not in now.files]
        if changed and self.text == now.text:
            more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
            parts.append(f"{', '.join(sorted(changed)[:_MOST_NAMED])}{more} changed")
        if self.driver != now.driver:
            parts.append(f"the driver was {self.driver or 'missing'} and is {now.driver or 'missing'}")
        if self.gpus != now.gpus:
            parts.append(f"the GPUs were {_listed(self.gpus)} and are {_listed(now.gpus)}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for a document of another form."""
        return cls(
            str(document["text"]),
            {str(path): str(identity) for path, identity in dict(document["files"]).items()},
            str(document["driver"]),
            tuple(str(each) for each in document["gpus"]),
        )


def _listed(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) or "none"


def text_hash(text: str) -> str:
    """SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def files_of(commands: Iterable[Sequence[str]], recordings: Iterable[str], folder: Path) -> dict[str, str]:
    """The identities of what commands and recordings name, by path.

    Args:
        commands: program and arguments each; a program without a slash is found in PATH.
        recordings: paths.
        folder: where relative paths begin.
    """
    named = [*(path for command in commands for path in _named_in(command, folder)), *recordings]
    return {path: _identity(folder / path) for path in dict.fromkeys(named)}


def _named_in(command: Sequence[str], folder: Path) -> Iterator[str]:
    """The program, and arguments that are files."""
    program, *arguments = command
    if "/" not in program and not _is_file(folder / program):
        program = shutil.which(program) or program
    yield program
    for argument in arguments:
        path = argument.partition("=")[2] if argument.startswith("-") else argument
        if path and _is_file(folder / path):
            yield path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _identity(path: Path) -> str:
    """SHA-256 of a file, or size and time of a large one; why it cannot be read otherwise."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            state = os.fstat(file.fileno())
            if state.st_size > _MOST_HASHED_BYTES:
                return f"{state.st_size} bytes, {state.st_mtime_ns}"
            digest = hashlib.sha256()
            while data := file.read(_CHUNK_BYTES):
                digest.update(data)
        return digest.hexdigest()
    except (OSError, ValueError) as error:
        return type(error).__name__


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe may have that name
