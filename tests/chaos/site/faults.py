"""Faults of what a site has beside servers and agents, and all kinds that a site may have."""

from __future__ import annotations

import signal
from typing import ClassVar

import psutil

from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.processes import KillAgent, StandingStill
from tests.chaos.faults.seam import Fault, Whom
from tests.chaos.laboratory import waited
from tests.chaos.site.broken_disks import BROKEN_DISKS
from tests.chaos.site.gate import Gate, Mood
from tests.chaos.site.laboratory import SiteLaboratory

# Kinds of a lab that reach into a server's own SQLite file or records, or into its clock alone.
_OF_ONE_SERVER = frozenset({"older_backup", "second_server", "flipped_bit_in_staging", "clock_jump"})


class KillDatabase(KillAgent):
    """kill -9 of PostgreSQL's first process; the others notice, and recovery follows."""

    kind = "kill_database"
    whom = Whom.DATABASE
    weight = 8


class RestartDatabase(KillAgent):
    """A fast shutdown of PostgreSQL, which breaks every session, and a new start."""

    kind = "restart_database"
    whom = Whom.DATABASE
    number = signal.SIGINT

    def effect(self) -> str:
        died = self.program.deaths[self._deaths :]
        return "ended in order" if died and died[0] == 0 else ""


class StopDatabase(StandingStill):
    """Every process of PostgreSQL stands still: its connections live, and nobody answers."""

    kind = "stop_database"
    whom = Whom.DATABASE

    def inject(self) -> None:
        if self.program.pid:
            parent = psutil.Process(self.program.pid)
            for process in [parent, *parent.children(recursive=True)]:
                self.stop(process)

    def effect(self) -> str:
        found = len(self.stopped)
        return f"{found} processes stood still for {self.seconds:.1f} s" if found > 1 else ""


class KillBucket(KillAgent):
    """kill -9 of SeaweedFS."""

    kind = "kill_bucket"
    whom = Whom.BUCKET


class BucketBusy(Fault):
    """The bucket answers every request with 503 for a while."""

    kind = "bucket_busy"
    whom = Whom.BUCKET
    weight = 6
    shortest, longest = 1.0, 6.0
    mood: ClassVar[Mood] = Mood.BUSY

    @property
    def gate(self) -> Gate:
        """The way to the bucket."""
        assert isinstance(self.lab, SiteLaboratory)
        return self.lab.gate

    def inject(self) -> None:
        self._before = self.gate.refused
        self.gate.set(self.mood)

    def heal(self) -> None:
        # Somebody must have wanted it; between two publications nobody does.
        waited(lambda: self.gate.refused > self._before, 10)
        self.gate.set(Mood.OPEN)

    def effect(self) -> str:
        refused = self.gate.refused - self._before
        return f"{refused} requests failed" if refused else ""


class BucketCut(BucketBusy):
    """Connections to the bucket break, and new ones too."""

    kind = "bucket_cut"
    mood = Mood.CUT


class KillBalancer(KillAgent):
    """kill -9 of HAProxy: every connection of agents breaks."""

    kind = "kill_balancer"
    whom = Whom.BALANCER


class KillScheduler(KillAgent):
    """kill -9 of Dask's scheduler."""

    kind = "kill_scheduler"
    whom = Whom.SCHEDULER


class KillWorker(KillAgent):
    """kill -9 of a Dask worker, if one can be met at work then, in an analysis."""

    kind = "kill_worker"
    whom = Whom.WORKERS
    weight = 6

    def inject(self) -> None:
        waited(self._is_busy, 8)
        super().inject()

    def _is_busy(self) -> bool:
        try:
            return psutil.Process(self.program.pid).cpu_percent(0.2) > 60 if self.program.pid else False
        except psutil.NoSuchProcess:
            return False


SITE_KINDS: dict[str, type[Fault]] = {
    kind.kind: kind
    for kind in (
        KillDatabase, RestartDatabase, StopDatabase, KillBucket, BucketBusy, BucketCut, KillBalancer,
        KillScheduler, KillWorker, *BROKEN_DISKS,
    )
}  # fmt: skip
KINDS_OF_A_SITE: dict[str, type[Fault]] = {
    **{name: kind for name, kind in KINDS.items() if name not in _OF_ONE_SERVER},
    **SITE_KINDS,
}
