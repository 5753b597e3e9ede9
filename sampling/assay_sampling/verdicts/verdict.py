"""The verdict on a selection or a score: a level, and the reasons for it with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# Trust it; trust the total only, not what it is made of; do not trust it.
VerdictLevel = Literal["trust", "total_only", "do_not"]
LEVELS: tuple[VerdictLevel, ...] = ("trust", "total_only", "do_not")

ReasonCode = Literal[
    "one_group_of_several_kernels",
    "total_error",
    "group_error",
    "group_error_unknown",
    "expected_total_error",
    "expected_group_error",
    "extrapolated_time",
    "nothing_expected",
    "wide_interval",
    "unseen_time",
    "unmatched_time",
    "nothing_scored",
    "within_goals",
]


@dataclass(frozen=True)
class Reason:
    """Why a verdict is what it is: a code, and the numbers behind it by name, with units in the names."""

    code: ReasonCode
    numbers: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Verdict:
    """Whether to trust a selection, or its score on a recording. ``reasons`` holds at least one, those that
    decided the level first; ``windows`` are as in :class:`assay_sampling.verdicts.facts.VerdictFacts`."""

    level: VerdictLevel
    reasons: tuple[Reason, ...]
    windows: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        entry = {"level": self.level, "reasons": [reason.to_dict() for reason in self.reasons]}
        return entry | ({"windows": list(self.windows)} if self.windows else {})


def verdict_from(value: Mapping[str, Any]) -> Verdict:
    """The verdict that :meth:`Verdict.to_dict` gave."""
    reasons = tuple(Reason(each["code"], each["numbers"]) for each in value["reasons"])
    return Verdict(value["level"], reasons, tuple(value.get("windows", ())))


def most_cautious(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of the most cautious level, of equals the first, with its reasons."""
    return max(verdicts, key=lambda each: LEVELS.index(each.level))


def worst(levels: tuple[VerdictLevel, ...]) -> VerdictLevel:
    """The most cautious of some levels; ``trust`` of none."""
    return max(levels, key=LEVELS.index, default="trust")
