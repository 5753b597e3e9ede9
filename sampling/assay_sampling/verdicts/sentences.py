"""Verdicts in one sentence for people, from their typed values."""

from __future__ import annotations

from assay_sampling.verdicts.verdict import Reason, Verdict, VerdictLevel

_BEGINNINGS: dict[VerdictLevel, str] = {
    "trust": "Trust it",
    "total_only": "Trust the total only",
    "do_not": "Do not trust it",
}
_SHOWN = 2


def sentence_of_verdict(verdict: Verdict) -> str:
    """``Trust it: ...``, ``Trust the total only: ...`` or ``Do not trust it: ...``, with a full stop."""
    clauses = list(dict.fromkeys(clause_of(reason) for reason in verdict.reasons))[:_SHOWN]
    return f"{_BEGINNINGS[verdict.level]}: {'; '.join(clauses)}."


def clause_of(reason: Reason) -> str:
    """What a reason says, without a full stop."""
    return _CLAUSES[reason.code](reason)


def _percent(reason: Reason, name: str) -> str:
    value = reason.numbers[name]
    return f"{value:,.{0 if value >= 99.5 else 1}f} %"


def _most(reason: Reason) -> str:
    return f"{reason.numbers['most_percent']:g} %"


def _within(reason: Reason) -> str:
    if reason.numbers.get("launches_not_taken") == 0:
        return "every launch was taken, so nothing is estimated, and no time is saved"
    if "expected_error_percent" in reason.numbers:
        return (
            f"on another GPU the total should be off by about {_percent(reason, 'expected_error_percent')}, "
            f"kernels and sizes by {_percent(reason, 'expected_group_error_percent')}"
        )
    return (
        f"the total is off by {_percent(reason, 'error_percent')}, "
        f"groups by {_percent(reason, 'group_error_percent')}"
    )


def _total_error(reason: Reason) -> str:
    if "error_percent" not in reason.numbers:
        return "nobody knows the error of its total"
    return f"the total is off by {_percent(reason, 'error_percent')}, more than {_most(reason)}"


def _one_group(reason: Reason) -> str:
    chosen = int(reason.numbers["representatives"])
    stands = "1 launch stands" if chosen == 1 else f"{chosen:,} launches stand"
    return f"{stands} for {int(reason.numbers['kernels']):,} kernels in one group"


_CLAUSES = {
    "one_group_of_several_kernels": _one_group,
    "total_error": _total_error,
    "group_error": lambda reason: (
        f"the group error is {_percent(reason, 'group_error_percent')}, more than {_most(reason)}: errors of "
        "groups cancel in the total"
    ),
    "group_error_unknown": lambda _: "it was saved without the group of each launch, so errors may cancel",
    "expected_total_error": lambda reason: (
        f"on another GPU the total may well be off by {_percent(reason, 'expected_error_percent')} or more: "
        "its launches say too little of the rest"
    ),
    "expected_group_error": lambda reason: (
        "on another GPU kernels and sizes may well be off by "
        f"{_percent(reason, 'expected_group_error_percent')} of the total"
    ),
    "nothing_expected": lambda _: "it does not say what to expect on another GPU; select again",
    "wide_interval": lambda reason: f"the interval is wide, +-{_percent(reason, 'interval_half_percent')}",
    "unseen_time": lambda reason: (
        f"{_percent(reason, 'unseen_time_percent')} of the time is in launches unlike any of the window"
    ),
    "unmatched_time": lambda reason: (
        f"{_percent(reason, 'unmatched_time_percent')} of the time has no counterpart"
    ),
    "nothing_scored": lambda reason: (
        "the given recording of another GPU does not hold the same launches"
        if reason.numbers["recordings"] == 1
        else f"none of the {int(reason.numbers['recordings']):,} given recordings of other GPUs holds the "
        "same launches"
    ),
    "within_goals": _within,
}
