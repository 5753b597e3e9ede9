"""Draws the labels of a whole workload: where they came from, and how far to trust the models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.evaluation import score_facts
from assay_client.cli.reporters.tables import origin_mark, print_facts
from assay_client.cli.reporters.text import clipped, count, counted, percent, profile_text, words_of
from assay_client.cli.reporters.two_level import render_two_level
from assay_sampling.notes.registry import note_text

_ORIGINS = {
    "window": "from the window's counters",
    "model": "by the chosen model",
    "unknown": "unknown kernels, in groups of their own",
    "abstained": "not sure enough, in groups of their own",
    "size": "by kernel and size",
}


def render_classification(document: Mapping[str, Any], written_to: Path | None, console: Console) -> None:
    """Draw the document of ``assay classify``."""
    origins, words = document["launches_by_origin"], words_of(document)
    pairs = [
        (
            "labelled",
            f"{counted(document['launches'], words.one, words.several)} in "
            f"{counted(document['groups'], 'group', 'groups')}",
        ),
        ("profile", profile_text(document["profile"])),
        *[
            (name, f"{count(origins[name])} {text.replace('kernels', words.kinds)}")
            for name, text in _ORIGINS.items()
        ],
        *score_facts(document),
        *origin_mark(document["profile"]),
        *[("warning", note_text(note)) for note in document["score_notes"]],
        *[("note", clipped(note_text(note), 300)) for note in document["profile"]["notes"]],
    ]
    print_facts(pairs, console)
    render_two_level(document["two_level"], console, words)
    if written_to is not None:
        console.print(f"written to {written_to}", soft_wrap=True)


_BASES = {
    "measured": "measured, or of a signature that was",
    "between_sizes": "between measured sizes of the kernel",
    "beyond_sizes": "beyond them, by a power law",
    "unknown_kernel": "of kernels that the window lacks: no cost",
}


def render_listed(document: Mapping[str, Any], written_to: Path | None, console: Console) -> None:
    """Draw the document of ``assay classify --launches``."""
    origins, projected = document["launches_by_origin"], document["projected"]
    pairs = [
        (
            "labelled",
            f"{counted(document['launches'], 'launch', 'launches')} in "
            f"{counted(document['groups'], 'group', 'groups')}, by {document['chosen_model'] or 'no model'}",
        ),
        ("match", f"{percent(document['match_percent'])} of the window"),
        *[(name, f"{count(origins[name])} {text}") for name, text in _ORIGINS.items()],
        (
            "projected",
            f"{count(round(projected['total_of_known_kernels']))} {projected['unit']}s "
            f"({projected['quantity']}) of known kernels; no error can be given, as "
            "nothing after the window was measured",
        ),
        *[
            (name.replace("_", " "), f"{count(projected['by_basis'][name]['launches'])} launches {text}")
            for name, text in _BASES.items()
        ],
    ]
    print_facts(pairs, console)
    if written_to is not None:
        console.print(f"written to {written_to}", soft_wrap=True)
