"""The rules of the verdict, and the one function that applies them.

Every rule that applies gives a reason; the verdict is the most cautious level among them, and ``trust`` if
none applies. A rule about the parts of a total leaves the total trusted only where something vouches for it.

Source: docs/methods/README.md, "The verdict", whose table :func:`rule_table` prints; the limits of expected
errors were set on one half of the recordings of docs/fidelity.md, "Verdicts", and judged on the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assay_sampling.verdicts.facts import VerdictFacts
from assay_sampling.verdicts.verdict import Reason, ReasonCode, Verdict, VerdictLevel, worst

GOAL_ERROR_PERCENT = 3.0
GOAL_GROUP_ERROR_PERCENT = 6.0
# Expected errors are means: a total that is to stay below 3 % nearly always may be off by less on average.
MOST_EXPECTED_ERROR_PERCENT = 1.1
MOST_EXPECTED_GROUP_ERROR_PERCENT = 5.0
# With fewer launches nothing tells how far a total may be off.
LEAST_DRAWN = 18
MOST_UNSEEN_PERCENT = 1.0
# Beyond it most of what is projected rests on how sizes of a kernel are assumed to scale.
MOST_EXTRAPOLATED_PERCENT = 50.0

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """When a reason holds, in words, with its numbers, and whether it is about the parts of a total alone."""

    code: ReasonCode
    holds: str
    numbers: Callable[[VerdictFacts], Numbers | None]
    of_parts: bool = False


def verdict_of(facts: VerdictFacts) -> Verdict:
    """The verdict on a selection, or on its score elsewhere: the most cautious of all rules that apply."""
    reasons: list[tuple[VerdictLevel, Reason]] = []
    for rule in RULES:
        numbers = rule.numbers(facts)
        if numbers is not None:
            total_holds = rule.of_parts and total_is_vouched_for(facts)
            reasons.append(("total_only" if total_holds else "do_not", Reason(rule.code, numbers)))
    if not reasons:
        return Verdict("trust", (Reason("within_goals", _within(facts)),), facts.windows)
    level = worst(tuple(each for each, _ in reasons))
    deciding = [reason for each, reason in reasons if each == level]
    others = [reason for each, reason in reasons if each != level]
    return Verdict(level, (*deciding, *others), facts.windows)


def total_is_vouched_for(facts: VerdictFacts) -> bool:
    """Whether a total may be trusted though its parts may not: elsewhere its error is known; at home enough
    launches were drawn at random that its expected error is within the limit."""
    if facts.elsewhere:
        return True
    return facts.drawn and facts.representatives >= LEAST_DRAWN and facts.expected is not None


def rule_table() -> str:
    """The rules as a Markdown table."""
    rows = ["| code | when | level |", "|---|---|---|"]
    for rule in RULES:
        level = "`total_only` where the total is vouched for, else `do_not`" if rule.of_parts else "`do_not`"
        rows.append(f"| `{rule.code}` | {rule.holds} | {level} |")
    rows.append("| `within_goals` | no other rule applies | `trust` |")
    return "\n".join(rows)


def _expects(facts: VerdictFacts, name: str) -> float | None:
    return None if facts.expected is None else float(getattr(facts.expected, name))


def _within(facts: VerdictFacts) -> Numbers:
    numbers = {
        "error_percent": facts.error_percent,
        "group_error_percent": facts.group_error_percent,
        "expected_error_percent": _expects(facts, "error_percent"),
        "expected_group_error_percent": _expects(facts, "group_error_percent"),
        "not_vouched_percent": _expects(facts, "not_vouched_percent"),
    }
    if facts.launches is not None and facts.representatives >= facts.launches:
        numbers["launches_not_taken"] = 0.0
    return {name: value for name, value in numbers.items() if value is not None}


def _one_group(facts: VerdictFacts) -> Numbers | None:
    every = facts.launches is not None and facts.representatives >= facts.launches
    if facts.groups == 1 and (facts.kernels or 0) > 1 and not every:
        return {"kernels": float(facts.kernels or 0), "representatives": float(facts.representatives)}
    return None


def _above(name: str, value: float | None, most: float) -> Numbers | None:
    return None if value is None or value <= most else {name: value, "most_percent": most}


def _total_error(facts: VerdictFacts) -> Numbers | None:
    if facts.error_percent is None:
        return {"most_percent": GOAL_ERROR_PERCENT}
    # A launch chosen at half of the cumulative light time is longer than the mean of its group: weights by
    # launches overshoot here, and by light time its own time cancels.
    if facts.weighed_otherwise and not facts.drawn and facts.weights == "light_time":
        return None
    return _above("error_percent", facts.error_percent, GOAL_ERROR_PERCENT)


def _group_error(facts: VerdictFacts) -> Numbers | None:
    return _above("group_error_percent", facts.group_error_percent, GOAL_GROUP_ERROR_PERCENT)


def _group_error_unknown(facts: VerdictFacts) -> Numbers | None:
    return {} if facts.group_error_percent is None else None


def _nothing_expected(facts: VerdictFacts) -> Numbers | None:
    return {} if facts.expected is None and not facts.elsewhere else None


def _expected_total(facts: VerdictFacts) -> Numbers | None:
    value = None if facts.elsewhere else _expects(facts, "error_percent")
    return _above("expected_error_percent", value, MOST_EXPECTED_ERROR_PERCENT)


def _expected_groups(facts: VerdictFacts) -> Numbers | None:
    value = None if facts.elsewhere else _expects(facts, "group_error_percent")
    return _above("expected_group_error_percent", value, MOST_EXPECTED_GROUP_ERROR_PERCENT)


def _extrapolated(facts: VerdictFacts) -> Numbers | None:
    # Launches drawn at random stand for the sizes between them without a bias; one chosen by a rule does not.
    value = None if facts.elsewhere or facts.drawn else _expects(facts, "extrapolated_percent")
    return _above("extrapolated_percent", value, MOST_EXTRAPOLATED_PERCENT)


def _interval(facts: VerdictFacts) -> Numbers | None:
    # Light-time weights are others than those that the interval at home is of.
    if facts.elsewhere or facts.weights == "light_time":
        return None
    return _above("interval_half_percent", facts.interval_half_percent, GOAL_ERROR_PERCENT)


def _unseen(facts: VerdictFacts) -> Numbers | None:
    if facts.elsewhere or facts.weights == "light_time":
        return None
    return _above("unseen_time_percent", facts.unseen_time_percent, MOST_UNSEEN_PERCENT)


def _unmatched(facts: VerdictFacts) -> Numbers | None:
    return _above("unmatched_time_percent", facts.unmatched_time_percent, GOAL_ERROR_PERCENT)


def _nothing_scored(facts: VerdictFacts) -> Numbers | None:
    count = facts.unscored_recordings
    return {"recordings": float(count)} if count else None


_GOAL = f"{GOAL_ERROR_PERCENT:g} %"
_GROUP_GOAL = f"{GOAL_GROUP_ERROR_PERCENT:g} %"
RULES: tuple[Rule, ...] = (
    Rule(
        "nothing_scored",
        "recordings of other GPUs were given, and none could be scored: other kernels, or other launches",
        _nothing_scored,
    ),
    Rule(
        "total_error",
        f"the error of the total is above {_GOAL}, here or on the scored GPU; not that of a selection by a "
        "rule where it was made, if its weights are others there than on other GPUs",
        _total_error,
    ),
    Rule(
        "expected_total_error",
        "not scored elsewhere: the error of the total expected on another GPU is above "
        f"{MOST_EXPECTED_ERROR_PERCENT:g} %",
        _expected_total,
    ),
    Rule(
        "one_group_of_several_kernels",
        "all launches are in one group, they are of several kernels, and not every one was taken",
        _one_group,
        of_parts=True,
    ),
    Rule(
        "group_error",
        f"the group error is above {_GROUP_GOAL}, here or on the scored GPU",
        _group_error,
        of_parts=True,
    ),
    Rule(
        "group_error_unknown",
        "the selection was saved without the group of each launch",
        _group_error_unknown,
        of_parts=True,
    ),
    Rule(
        "expected_group_error",
        "not scored elsewhere: the error over kernels and sizes expected on another GPU is above "
        f"{MOST_EXPECTED_GROUP_ERROR_PERCENT:g} %",
        _expected_groups,
        of_parts=True,
    ),
    Rule(
        "extrapolated_time",
        f"not scored elsewhere: more than {MOST_EXTRAPOLATED_PERCENT:g} % of the time is of kernels and "
        "sizes of which no launch was taken, in groups for which one launch stands that a rule chose",
        _extrapolated,
    ),
    Rule(
        "nothing_expected",
        "not scored elsewhere, and the selection does not say what to expect there: another tool "
        "wrote it, or it is a file of weights",
        _nothing_expected,
    ),
    Rule(
        "wide_interval",
        f"not scored elsewhere, weights by launches or instructions: the interval is wider than +-{_GOAL}",
        _interval,
    ),
    Rule(
        "unseen_time",
        "not scored elsewhere, weights by launches or instructions: signatures that the window lacks have "
        f"more than {MOST_UNSEEN_PERCENT:g} % of the light time",
        _unseen,
    ),
    Rule(
        "unmatched_time",
        f"operations with more than {_GOAL} of the time, of either side, have no counterpart on the other",
        _unmatched,
    ),
)  # fmt: skip
