"""The weights file: a selection as one text that people, shells and spreadsheets read, and Assay reads back.

Lines of facts begin with ``#`` and hold JSON; then comes a table with one line a representative, by operation
one a launch of it, separated by tabs. With the facts of :mod:`assay_sampling.handover.weights_facts` it
has the total and interval of the selection; files of other programs lack them.

Format: docs/weights-format.md. Memory to read it: about 1 KiB a representative.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay_sampling.documents.selection import SELECTION_VERSION, OperationLaunch, RepresentativeEntry
from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_blocks, require_file
from assay_sampling.handover.weights_facts import FactError, added, more_facts, of_operations
from assay_sampling.readers.known_files import WEIGHTS_MAGIC, known_file
from assay_sampling.scoring.saved_selection import SavedSelection

WEIGHTS_VERSION = 1
MAGIC = WEIGHTS_MAGIC
COLUMNS = ("group", "process", "launch", "sim_id", "weight", "light_time_weight", "grid", "block", "kernel")
_FACTS = ("method", "parameters", "seed", "profile", "weights", "cost", "group_launches")
_AGAIN = "write it again with: assay export SELECTION --to weights"
_MOST_BYTES = 1 << 31
_BLOCK_BYTES = 1 << 20
_SIMPOINT = re.compile(r"\s*(?:[0-9.eE+-]+\s+\d+\s*\n)+")


def looks_like_weights(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a weights file."""
    return head.startswith(MAGIC.encode())


def weights_text(saved: SavedSelection, made_by: str) -> Iterator[str]:
    """The weights file of a selection, in pieces; ``made_by`` names the program and its version."""
    document = saved.document
    facts: dict[str, Any] = {
        "made_by": made_by,
        "method": document.method,
        "parameters": document.parameters,
        "seed": document.seed,
        "profile": document.profile.to_dict(),
        "weights": {"here": saved.weights.here, "elsewhere": saved.weights.elsewhere},
        "cost": None if document.cost is None else document.cost.to_dict(),
        "group_launches": [group.launches for group in document.groups],
        **more_facts(document),
    }
    yield f"{MAGIC} {WEIGHTS_VERSION}\n"
    for name, value in facts.items():
        yield f"# {name}: {json.dumps(value)}\n"
    yield "\t".join(COLUMNS) + "\n"
    for number, group in enumerate(document.groups):
        for entry in group.representatives:
            for launch in [entry] if entry.operation is None else entry.operation.launches:
                yield "\t".join(_cells(number, entry, launch)) + "\n"


def _cells(
    group: int, entry: RepresentativeEntry, launch: RepresentativeEntry | OperationLaunch
) -> Iterator[str]:
    """The line of a launch, which by operation has the weight of the representative that it is part of."""
    yield from (str(group), str(entry.process), str(launch.launch), str(launch.launch + 1))
    # repr() gives the shortest text that reads back as the same number.
    yield repr(float(entry.weight))
    yield "-" if entry.light_time_weight is None else repr(float(entry.light_time_weight))
    yield ",".join(map(str, launch.grid))
    yield ",".join(map(str, launch.block))
    yield json.dumps(launch.kernel)


