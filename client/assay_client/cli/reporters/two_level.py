"""Draws the basis of a two-level selection: the window, the models that label the rest, unknown kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import UnitWords, count, counted, percent, times
from assay_sampling.notes.registry import note_text


def render_two_level(facts: Mapping[str, Any], console: Console, words: UnitWords) -> None:
    """Draw the ``two_level`` part of a selection's document, in the words of its unit."""
    window, unknown = facts["window"], facts["unknown"]
    pairs = [
        (
            "window",
            f"{count(window['launches'])} {words.several} with counters in "
            f"{counted(window['k'], 'group', 'groups')}; "
            f"{percent(facts['match_percent'])} match the light recording ({facts['match_kind']})",
        ),
        (
            "window's scores",
            f"{window['cost']['quantity']}: error {percent(window['error_percent'])}, group error "
            f"{percent(window['group_error_percent'])}, speedup {times(window['speedup'])}",
        ),
        *_labelled(facts, words),
        ("ambiguous", percent(facts["ambiguous_percent"])),
        (
            "unknown",
            f"{count(unknown['launches'])} {words.several} of {words.kinds} that the window lacks, "
            f"in {count(unknown['groups'])} separate groups",
        ),
        *_unseen(facts),
        *_abstained(facts.get("abstained"), words),
        ("overlap", percent(facts["overlap_percent"])),
        *[("flag", str(flag)) for flag in facts["flags"]],
    ]
    console.print("\nTwo levels")
    print_facts(pairs, console)
    _render_models(facts["models"] or {}, facts["chosen_model"], console)


def _labelled(facts: Mapping[str, Any], words: UnitWords) -> list[tuple[str, str]]:
    """Which model labelled what, or that labels decide no group; and how far the models that were trained
    agree."""
    agreement = ("models agree", percent(facts["agreement_percent"]))
    if not facts.get("labels_used", True):
        unused = ("labels", "none used: kernel and size decide every group")
        return [unused, agreement] if facts["models"] else [unused]
    many = f"{count(facts['classified_launches'])} {words.several}"
    return [
        ("labelled", f"{many}, by {facts['chosen_model'] or 'no model'}"),
        *_new_signatures(facts.get("classified_unseen_time_percent")),
        agreement,
    ]


def _unseen(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The share of unseen light time, and what to do about it; nothing if it is not known."""
    share = facts.get("unseen_time_percent")
    if share is None:
        return []
    text = f"{percent(share)} of the light time is in signatures that the window lacks"
    return [("unseen", text), *[("note", note_text(note)) for note in facts.get("notes", ())]]


def _new_signatures(time_percent: float | None) -> list[tuple[str, str]]:
    if time_percent is None:
        return []
    return [("new signatures", f"{percent(time_percent)} of the light time that was labelled")]


def _abstained(counts: Mapping[str, Any] | None, words: UnitWords) -> list[tuple[str, str]]:
    if counts is None:
        return []
    where = "in groups of their own" if counts["groups"] else "labelled anyway; abstain=true sets them apart"
    text = (
        f"{count(counts['launches'])} {words.several} of {count(counts['signatures'])} new signatures whose "
        f"label is not sure ({where})"
    )
    return [("unsure", text if counts["launches"] else f"no {words.several}")]


def _render_models(models: Mapping[str, Mapping[str, Any]], chosen: str | None, console: Console) -> None:
    if not models:
        return
    keys = {
        "expected %": "expected_accuracy_percent",
        "chronological %": "chronological_accuracy_percent",
        "balanced %": "chronological_balanced_accuracy_percent",
        "grouped %": "grouped_accuracy_percent",
        "grouped, balanced %": "grouped_balanced_accuracy_percent",
        "error %": "error_percent",
        "group error %": "group_error_percent",
        "speedup": "speedup",
    }
    drawn = Table(
        "Held-out accuracy, the one to expect after the window, and the error with each model's labels",
        ["model", *keys],
        right=list(keys),
    )
    for name, model in models.items():
        values = [model.get(key) for key in keys.values()]
        shown = ["-" if value is None else f"{value:,.2f}" for value in values]
        drawn.add_row(f"{name} (chosen)" if name == chosen else name, *shown)
    drawn.print(console)
