"""Draws a verdict: the one sentence that every selection, score and report begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from assay_sampling.verdicts.sentences import sentence_of_verdict
from assay_sampling.verdicts.verdict import verdict_from

_STYLES = {"trust": "bold green", "total_only": "bold yellow", "do_not": "bold red"}


def render_verdict(document: Mapping[str, Any], console: Console) -> None:
    """Draw the verdict of a document on a line of its own; nothing if it has none."""
    verdict = document.get("verdict")
    if verdict:
        sentence = sentence_of_verdict(verdict_from(verdict), document.get("unit", "launch"))
        console.print(Text(sentence, style=_STYLES[verdict["level"]]), soft_wrap=True)
