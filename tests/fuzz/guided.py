"""Fuzzing guided by coverage, with atheris (``make fuzz-atheris``, by hand; not a dependency of Assay).

python -m tests.fuzz.guided TARGET [-max_total_time=SECONDS] [further options of libFuzzer]

TARGET: one of :data:`tests.fuzz.targets.TARGETS`, or ``records``: every record that crosses the wire. An
input that raises anything but an AssayError ends the run, and libFuzzer keeps it as ``crash-...``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import tempfile
import typing
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

OURS = ["assay_core", "assay_sampling", "assay_server"]


def records() -> list[tuple[type[Message], Callable[[Any], object]]]:
    """Every kind of message that is read into a record, with what reads it."""
    package = importlib.import_module("assay_core.records")
    found: dict[tuple[type[Message], str], Callable[[Any], object]] = {}
    for module in pkgutil.iter_modules(package.__path__, "assay_core.records."):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            read = getattr(kind, "from_proto", None)
            hints = {} if read is None else typing.get_type_hints(read)
            message = next((hint for key, hint in hints.items() if key != "return"), None)
            message = getattr(kind, "message_type", message)
            if read is not None and inspect.isclass(message) and issubclass(message, Message):
                found[message, name] = read
    return [(message, found[message, name]) for message, name in sorted(found, key=str)]


def _of_records() -> Callable[[bytes], None]:
    every = records()
    random_message = importlib.import_module("tests.fuzz.rpc_messages").random_message

    def read(data: bytes) -> None:
        if len(data) < 2:
            return
        message, from_proto = every[data[0] % len(every)]
        if data[1] % 2:  # a message with values that are often out of bounds; few bytes are a message
            from_proto(random_message(message.DESCRIPTOR, Random(data[2:])))
            return
        try:
            made = message.FromString(data[2:])
        except DecodeError:
            return
        from_proto(made)

    return read


def _of_files(target: str, folder: Path) -> Callable[[bytes], None]:
    feed = importlib.import_module("tests.fuzz.targets").TARGETS[target].feed
    path = folder / "input"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        feed(path)

    return read


def seeds_of(target: str, folder: Path) -> None:
    """Write whole inputs of a target, from which libFuzzer begins."""
    made = importlib.import_module("tests.fuzz.targets").TARGETS[target].seeds()
    for number, seed in enumerate(each for each in made if isinstance(each, bytes)):
        (folder / str(number)).write_bytes(seed)


def main() -> None:
    """Fuzz one target until its time is over, or an input fails."""
    target, *options = sys.argv[1:]
    atheris: Any = importlib.import_module("atheris")
    with tempfile.TemporaryDirectory(prefix="assay-guided-") as root:
        corpus = Path(root) / "corpus"
        corpus.mkdir()
        with atheris.instrument_imports(include=OURS):
            read = _of_records() if target == "records" else _of_files(target, Path(root))
        if target != "records":
            seeds_of(target, corpus)
        typed: Any = importlib.import_module("assay_sampling.errors").AssayError

        def one(data: bytes) -> None:
            try:
                read(data)
            except typed as error:
                f"{error}".encode()

        atheris.Setup([sys.argv[0], *options, str(corpus)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
