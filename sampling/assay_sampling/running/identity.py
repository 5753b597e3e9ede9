"""The condition and the device that launches were measured under and on: plain data.

Imports only the standard library, for programs that must start fast; :mod:`assay_sampling.launches.table`
exports these names too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["detailed", "light"]
RunLevel = Literal["detailed", "light", "bare"]  # a bare run has no profiler and so no launches
# Where numbers come from: silicon; a model or generator that stands in for it; a cycle-level simulator.
Origin = Literal["measured", "synthetic", "simulated"]
CacheCondition = Literal["none", "all"]
ClockCondition = Literal["none", "base", "boost"]
# The kinds of SM share: a limit on each process (MPS's active thread percentage), or a partition.
SmShareKind = Literal["limit", "partition"]
# The label of a GPU that a recording neither names nor describes begins so; its ordinal follows.
_NAMELESS = "device "


def origin_of(*, synthetic: bool) -> Origin:
    """The origin of data that no simulator made."""
    return "synthetic" if synthetic else "measured"


@dataclass(frozen=True)
class Condition:
    """The condition of a run: cache x clock x share of the SMs. ``None`` means not recorded.

    ``cache`` is "none" (left alone) or "all" (flushed between launches); ``sm_percent`` is in (0, 100].
    ``sm_share`` is the kind of share; documents have it only where it is "partition".
    """

    cache: CacheCondition | None = None
    clock: ClockCondition | None = None
    sm_percent: float | None = None
    sm_share: SmShareKind = "limit"

    def __str__(self) -> str:
        share = "?" if self.sm_percent is None else f"{self.sm_percent:g}"
        kind = " partition" if self.sm_share == "partition" else ""
        return f"cache={self.cache or '?'} clock={self.clock or '?'} sm={share}%{kind}"

    def to_dict(self) -> dict[str, Any]:
        document = dict(vars(self))
        if self.sm_share == "limit":  # what is meant where nothing is said
            del document["sm_share"]
        return document


def condition_conflict(one: Condition, other: Condition) -> str | None:
    """The first of cache, clock, sm_percent and sm_share in which two conditions differ, or None.

    A value that one does not record never differs; kinds of share differ only where both record a share.
    """
    for what in ("cache", "clock", "sm_percent"):
        values = getattr(one, what), getattr(other, what)
        if None not in values and values[0] != values[1]:
            return what
    shares_known = None not in (one.sm_percent, other.sm_percent)
    return "sm_share" if shares_known and one.sm_share != other.sm_share else None


BASELINE = Condition(cache="none", clock="none", sm_percent=100.0)


@dataclass(frozen=True)
class Device:
    """A GPU as the recording names it. ``index`` is the ordinal used in the column ``device``."""

    index: int
    name: str = ""
    uuid: str = ""
    compute_capability: str = ""
    sm_count: int | None = None

    def label(self) -> str:
        """A short text for people: the name, else the architecture, else the ordinal."""
        if self.name:
            return self.name
        if self.compute_capability:
            return f"compute capability {self.compute_capability}"
        return f"{_NAMELESS}{self.index}"


def told_apart(labels: Iterable[str]) -> set[str]:
    """The labels that say something of a GPU: not those of its ordinal alone."""
    return {label for label in labels if not label.removeprefix(_NAMELESS).isdecimal()}


_VENDOR_WORDS = ("virtual ", "nvidia ", "tesla ", "geforce ")


def device_key(name: str) -> str:
    """A key that names of one kind of GPU share: "NVIDIA GeForce RTX 3070" and "rtx 3070" agree.

    Leading vendor words and "virtual", letter case and surplus spaces do not count; all else does.
    """
    key = " ".join(name.casefold().split())
    while word := next((w for w in _VENDOR_WORDS if key.startswith(w)), ""):
        key = key.removeprefix(word)
    return key


def may_be_one_kind(one: Device, other: Device) -> bool:
    """Whether two devices may be GPUs of one kind: same model, compute capability and number of SMs.

    A value that a recording does not give never differs.
    """
    pairs = (
        (device_key(one.name), device_key(other.name)),
        (one.compute_capability, other.compute_capability),
        (one.sm_count, other.sm_count),
    )
    return all(not ours or not theirs or ours == theirs for ours, theirs in pairs)
