"""Draws the scores of a saved selection on a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.report import render_table
from assay_client.cli.reporters.tables import origin_mark, print_facts
from assay_client.cli.reporters.text import condition, count, percent, quantity, ranks_text, times, words_of
from assay_client.cli.reporters.verdict import render_verdict
from assay_report.tables.decomposition import parts_text, widest_groups_table
from assay_report.texts import LAUNCHES, OPERATIONS, with_sign
from assay_sampling.documents.common import ErrorDecomposition, GroupSpreadEntry
from assay_sampling.notes.registry import note_text


def render_evaluation(document: Mapping[str, Any], console: Console) -> None:
    """Draw the verdict, where it was selected, where it was scored, and the scores."""
    render_verdict(document, console)
    selected, evaluated = document.get("selected_on") or {}, document["evaluated_on"]
    pairs = [
        ("method", f"{document['method']} (seed {document['seed']})"),
        ("selected on", _profile(selected)),
        ("scored on", _profile(evaluated)),
        *score_facts(document),
        *vouched_facts(document),
        *weight_facts(document),
        *_stopped_facts(document),
        *origin_mark(evaluated),
    ]
    match = document.get("match") or {}
    pairs += _operation_facts(document)
    if match:
        shown = ", ".join(f"{kind} {percent(value)}" for kind, value in match.items())
        pairs.append(("launches matched", shown))
    pairs += [("note", note_text(note)) for note in document.get("notes") or ()]
    print_facts(pairs, console)


def _operation_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the operations of a selection and a recording matched."""
    match = document.get("operations")
    if not match:
        return []
    least = "at least " if match["lower_bound"] else ""
    text = (
        f"{least}{count(match['calls_matched'])} calls: {percent(match['selection_calls_percent'])} of the "
        f"selection's with {percent(match['selection_time_percent'])} of its time, "
        f"{percent(match['recording_calls_percent'])} of the recording's with "
        f"{percent(match['recording_time_percent'])} of its time"
    )
    return [("operations matched", text)]


def render_relative(document: Mapping[str, Any], console: Console) -> None:
    """Draw the verdict, the speedup between two recordings, true and predicted, and the scores on each."""
    first, second = document["first"], document["second"]
    render_verdict({"verdict": document["verdict"], "unit": first.get("unit", "launch")}, console)
    pairs = [
        ("method", f"{document['method']} (seed {document['seed']})"),
        ("selected on", _profile(document.get("selected_on") or {})),
        ("first", _profile(first["evaluated_on"])),
        ("second", _profile(second["evaluated_on"])),
        ("cost", f"{document['quantity']}; first: {condition(first['cost']['condition'])}; "
                 f"second: {condition(second['cost']['condition'])}"),
        ("true speedup", f"{times(document['speedup_true'])} (first / second)"),
        ("predicted", f"{times(document['speedup_predicted'])} (weights by {_kind(first['weights'])})"),
        ("off by", percent(document["speedup_error_percent"])),
        ("error on each", f"{percent(first['error_percent'])} ({_signed(first['signed_error_percent'])}) and "
                          f"{percent(second['error_percent'])} ({_signed(second['signed_error_percent'])})"),
        *_speedup_by_weights(document),
        *[(f"{name}, {which}", text) for which, each in (("first", first), ("second", second))
          for name, text in _operation_facts(each)],
        *[(f"{name}, {which}", text) for which, each in (("first", first), ("second", second))
          for name, text in (*_parts(each, "by part"), *_interval_facts(each), *vouched_facts(each),
                             *_error_by_weights(each))],
        *dict.fromkeys([*origin_mark(first["evaluated_on"]), *origin_mark(second["evaluated_on"])]),
    ]  # fmt: skip
    notes = dict.fromkeys(map(note_text, (*document["notes"], *first["notes"], *second["notes"])))
    print_facts(pairs + [("note", note) for note in notes], console)
    widest = [("", GroupSpreadEntry.model_validate(each)) for each in document.get("widest_groups") or ()]
    by_operation = words_of(first).one == "operation"
    render_table(widest_groups_table(widest, OPERATIONS if by_operation else LAUNCHES), console)


