"""Sentences of verdicts for people, from their typed values; no full stop where others follow."""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.scores import Row
from assay_report.model.verdicts import Asked, Cause

_PARTS = {
    "representatives": "its representatives cost {} than the launches that they stand for",
    "labels": "launches were put into other groups than their counters give",
    "group_spread": "its groups hold kernels or sizes that cost unlike",
    "kernels_never_profiled": "some kernels have no counters",
    "unmatched": "some launches have no counterpart where it was selected",
    "cold_start": "its representatives start with cold caches",
    "projection_within_launches": "simulations of its representatives were stopped early",
}
# A part that is so nearly the whole error needs no number of its own.
_ALMOST_ALL = 0.9
_SHOWN = 2
_KERNEL_WIDTH = 48


def percentage(value: float) -> str:
    """A percentage with three digits that matter: ``114 %``, ``8.02 %``."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f} %"


def counted(number: int, word: str, several: str = "") -> str:
    """``1 projection``, ``12 projections``; ``several`` where that has no ``s`` of its own."""
    return f"{number:,} {word if number == 1 else several or word + 's'}"


def because(cause: Cause, signed_error_percent: float | None, there: str, here: str) -> str:
    """The clause behind an error, with its comma; nothing where the cause is not known."""
    if cause.kind == "group" and cause.ratio is not None and cause.representative_ratio is not None:
        return (
            f", because a group of {counted(cause.launches or 0, 'launch', 'launches')} costs "
            f"{cause.ratio:.2f} times as much {there} as {here}, but what stands for it "
            f"({kernel_name(cause.kernel or '')}) {cause.representative_ratio:.2f} times"
        )
    if cause.kind == "part" and cause.part is not None and cause.points is not None:
        signed = signed_error_percent or 0.0
        almost_all = abs(cause.points - signed) <= (1.0 - _ALMOST_ALL) * abs(signed)
        number = "" if almost_all else f" ({cause.points:+,.1f} points of {signed:+,.1f})"
        return f", because {_part(cause, cause.points)}{number}"
    return ""


def kernel_name(name: str) -> str:
    """A kernel's name without its parameters and return type, cut where it is still long."""
    base = name.split("(", 1)[0].split("<", 1)[0].strip()
    bare = base.rsplit(" ", 1)[-1] or name
    return bare if len(bare) <= _KERNEL_WIDTH else f"{bare[: _KERNEL_WIDTH - 3]}..."


def _part(cause: Cause, points: float) -> str:
    less = "less" if points < 0 else "more"
    if cause.part != "not_separated":
        return _PARTS[cause.part or ""].format(less)
    clauses = [_PARTS[name].format(less) for name in cause.together if name in _PARTS]
    return ", or because ".join(clauses) if clauses else "of several parts that were not told apart"


def shortfall_sentence(row: Row, method: str, error_percent: float, cause: Cause) -> str:
    """What happened to one projection, and why: the sentence of a shortfall."""
    chosen, signed = row.selected_on, row.signed_error_percent
    name = f"{row.workload} ({method})"
    if chosen is not None and chosen.device != row.device:
        why = because(cause, signed, "there", f"on the {chosen.device}")
        return f"{name} does not carry over to the {row.device}: {percentage(error_percent)}{why}"
    if chosen is not None and chosen.condition != row.condition:
        why = because(cause, signed, "here", "where it was selected")
        return f"{name} does not carry over to this condition: {percentage(error_percent)}{why}"
    why = because(cause, signed, "here", "where it was selected")
    return f"{name} is off by {percentage(error_percent)}{why}"


def asked_sentences(asked: Asked, target_percent: float) -> list[str]:
    """What the campaign asked, and what of it is there."""
    conditions = f" under {counted(asked.conditions, 'condition')}" if asked.conditions > 1 else ""
    methods = listed(asked.methods) or "no method"
    made = f", which selected on {listed(asked.selected_on)}" if asked.selected_on else ""
    launches = counted(asked.launches, "launch", "launches")
    sentences = [
        f"{counted(asked.workloads, 'workload')} with {launches} in all, "
        f"by {methods}{made}; scored on {listed(asked.devices) or 'no GPU'}{conditions}. "
        f"The target is an error of at most {target_percent:g} %."
    ]
    lacking = asked.runs_without_data
    if lacking:
        sentences.append(
            f"{lacking:,} of {counted(asked.runs + lacking, 'run')} {'has' if lacking == 1 else 'have'} no "
            "data: this report covers what is there."
        )
    return sentences


def listed(names: Sequence[str], most: int = 6) -> str:
    """``a, b and c``; of many, the first and how many more."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1:,} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def gpu_headline(device: str, projections: int, within: int, target_percent: float, here: bool) -> str:
    """How many projections on a GPU are within the target; ``here``: selections were made on it."""
    if not projections:
        return f"no projection on the {device} has an error"
    where = ", where selections were made" if here else ""
    of = counted(projections, "projection")
    return f"{within:,} of {of} within {target_percent:g} % on the {device}{where}"


def gpu_details(shortfalls: Sequence[str], without: int, target_percent: float) -> list[str]:
    """What follows the headline: the first shortfalls, how many more, and how many rows have no number."""
    details = list(shortfalls[:_SHOWN])
    more = len(shortfalls) - _SHOWN
    if more > 0:
        details.append(f"{more:,} more {'is' if more == 1 else 'are'} above {target_percent:g} %")
    if without:
        details.append(f"{counted(without, 'row')} without a number")
    return details
