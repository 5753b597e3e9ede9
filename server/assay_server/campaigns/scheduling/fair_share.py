"""GPU time that projects and people have used, for fair shares and budgets. Pure values of the clock.

Use counts less as it ages: GPU seconds that ended a half-life ago count half. A lease that is held counts
with the time it has run so far and one minute more, so that slots which ask at the same moment do not all go
to one person.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey
from assay_server.store.model import GpuUse

HALF_LIFE_MS = 24 * 3600 * 1000
ADVANCE_MS = 60_000
PERSON_DAYS = 30
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Account:
    """Whom a campaign's GPU time is charged to."""

    project: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Usage:
    """GPU time of one project or person: ended leases as at ``at_ms``, and ``gpus`` that are leased.

    ``leased_ms``: the sum over these GPUs of the moments at which their leases began.
    """

    ended_s: float = 0.0
    at_ms: int = 0
    gpus: int = 0
    leased_ms: int = 0

    def seconds(self, now_ms: int) -> float:
        """GPU seconds that count now."""
        running_ms = self.gpus * (now_ms + ADVANCE_MS) - self.leased_ms
        return self.ended_s * decay(now_ms - self.at_ms) + running_ms / 1000

    def began(self, leased_at_ms: int, gpus: int = 1) -> Usage:
        leased_ms = self.leased_ms + gpus * leased_at_ms
        return Usage(self.ended_s, self.at_ms, self.gpus + gpus, leased_ms)

    def spent(self, seconds: float, ended_at_ms: int) -> Usage:
        """With GPU seconds that ended at a moment, which may be before or after ``at_ms``."""
        at_ms = max(self.at_ms, ended_at_ms)
        total = self.ended_s * decay(at_ms - self.at_ms) + seconds * decay(at_ms - ended_at_ms)
        return Usage(total, at_ms, self.gpus, self.leased_ms)


def decay(age_ms: int) -> float:
    """The factor by which use of this age counts."""
    return float(0.5 ** (max(0, age_ms) / HALF_LIFE_MS))


_UNUSED = Usage()


@dataclass(frozen=True)
class Shares:
    """Usage by project and by (project, person), at one moment."""

    projects: Mapping[str, Usage] = field(default_factory=dict)
    people: Mapping[Account, Usage] = field(default_factory=dict)

    def rank(self, account: Account, now_ms: int) -> tuple[float, float]:
        """Who has used less goes first: projects among each other, then the people of a project."""
        project = self.projects.get(account.project, _UNUSED)
        person = self.people.get(account, _UNUSED)
        return project.seconds(now_ms), person.seconds(now_ms)


NO_SHARES = Shares()


@dataclass(frozen=True)
class _Lease:
    """A lease of one or more GPUs that has not ended."""

    campaign_id: str
    account: Account
    leased_at_ms: int
    gpus: int = 1

    def seconds(self, now_ms: int) -> float:
        return self.gpus * max(0, now_ms - self.leased_at_ms) / 1000


class Ledger:
    """What every campaign, project and person has used. Thread-safe; rebuilt from the store at a start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._projects: dict[str, Usage] = {}
        self._people: dict[Account, Usage] = {}
        self._campaigns: dict[str, float] = {}  # GPU seconds of ended leases, which never age
        self._days: dict[str, dict[int, float]] = {}  # by person and day
        self._leases: dict[AttemptKey, _Lease] = {}

    @property
    def shares(self) -> Shares:
        """A live view for one decision: values are replaced, never changed."""
        return Shares(self._projects, self._people)

    def load(self, uses: Iterable[GpuUse]) -> None:
        """Begin with what the store knows."""
        for use in uses:
            account = Account(use.project, use.owner)
            if use.key is not None:
                self.began(use.key, use.campaign_id, account, use.leased_at_ms, use.gpus)
            else:
                with self._lock:
                    self._spend(use.campaign_id, account, use.seconds, use.ended_at_ms)

    def began(self, key: AttemptKey, campaign_id: str, account: Account, at_ms: int, gpus: int = 1) -> None:
        """A lease of GPUs began."""
        with self._lock:
            self._pop(key)
            self._leases[key] = _Lease(campaign_id, account, at_ms, gpus)
            self._change(account, lambda usage: usage.began(at_ms, gpus))

    def ended(self, key: AttemptKey, at_ms: int) -> None:
        """A lease ended; does nothing if it was not of a GPU, or has ended before."""
        with self._lock:
            lease = self._pop(key)
            if lease is not None:
                self._spend(lease.campaign_id, lease.account, lease.seconds(at_ms), at_ms)

    def _pop(self, key: AttemptKey) -> _Lease | None:
        """Take a lease out of the use of its account, if it is there."""
        lease = self._leases.pop(key, None)
        if lease is not None:
            self._change(lease.account, lambda usage: usage.began(lease.leased_at_ms, -lease.gpus))
        return lease

    def campaign_seconds(self, campaign_id: str, now_ms: int) -> float:
        """GPU seconds of a campaign, with what its held leases have run so far."""
        with self._lock:
            running = sum(
                each.seconds(now_ms) for each in self._leases.values() if each.campaign_id == campaign_id
            )
            return self._campaigns.get(campaign_id, 0.0) + running

    def person_seconds(self, owner: str, now_ms: int) -> float:
        """GPU seconds of a person in the last PERSON_DAYS days, with those of held leases so far."""
        first = now_ms // _DAY_MS - PERSON_DAYS
        with self._lock:
            running = sum(
                each.seconds(now_ms) for each in self._leases.values() if each.account.owner == owner
            )
            ended = sum(s for day, s in self._days.get(owner, {}).items() if day > first)
            return ended + running

    def _spend(self, campaign_id: str, account: Account, seconds: float, ended_at_ms: int) -> None:
        self._change(account, lambda usage: usage.spent(seconds, ended_at_ms))
        self._campaigns[campaign_id] = self._campaigns.get(campaign_id, 0.0) + seconds
        days, day = self._days.setdefault(account.owner, {}), ended_at_ms // _DAY_MS
        days[day] = days.get(day, 0.0) + seconds

    def _change(self, account: Account, change: Callable[[Usage], Usage]) -> None:
        self._projects[account.project] = change(self._projects.get(account.project, _UNUSED))
        self._people[account] = change(self._people.get(account, _UNUSED))
