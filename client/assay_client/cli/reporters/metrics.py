"""Draws the measurement for a method as a shell script: comments, and one line per command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_sampling.notes.registry import note_text


def render_measuring(document: Mapping[str, Any], console: Console) -> None:
    """Draw the commands in order, what each is for, and the notes."""
    # Without -e a shell continues after a failed profile, and reads the files of an earlier one.
    for line in (_heading(document), "as a script: bash -e FILE", *map(note_text, document["notes"])):
        console.print(f"# {line}", soft_wrap=True)
    for number, command in enumerate(document["commands"], start=1):
        words = shlex.join(command["argv"])
        output = f" > {shlex.quote(command['output'])}" if command["output"] else ""
        console.print(f"\n# {number}. {command['what']}", soft_wrap=True)
        console.print(f"{words}{output}", soft_wrap=True)


def _heading(document: Mapping[str, Any]) -> str:
    where = " on any GPU (name yours with --gpu)"
    if document["compute_capability"]:
        # The name becomes part of a script, and may hold anything.
        name = " ".join(str(document["gpu"]).split())
        where = f" on {name} (compute capability {document['compute_capability']})"
    if not document["counters"]:
        return f"{document['method']}{where}: no counters"
    bound = "" if document["passes_exact"] else "at most "
    passes = f"{bound}{document['passes']} {'pass' if document['passes'] == 1 else 'passes'}"
    return f"{document['method']}{where}: {len(document['counters'])} counters in {passes} over each launch"
