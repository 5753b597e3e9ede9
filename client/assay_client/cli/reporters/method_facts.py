"""Draws what only one method reports: its sweep over its parameter, its tiers, its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table
from assay_client.cli.reporters.text import count, percent, times, words_of
from assay_sampling.notes.registry import note_text

_SWEPT = {"k": "the number of groups", "theta": "theta", "threshold": "the distance threshold"}
_SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "k": ("k", str),
    "theta": ("theta", "{:g}".format),
    "threshold": ("threshold", "{:g}".format),
    "strata": ("strata", count),
    "groups": ("groups", count),
    "error_percent": ("error", percent),
    "speedup": ("speedup", times),
    "inertia": ("inertia", "{:,.4g}".format),
}


def method_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values that only the selection's method reports, if any."""
    bound, words = document.get("predicted_bound_percent"), words_of(document)
    if bound is not None:
        yield "bound", f"{percent(bound)} of the total, predicted from the spread of all {words.several}"
    without = document.get("clusters_without_sample")
    if without:
        yield "warning", f"{count(without)} of {count(document['clusters'])} clusters have no sample"
    for tier in document.get("tiers", ()):
        yield (
            f"tier {tier['tier']}",
            f"{count(tier['launches'])} {words.several} of {count(tier['kernels'])} {words.kinds} in "
            f"{count(tier['strata'])} strata, {percent(100 * tier['instruction_share'])} of the instructions",
        )
    if document.get("ipc") is not None:
        yield "IPC", f"{document['ipc']:,.4g} (weighted harmonic mean of the representatives)"
    for note in document.get("notes", ()):
        yield "note", note_text(note)


def render_sweep(document: Mapping[str, Any], console: Console) -> None:
    """Draw one line for each parameter value that the method tried; nothing for an unknown sweep."""
    sweep = document.get("sweep")
    if not sweep or not any(key in sweep[0] for key in _SWEPT):
        return
    keys = [key for key in _SHOWN if key in sweep[0]]
    columns = [_SHOWN[key][0] for key in keys]
    drawn = Table(f"Sweep over {next(_SWEPT[key] for key in keys)}", columns, right=columns)
    for entry in sweep:
        drawn.add_row(*(_SHOWN[key][1](entry[key]) for key in keys))
    drawn.print(console)
    if "pca_components" in document:
        console.print(f"{document['pca_components']} principal components")
