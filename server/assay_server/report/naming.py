"""Texts for numbers and names, the same in every form of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

ABSENT = "-"
# The flag of a recorded run whose condition its campaign file does not say.
ASSUMED = "condition_assumed"


def condition_text(condition: Mapping[str, Any] | None) -> str:
    """The triple cache, clock, SM share; "?" where one was not recorded."""
    if condition is None:
        return ABSENT
    share = condition.get("sm_percent")
    shown = "?" if share is None else f"{share:g}"
    return (
        f"{condition.get('cache') or '?'}, {condition.get('clock') or '?'}, {shown} %{share_kind(condition)}"
    )


def share_kind(entry: Mapping[str, Any]) -> str:
    """What stands behind a share of the SMs that is no limit in percent."""
    return " partition" if entry.get("sm_share") == "partition" else ""


def shown_condition(entry: Mapping[str, Any]) -> str:
    """The condition of a run, row or entry; says where the campaign file left it out and it is assumed."""
    assumed = any(_flag_name(flag) == ASSUMED for flag in entry.get("flags") or ())
    return f"{condition_text(entry.get('condition'))}{' (assumed)' if assumed else ''}"


def _flag_name(flag: Any) -> str:
    return str(flag["name"]) if isinstance(flag, Mapping) else str(flag)


def percent(value: float | None) -> str:
    """A percentage without its sign, two digits behind the point where it is small."""
    if value is None:
        return ABSENT
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"


def match_percent(value: float | None) -> str:
    """A match, rounded down: 98.999 % must not be shown as the 99 % that it is not."""
    return ABSENT if value is None else f"{math.floor(value * 100) / 100:g}"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return ABSENT if value is None else f"{value:,}"


def quantity(value: float | None) -> str:
    """A cost or a speedup: thousands separators, a digit behind the point where it is small."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def text(value: Any) -> str:
    """Any value; absent ones as a dash."""
    return ABSENT if value is None or value == "" else str(value)


def cell_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's GPU, with the condition where rows differ in it."""
    conditions = {condition_text(row["condition"]) for row in rows}
    if len(conditions) <= 1:
        return [str(row["device"]) for row in rows]
    return [f"{row['device']} ({condition_text(row['condition'])})" for row in rows]


def method_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's method, with the parameters asked for where one method is used in two ways."""
    asked: dict[str, set[str]] = {}
    for row in rows:
        asked.setdefault(row["method"], set()).add(_asked(row))
    return [
        f"{row['method']} ({_asked(row) or 'defaults'})" if len(asked[row["method"]]) > 1 else row["method"]
        for row in rows
    ]


def _asked(row: Row) -> str:
    return ", ".join(f"{key}={value}" for key, value in row["asked_parameters"].items())
