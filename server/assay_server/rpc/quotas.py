"""Bounds on calls by who makes them: how many at a time, how many a second, and how many streams.

Heartbeats and registrations are counted apart from all other calls, so that an agent that asks for work too
often keeps its leases.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

from assay_sampling.errors import StorageError
from assay_server.access.caller import current_caller
from assay_server.limits import CallerLimits

_MOST_REMEMBERED = 10_000
_BURST_SECONDS = 5.0
_COUNTED_APART = ("Heartbeat", "Register")


class Quotas:
    """What callers have used of what they may. Use it on one thread."""

    def __init__(self, limits: CallerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._under_way: Counter[str] = Counter()
        # Tokens that calls take and that come back with time, and when some were taken last.
        self._tokens: dict[tuple[str, str], tuple[float, float]] = {}

    @contextlib.contextmanager
    def used(self, identity_id: str, call: str) -> Iterator[None]:
        """One call while the block runs; raises StorageError if the caller has too many, or too often."""
        kind = call if call in _COUNTED_APART else ""
        per_second = self._per_second(kind)
        if not self._take_token(identity_id, kind, per_second):
            raise _refusal(identity_id, f"it calls {call} more than {per_second:g} times a second")
        # A heartbeat that is refused costs leases, so long calls never take its place.
        if kind != "Heartbeat" and self._under_way[identity_id] >= self._limits.caller_calls:
            raise _refusal(identity_id, f"it has {self._limits.caller_calls:,} calls under way already")
        self._under_way[identity_id] += 1
        try:
            yield
        finally:
            self._under_way[identity_id] -= 1
            if not self._under_way[identity_id]:
                del self._under_way[identity_id]

    def _per_second(self, kind: str) -> float:
        """As the limits say now: a reload may change them."""
        if kind == "Register":
            return self._limits.caller_registrations_per_minute / 60
        limits = self._limits
        return float(limits.caller_heartbeats_per_second if kind else limits.caller_calls_per_second)

    def _take_token(self, identity_id: str, kind: str, per_second: float) -> bool:
        most, now = max(1.0, per_second * _BURST_SECONDS), self._clock()
        tokens, then = self._tokens.pop((identity_id, kind), (most, now))
        tokens = min(most, tokens + (now - then) * per_second)
        self._tokens[identity_id, kind] = (tokens - (tokens >= 1), now)
        while len(self._tokens) > _MOST_REMEMBERED:
            del self._tokens[next(iter(self._tokens))]  # unused for the longest time
        return tokens >= 1


def _refusal(identity_id: str, cause: str) -> StorageError:
    return StorageError(f"caller {identity_id}", cause, "call less often; agents try again by themselves")


class ConcurrencyLimit:
    """Bounds how many do something at a time; used on the event loop.

    ``what``: of what there are so many; ``most``: how many; ``share_percent``: how many of them one caller
    with a certificate may take, at least one. Both are asked at each use, because a reload may change them.
    """

    def __init__(
        self, what: str, most: Callable[[], int], share_percent: Callable[[], int] = lambda: 100
    ) -> None:
        self._what, self._most, self._share_percent = what, most, share_percent
        self._by_caller: Counter[str] = Counter()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Count the current caller while the block runs; raises StorageError if it may not begin."""
        caller, most = current_caller(), self._most()
        identity_id = "" if caller is None or caller.is_owner else caller.identity_id
        mine = self._by_caller[identity_id] if identity_id else 0
        if self._by_caller.total() >= most or mine >= max(1, most * self._share_percent() // 100):
            cause = f"it has {most:,} {self._what} already, or this caller has its share of them"
            raise StorageError("server", cause, "try again later")
        self._by_caller[identity_id] += 1
        try:
            yield
        finally:
            self._by_caller -= Counter((identity_id,))  # which keeps none of zero
