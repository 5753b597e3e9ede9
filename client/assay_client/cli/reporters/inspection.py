"""Draws what recordings hold, one block per file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import origin_mark, print_facts
from assay_client.cli.reporters.text import clipped, count
from assay_client.cli.reporters.top import render_top

# What else reads a file of a format.
_NEXT = {
    "accel-sim-output": "assay select pks {path} -o selection.json, assay project {path}, or "
    "assay import accel-sim {path} --selection SELECTION",
}


def render_inspection(files: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Draw each file's format, counts and counters, the reader's notes, and where its time goes."""
    for index, document in enumerate(files):
        if index:
            console.print()
        pairs = [
            ("file", str(document["path"])),
            ("format", str(document["format"])),
            ("launches", count(document["launches"])),
            ("kernels", count(document["kernels"])),
            ("devices", ", ".join(map(str, document["devices"])) or "not recorded"),
            ("levels", ", ".join(map(str, document["levels"]))),
            ("counters", ", ".join(map(str, document["counters"])) or "none"),
            *origin_mark(document),
        ]
        missing = document.get("null_counters") or {}
        pairs += [("not measured", f"{name}: {count(nulls)} launches") for name, nulls in missing.items()]
        pairs += [("note", clipped(_note(note), 400)) for note in document.get("notes", ())]
        if document["format"] in _NEXT:
            pairs.append(("next", _NEXT[document["format"]].format(path=document["path"])))
        print_facts(pairs, console)
        if "top" in document:
            render_top(document["top"], console)


def _note(note: Mapping[str, Any]) -> str:
    """The note's sentence, with its validity flag."""
    if note["flag"] is None:
        return str(note["text"])
    return f"{note['text']} [{note['flag']}{', invalidates' if note['invalidates'] else ''}]"
