"""Verdicts in one sentence for people, from their typed values."""

from __future__ import annotations

from assay_sampling.notes.base import several
from assay_sampling.parameters import Unit
from assay_sampling.verdicts.verdict import Reason, Verdict, VerdictLevel
from assay_sampling.verdicts.windows import stands_for

_BEGINNINGS: dict[VerdictLevel, str] = {
    "trust": "Trust it",
    "total_only": "Trust the total only",
    "do_not": "Do not trust it",
}
_SHOWN = 2


def sentence_of_verdict(verdict: Verdict, unit: Unit = "launch") -> str:
    """``Trust it: ...``, ``Trust the total only: ...`` or ``Do not trust it: ...``, with a full stop.

    ``unit`` is what was selected.
    """
    clauses = list(dict.fromkeys(clause_of(reason, unit) for reason in verdict.reasons))[:_SHOWN]
    parts = filter(None, (*clauses, stands_for(verdict.windows)))
    return f"{_BEGINNINGS[verdict.level]}: {'; '.join(parts)}."


def clause_of(reason: Reason, unit: Unit = "launch") -> str:
    """What a reason says, without a full stop."""
    return _CLAUSES[reason.code](reason, unit)


def _percent(reason: Reason, name: str) -> str:
    value = reason.numbers[name]
    return f"{value:,.{0 if value >= 99.5 else 1}f} %"


def _beyond(reason: Reason, name: str) -> str:
    """The value and the bound that it is above; with more digits where one would show the bound itself."""
    return f"{_told_apart(reason, name)}, more than {reason.numbers['most_percent']:g} %"


def _expected(reason: Reason, name: str, of: str = "") -> str:
    return f"{_told_apart(reason, name)}{of} (trusted up to {reason.numbers['most_percent']:g} %)"


def _told_apart(reason: Reason, name: str) -> str:
    value, most = reason.numbers[name], reason.numbers["most_percent"]
    return f"{value:.3f} %" if f"{value:.1f}" == f"{most:.1f}" else _percent(reason, name)


def _sizes(unit: Unit) -> str:
    return "kernels and sizes" if unit == "launch" else "operators and shapes"


def _within(reason: Reason, unit: Unit) -> str:
    if reason.numbers.get("launches_not_taken") == 0:
        return f"every {unit} was taken, so nothing is estimated, and no time is saved"
    if "expected_error_percent" in reason.numbers:
        return (
            f"on another GPU the total should be off by about {_percent(reason, 'expected_error_percent')}, "
            f"{_sizes(unit)} by {_percent(reason, 'expected_group_error_percent')}"
        )
    return (
        f"the total is off by {_percent(reason, 'error_percent')}, "
        f"groups by {_percent(reason, 'group_error_percent')}"
    )


def _total_error(reason: Reason, _: Unit) -> str:
    if "error_percent" not in reason.numbers:
        return "nobody knows the error of its total"
    return f"the total is off by {_beyond(reason, 'error_percent')}"


def _one_group(reason: Reason, unit: Unit) -> str:
    chosen = int(reason.numbers["representatives"])
    stands = f"1 {unit} stands" if chosen == 1 else f"{chosen:,} {several(unit)} stand"
    kinds = "kernels" if unit == "launch" else "kinds of operations"
    return f"{stands} for {int(reason.numbers['kernels']):,} {kinds} in one group"


def _nothing_scored(reason: Reason, unit: Unit) -> str:
    if reason.numbers["recordings"] == 1:
        return f"the given recording of another GPU does not hold the same {several(unit)}"
    return (
        f"none of the {int(reason.numbers['recordings']):,} given recordings of other GPUs holds the "
        f"same {several(unit)}"
    )


_CLAUSES = {
    "one_group_of_several_kernels": _one_group,
    "total_error": _total_error,
    "group_error": lambda reason, _: (
        f"the group error is {_beyond(reason, 'group_error_percent')}: errors of groups cancel in the total"
    ),
    "group_error_unknown": lambda _, unit: (
        f"it was saved without the group of each {unit}, so errors may cancel"
    ),
    "expected_total_error": lambda reason, unit: (
        f"on another GPU the total may well be off by {_expected(reason, 'expected_error_percent')}: its "
        f"{several(unit)} say too little of the rest"
    ),
    "expected_group_error": lambda reason, unit: (
        f"on another GPU {_sizes(unit)} may well be off by "
        f"{_expected(reason, 'expected_group_error_percent', ' of the total')}"
    ),
    "extrapolated_time": lambda reason, unit: (
        f"{_percent(reason, 'extrapolated_percent')} of the time is of {_sizes(unit)} of which no {unit} was "
        f"taken, in groups for which one {unit} stands: nothing vouches for it"
    ),
    "nothing_expected": lambda *_: "it does not say what to expect on another GPU; select again",
    "wide_interval": lambda reason, _: f"the interval is wide, +-{_percent(reason, 'interval_half_percent')}",
    "unseen_time": lambda reason, unit: (
        f"{_percent(reason, 'unseen_time_percent')} of the time is in {several(unit)} unlike any of the "
        "window"
    ),
    "unmatched_time": lambda reason, _: (
        f"{_percent(reason, 'unmatched_time_percent')} of the time has no counterpart"
    ),
    "nothing_scored": _nothing_scored,
    "within_goals": _within,
}
