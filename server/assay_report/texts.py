"""Texts for numbers and names, the same in every form of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_report.model.common import FlagEntry, Judged, Match, Outcome, Placed
from assay_report.model.scores import Row
from assay_sampling.documents.common import ConditionEntry

if TYPE_CHECKING:
    from assay_report.model.report import Report

ABSENT = "-"
SYNTHETIC = "SYNTHETIC data: no silicon produced these numbers."
# The flag of a recorded run whose condition the campaign file does not give.
ASSUMED = "condition_assumed"


@dataclass(frozen=True)
class RowWords:
    """What rows of a figure or table are: one row, several, and what tells them apart, one and several."""

    one: str
    several: str
    kind: str
    kinds: str


LAUNCHES = RowWords("launch", "launches", "kernel", "kernels")
OPERATIONS = RowWords("operation", "operations", "kind of operation", "kinds of operations")


def mark(report: Report) -> str:
    """The mark behind titles where no silicon produced the data."""
    return " (synthetic)" if report.campaign.synthetic else ""


def origin(report: Report) -> str:
    """The campaign, its owner, its seed, and the versions that computed the numbers."""
    campaign = report.campaign
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    data = "synthetic" if campaign.synthetic else "measured"
    return f"Campaign {campaign.id}{campaign.belongs}, {data} data, seed {campaign.seed}; {versions}."


def condition_text(condition: ConditionEntry | None) -> str:
    """The triple cache, clock, SM share; "?" where one was not recorded."""
    if condition is None:
        return ABSENT
    share = "?" if condition.sm_percent is None else f"{condition.sm_percent:g}"
    kind = share_kind(condition.sm_share)
    return f"{condition.cache or '?'}, {condition.clock or '?'}, {share} %{kind}"


def condition_in_words(condition: ConditionEntry | None) -> str:
    """The triple with its parts named, for texts without a heading: ``cache=none clock=none sm=100%``."""
    if condition is None:
        return ABSENT
    share = "?" if condition.sm_percent is None else f"{condition.sm_percent:g}"
    triple = f"cache={condition.cache or '?'} clock={condition.clock or '?'} sm={share}%"
    return triple + share_kind(condition.sm_share)


def share_kind(sm_share: str | None) -> str:
    """The mark behind an SM share that is a partition, not a limit in percent."""
    return " partition" if sm_share == "partition" else ""


def assumed(flags: Iterable[FlagEntry | str]) -> str:
    """The mark behind a condition that the campaign file left out."""
    names = {flag if isinstance(flag, str) else flag.name for flag in flags}
    return " (assumed)" if ASSUMED in names else ""


def percent(value: float | None, *, signed: bool = False) -> str:
    """A percentage without its unit."""
    if value is None:
        return ABSENT
    return with_sign(value) if signed else f"{value:z,.2f}"


def with_sign(value: float, digits: int = 2) -> str:
    """A number with its sign; one that rounds to zero has none."""
    shown = f"{value:+,.{digits}f}"
    return shown if shown.strip("+-0.,") else shown[1:]


def match_percent(value: float | None) -> str:
    """A match, rounded down: 98.999 % must not show as 99 %."""
    return ABSENT if value is None else f"{math.floor(value * 100) / 100:g}"


def match_text(match: Match | None) -> str:
    """The percentages of all kinds, and which of them counts."""
    if match is None:
        return ABSENT
    kinds = (("exact", match.exact), ("name_block", match.name_block), ("position", match.position))
    shown = ", ".join(
        f"{'at least ' if kind in match.at_least else ''}{match_percent(value)}" for kind, value in kinds
    )
    return f"{shown} ({match.between}: {match.kind})"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return ABSENT if value is None else f"{value:,}"


def ratio(value: float | None, digits: int = 2) -> str:
    """A speedup or another ratio."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


def quantity(value: float | None) -> str:
    """A cost or a time: with thousands separators; small ones with digits after the point."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def text(value: object) -> str:
    """Any value; a dash for an absent one."""
    return ABSENT if value is None or value == "" else str(value)


def shortened(name: str, width: int = 72) -> str:
    """A name of at most ``width`` characters, cut in the middle, where names tend to agree."""
    if len(name) <= width:
        return name
    tail = width // 3
    return f"{name[: width - tail - 3]}...{name[len(name) - tail :]}"


def refused_text(entry: Outcome) -> str:
    """What was refused and why, without the remedy."""
    return entry.reason if entry.error is None else f"{entry.error.subject}: {entry.error.cause}"


def state_text(entry: Outcome) -> str:
    """The status with its reason; launches that differ have their own table.

    A number says whether it is within the campaign's target; nothing is called ok."""
    if entry.status == "ok":
        return judged_text(entry)
    if entry.error is not None and entry.error.differences:
        return f"{entry.status}: {refused_text(entry)} (see Launches that differ)"
    return f"{entry.status}: {entry.reason}" if entry.reason else entry.status


def judged_text(entry: Outcome) -> str:
    """Whether an error is within the campaign's target; a dash for an entry without an error."""
    within = entry.within_target if isinstance(entry, Judged) else None
    return ABSENT if within is None else "within target" if within else "above target"


def flag_text(flag: FlagEntry) -> str:
    """A flag with its detail."""
    invalid = " (invalid)" if flag.invalidates else ""
    return f"{flag.name}{invalid}{': ' + flag.detail if flag.detail else ''}"


def flags_text(flags: Iterable[FlagEntry]) -> str:
    """All flags with their details, except ``assumed``, which the condition's column shows."""
    return "; ".join(flag_text(flag) for flag in flags if flag.name != ASSUMED) or ABSENT


def cell_names(rows: Sequence[Placed]) -> list[str]:
    """A name for each row's GPU, with the condition where rows differ in it."""
    conditions = {condition_text(row.condition) for row in rows}
    if len(conditions) <= 1:
        return [row.device for row in rows]
    return [f"{row.device} ({condition_text(row.condition)})" for row in rows]


def method_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's method, with its parameters where a method is used in two ways."""
    by_method: dict[str, set[str]] = {}
    for row in rows:
        by_method.setdefault(row.method, set()).add(_parameters_text(row))
    return [
        f"{row.method} ({_parameters_text(row) or 'defaults'})"
        if len(by_method[row.method]) > 1
        else row.method
        for row in rows
    ]


def _parameters_text(row: Row) -> str:
    return ", ".join(f"{key}={value}" for key, value in row.asked_parameters.items())