def score_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Cost, errors and speedup of a selection or evaluation document."""
    cost = document["cost"]
    return [
        ("cost", f"{cost['quantity']}{_under(document)}"),
        ("true total", quantity(cost["total"], cost["unit"])),
        ("projected", quantity(cost["projected"], cost["unit"])),
        ("error", f"{percent(document['error_percent'])} ({_signed(document['signed_error_percent'])})"),
        ("group error", percent(document["group_error_percent"])),
        *_parts(document),
        ("speedup", _speedups(document)),
        *_interval_facts(document),
    ]


def vouched_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """On another GPU: what the interval rests on, and the share of the time that no draw vouches for."""
    assumption, share = document.get("interval_assumption"), document.get("not_vouched_percent")
    facts, words = [], words_of(document)
    if assumption is not None:
        facts.append(
            (
                "it assumes",
                f"no {words.one} scales more than {assumption['scales_at_most']:g} times as its {words.kind} "
                "does, and those unlike any drawn have at most "
                f"{percent(assumption['unlike_percent'])} of the time",
            )
        )
    if share is not None:
        facts.append(
            (
                "not vouched for",
                f"{percent(share)} of the time: fewer than two {words.several} drawn of its groups",
            )
        )
    return facts


def _under(document: Mapping[str, Any]) -> str:
    """The condition behind a cost, in words if nothing of it was recorded; a simulator has none."""
    recorded = document["cost"]["condition"] or {}
    if any(value is not None for value in recorded.values()):
        return f", {condition(recorded)}"
    simulated = (document.get("evaluated_on") or document.get("profile") or {}).get("simulated")
    return "" if simulated else ", cache, clock and SM share not recorded"


def _parts(document: Mapping[str, Any], name: str = "error by part") -> list[tuple[str, str]]:
    decomposition = document.get("decomposition")
    if decomposition is None:
        return []
    return [(name, parts_text(ErrorDecomposition.model_validate(decomposition)))]


def weight_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The errors with each kind of weights that the selection has, and which are used."""
    return _error_by_weights(document) or [("weights", f"by {_kind(document['weights'])}")]


def _error_by_weights(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    by_weights = document.get("by_weights") or {}
    if len(by_weights) < 2:
        return []
    shown = (
        f"by {_kind(kind)}{' (used)' if kind == document['weights'] else ''}: "
        f"{_signed(scores['signed_error_percent'])}, group error {percent(scores['group_error_percent'])}"
        for kind, scores in by_weights.items()
    )
    return [("weights", "; ".join(shown))]


def _speedup_by_weights(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    by_weights, used = document.get("by_weights") or {}, document["first"]["weights"]
    if len(by_weights) < 2:
        return []
    shown = (
        f"by {_kind(kind)}{' (used)' if kind == used else ''}: {times(score['speedup_predicted'])}, "
        f"off by {percent(score['speedup_error_percent'])}"
        for kind, score in by_weights.items()
    )
    return [("weights", "; ".join(shown))]


def _stopped_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The scores with representatives that a rule of projection stopped."""
    scores, unit = document.get("stopped_early"), document["cost"]["unit"]
    if scores is None:
        return []
    rule = f"the rule {scores['rule']}" if scores["rule"] else "the default rule"
    text = (
        f"{rule} stops {count(scores['stopped'])} of {count(scores['representatives'])} representatives: "
        f"projected {quantity(scores['projected'], unit)}, error {_signed(scores['signed_error_percent'])}, "
        f"speedup {'n/a' if scores['speedup'] is None else times(scores['speedup'])}"
    )
    return [("stopped early", text), *_parts(scores, "its error by part")]


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def _speedups(document: Mapping[str, Any]) -> str:
    others = {"instructions": "speedup_instructions", words_of(document).several: "speedup_launches"}
    shown = [f"{times(document[key])} of {what}" for what, key in others.items() if document.get(key)]
    return times(document["speedup"]) + (f" ({', '.join(shown)})" if shown else "")


def _interval_facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    interval, unit = document.get("interval"), document["cost"]["unit"]
    if interval is None:
        reason = document.get("interval_reason")
        return [("interval", f"none: {note_text(reason)}")] if reason else []
    outcome = "held" if interval["low"] <= document["cost"]["total"] <= interval["high"] else "missed"
    text = (
        f"{quantity(interval['low'], unit)} to {quantity(interval['high'], unit)} at "
        f"{100 * interval['confidence']:g} %, expected error {percent(interval['expected_error_percent'])} "
        f"({interval['basis']}); {outcome}: the true total is {'in' if outcome == 'held' else 'outside'}"
    )
    return [("interval", text)]


def _signed(value: float | None) -> str:
    return "n/a" if value is None else f"{with_sign(value)} %"


def _profile(profile: Mapping[str, Any]) -> str:
    devices = ", ".join(dict.fromkeys(map(str, profile.get("devices") or ()))) or "unknown device"
    sources = ", ".join(map(str, profile.get("sources") or ()))
    launches, kernels = profile.get("launches"), profile.get("kernels")
    counts = (
        f"{count(launches)} launch{'' if launches == 1 else 'es'} of "
        f"{count(kernels)} kernel{'' if kernels == 1 else 's'}"
    )
    return f"{counts}, {devices}{ranks_text(profile)}" + (f" ({sources})" if sources else "")
