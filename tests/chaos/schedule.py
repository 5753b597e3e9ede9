"""Which faults come, to whom and in which order: drawn from a seed; and how they are carried out.

Each target has a lane, a thread that injects one fault after another; the lanes go on side by side, so that
faults of different programs meet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import SERVER, Fault, Outcome, RuleBrokenError, Whom
from tests.chaos.laboratory import Laboratory, waited

_PAUSE_SECONDS = 0.2, 1.5
_WELL_SECONDS = 30.0
ONE_SERVER: Mapping[Whom, Sequence[str]] = {Whom.SERVER: (SERVER,)}


@dataclass(frozen=True)
class Planned:
    """A fault that is to come; ``number`` seeds what it draws itself."""

    kind: str
    target: str
    number: int


def plan(
    chance: Random,
    faults: int,
    kinds: Sequence[str],
    agents: Sequence[str],
    *,
    services: Mapping[Whom, Sequence[str]] = ONE_SERVER,
    known: Mapping[str, type[Fault]] = KINDS,
) -> list[Planned]:
    """So many faults: every kind at least once if there are enough, the rest by their weights.

    Those of profilers come first: the workloads that these measure have the shortest runs.
    """
    chosen = chance.sample(list(kinds), min(faults, len(kinds)))
    weights = [known[kind].weight for kind in kinds]
    chosen += chance.choices(list(kinds), weights, k=faults - len(chosen))
    chance.shuffle(chosen)
    chosen.sort(key=lambda kind: not known[kind].early)
    return [
        Planned(kind, _target(chance, known[kind].whom, agents, services), number)
        for number, kind in enumerate(chosen)
    ]


def _target(chance: Random, whom: Whom, agents: Sequence[str], services: Mapping[Whom, Sequence[str]]) -> str:
    if whom is Whom.ANYBODY and chance.random() < 0.3:
        whom = Whom.SERVER
    targets = list(services.get(whom, agents))
    return targets[0] if len(targets) == 1 else chance.choice(targets)


class Lanes:
    """Carries a plan out, until enough have taken hold.

    A fault that did not take hold comes again, with another draw, a few times.

    Args:
        enough: how many must take hold.
        over: whether the campaigns have ended, so that further faults would hit nothing.
        told: hears of each outcome, in the lane's thread.
    """

    def __init__(
        self,
        lab: Laboratory,
        planned: Sequence[Planned],
        seed: int,
        *,
        enough: int,
        over: Callable[[], bool],
        told: Callable[[Outcome], None],
        tries: int = 3,
        known: Mapping[str, type[Fault]] = KINDS,
    ) -> None:
        self._lab = lab
        self._seed = seed
        self._over = over
        self._enough = enough
        self._told = told
        self._tries = tries
        self._known = known
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._problems: list[BaseException] = []
        targets = {each.target for each in planned}
        self._threads = [
            threading.Thread(
                target=self._lane, args=([p for p in planned if p.target == t],), name=f"lane {t}"
            )
            for t in sorted(targets)
        ]

    def run(self) -> None:
        """Start all lanes."""
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether faults are still to come."""
        return any(thread.is_alive() for thread in self._threads)

    @property
    def took_hold(self) -> int:
        """How many took hold so far."""
        return sum(bool(each.effect) for each in self.outcomes)

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of the faults so far."""
        with self._lock:
            return list(self._outcomes)

    def join(self) -> None:
        """Wait for the last one; raises what a lane could not carry out."""
        for thread in self._threads:
            thread.join()
        self.require_well()

    def require_well(self) -> None:
        """Raise what a lane could not carry out, if there is something: the lab may never go on after it."""
        with self._lock:
            if self._problems:
                raise self._problems[0]

    def _lane(self, planned: Iterable[Planned]) -> None:
        try:
            for each in planned:
                for again in range(self._tries):
                    if self._over() or self.took_hold >= self._enough:
                        return
                    outcome = self._once(each, Random(f"{self._seed} {each.number} {again}"))
                    if outcome.effect or outcome.broken:
                        break
        except BaseException as error:  # noqa: BLE001 - raised again by join
            with self._lock:
                self._problems.append(error)

    def _once(self, each: Planned, chance: Random) -> Outcome:
        kind = self._known[each.kind]
        time.sleep(chance.uniform(*_PAUSE_SECONDS))
        self._wait_until_well(each.target)
        with ExitStack() as held:
            if each.target in self._lab.services or kind.needs_server:
                held.enter_context(self._lab.server_lock)
            fault = kind(self._lab, each.target, chance)
            began, broken = time.monotonic(), ""
            try:
                try:
                    fault.inject()
                    time.sleep(fault.seconds)
                finally:
                    fault.heal()
            except RuleBrokenError as error:
                broken = str(error)
            effect = "" if broken else fault.effect()
        seconds = time.monotonic() - began
        outcome = Outcome(each.kind, each.target, began - self._began, seconds, effect, broken)
        with self._lock:
            self._outcomes.append(outcome)
        self._told(outcome)
        return outcome

    def _wait_until_well(self, target: str) -> None:
        """A fault of who is already down would prove nothing."""
        if target in self._lab.services:
            self._lab.wait_until_well(target)
        else:
            box = self._lab.boxes[target]
            waited(lambda: box.program.pid and box.is_registered, _WELL_SECONDS)