def read_weights(path: Path) -> SavedSelection:
    """The selection of a weights file.

    Raises InputError for a file of another tool or a newer version, and for the first line that is not as
    the format says.
    """
    require_file(path, _AGAIN)
    text = _text(path)
    if not text.startswith(MAGIC):
        raise _of_another_tool(path, text)
    lines = text.split("\n")
    version = lines[0].removeprefix(MAGIC).strip()
    if version != str(WEIGHTS_VERSION):
        raise InputError(
            path,
            f"its version is {version[:20] or 'missing'}, and this release reads version {WEIGHTS_VERSION}",
            f"use the release of assay that wrote it, or {_AGAIN}",
            line=1,
        )
    facts, header = _facts(path, lines)
    if tuple(lines[header].split("\t")) != COLUMNS:
        raise InputError(path, f"the columns are not {', '.join(COLUMNS)}", _AGAIN, line=header + 1)
    if lines[-1]:
        raise InputError(path, "it is cut off within its last line", _AGAIN, line=len(lines))
    counts = _counts(path, facts)
    lines_of: list[list[dict[str, Any]]] = [[] for _ in counts]
    for number, line in enumerate(lines[header + 1 : -1], header + 2):
        group, entry = _entry(path, number, line, len(counts))
        lines_of[group].append(entry)
    try:
        entries = of_operations(facts, lines_of)
        groups = [
            {"id": at, "launches": launches, "representatives": entries[at]}
            for at, launches in enumerate(counts)
        ]
        more = added(facts, groups)
    except FactError as error:
        raise InputError(path, error.cause, _AGAIN, field=error.fact) from error
    document = {name: facts[name] for name in ("method", "parameters", "seed", "profile", "weights", "cost")}
    return SavedSelection.read(
        {"version": SELECTION_VERSION, **document, **more, "groups": groups}, str(path)
    )


def _text(path: Path) -> str:
    parts, size = [], 0
    for block in read_blocks(path, _BLOCK_BYTES):
        size += len(block)
        if size > _MOST_BYTES:
            raise InputError(path, "it is larger than 2 GiB, which no weights file is", _AGAIN)
        parts.append(block)
    return b"".join(parts).decode("utf-8", "replace")


def _of_another_tool(path: Path, text: str) -> InputError:
    if _SIMPOINT.match(text):
        return InputError(
            path,
            "it is a weights file of SimPoint, which says nothing of kernels and launches",
            _AGAIN,
            line=1,
        )
    kind = known_file(text.encode())
    if kind is not None:
        return InputError(path, kind.explained, _AGAIN, line=1)
    return InputError(path, f"it is not a weights file: it does not begin with {MAGIC!r}", _AGAIN, line=1)


def _facts(path: Path, lines: list[str]) -> tuple[dict[str, Any], int]:
    """The facts by name, and the place of the line after them."""
    facts: dict[str, Any] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.startswith("#"):
            missing = [name for name in _FACTS if name not in facts]
            if missing:
                raise InputError(path, "that fact is missing", _AGAIN, line=number, field=missing[0])
            return facts, number - 1
        name, _, value = line[1:].partition(":")
        try:
            facts[name.strip()] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(
                path, f"it is not JSON ({type(error).__name__})", _AGAIN, line=number, field=name.strip()[:40]
            ) from error
    raise InputError(path, "it ends before its table", _AGAIN, line=len(lines))


def _counts(path: Path, facts: Mapping[str, Any]) -> list[int]:
    counts = facts["group_launches"]
    if not isinstance(counts, list) or not all(type(n) is int and 0 <= n < 1 << 53 for n in counts):
        raise InputError(path, "it is not a list of launches", _AGAIN, field="group_launches")
    return counts


def _entry(path: Path, number: int, line: str, groups: int) -> tuple[int, dict[str, Any]]:
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        cause = f"it has {len(cells)} columns, and not {len(COLUMNS)}"
        raise InputError(path, cause, _AGAIN, line=number)
    text_of = dict(zip(COLUMNS, cells, strict=True))
    name = ""
    try:
        values: dict[str, Any] = {}
        for name in ("group", "process", "launch", "sim_id"):
            values[name] = _whole(text_of[name])
        for name in ("weight", "light_time_weight"):
            values[name] = None if name != "weight" and text_of[name] == "-" else float(text_of[name])
        for name in ("grid", "block"):
            values[name] = [_whole(axis) for axis in text_of[name].split(",")]
        name = "kernel"
        values[name] = json.loads(text_of[name])
        name = "group"
        if values[name] >= groups:
            raise ValueError
        name = "sim_id"
        if values[name] != values["launch"] + 1:
            raise ValueError
    except (ValueError, RecursionError) as error:
        cause = f"{text_of[name][:40]!r} is not what the format has there"
        raise InputError(path, cause, _AGAIN, line=number, field=name) from error
    return values.pop("group"), values


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text):
        raise ValueError(text)
    return int(text)
