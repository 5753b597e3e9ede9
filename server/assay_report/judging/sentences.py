"""Sentences of verdicts for people, from their typed values; no full stop where others follow."""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.scores import Row
from assay_report.model.verdicts import Asked, Cause

PARTS = {
    "representatives": "representatives cost other than the launches that they stand for",
    "labels": "launches were put into groups other than their counters give",
    "kernels_never_profiled": "some kernels have no counters",
    "cold_start": "representatives start with cold caches",
    "projection_within_launches": "simulations of representatives were stopped early",
}
_SHOWN = 2
_KERNEL_WIDTH = 48


def percentage(value: float) -> str:
    """A percentage with three digits that matter: ``114 %``, ``8.02 %``."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f} %"


def counted(number: int, word: str) -> str:
    """``1 projection``, ``12 projections``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def because(cause: Cause, there: str, here: str) -> str:
    """The clause behind an error, with its comma; nothing where the cause is not known."""
    if cause.kind == "group" and cause.ratio is not None and cause.representative_ratio is not None:
        several = "1 launch" if cause.launches == 1 else f"{cause.launches or 0:,} launches"
        return (
            f", because the launch that stands for {several} of {kernel_name(cause.kernel or '')} costs "
            f"{cause.representative_ratio:.2f} times as much {there} as {here}, and all of them "
            f"{cause.ratio:.2f} times"
        )
    if cause.kind == "part" and cause.part is not None and cause.points is not None:
        return f", because {_part(cause)} ({cause.points:+,.1f} points)"
    return ""


def kernel_name(name: str) -> str:
    """A kernel's name without its parameters and return type, cut where it is still long."""
    base = name.split("(", 1)[0].split("<", 1)[0].strip()
    bare = base.rsplit(" ", 1)[-1] or name
    return bare if len(bare) <= _KERNEL_WIDTH else f"{bare[: _KERNEL_WIDTH - 3]}..."


def _part(cause: Cause) -> str:
    if cause.part != "not_separated":
        return PARTS[cause.part or ""]
    told = " and ".join(PARTS[name] for name in cause.together if name in PARTS)
    return told or "several parts that were not told apart"


def shortfall_sentence(row: Row, method: str, error_percent: float, cause: Cause) -> str:
    """What happened to one projection, and why: the sentence of a shortfall."""
    chosen = row.selected_on
    name = f"{row.workload} ({method})"
    if chosen is not None and chosen.device != row.device:
        why = because(cause, "there", f"on the {chosen.device}")
        return f"{name} does not carry over to the {row.device}: {percentage(error_percent)}{why}"
    if chosen is not None and chosen.condition != row.condition:
        why = because(cause, "here", "where it was selected")
        return f"{name} does not carry over to this condition: {percentage(error_percent)}{why}"
    return f"{name} is off by {percentage(error_percent)}{because(cause, 'here', 'where it was selected')}"


def asked_sentences(asked: Asked, target_percent: float) -> list[str]:
    """What the campaign asked, and what of it is there."""
    made = f" selected on {listed(asked.selected_on)}," if asked.selected_on else ""
    conditions = f" under {counted(asked.conditions, 'condition')}" if asked.conditions > 1 else ""
    said = [
        f"{counted(asked.workloads, 'workload')} of {asked.launches:,} launches together; "
        f"{listed(asked.methods) or 'no method'},{made} scored on {listed(asked.devices) or 'no GPU'}"
        f"{conditions}. Errors up to {target_percent:g} % are on target."
    ]
    lacking = asked.runs_without_data
    if lacking:
        said.append(
            f"{lacking:,} of {counted(asked.runs + lacking, 'run')} {'has' if lacking == 1 else 'have'} no "
            "data: this report covers what is there."
        )
    return said


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
    said = list(shortfalls[:_SHOWN])
    more = len(shortfalls) - _SHOWN
    if more > 0:
        said.append(f"{more:,} more {'is' if more == 1 else 'are'} above {target_percent:g} %")
    if without:
        said.append(f"{counted(without, 'row')} without a number")
    return said
