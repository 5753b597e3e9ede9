"""What a lab on one server must do, judged by what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.bench.lab.figures import Counts, milliseconds

# A lease lasts minutes, and a lab has a hundred GPUs.
LEASE_P99_MS = 100.0
SERVER_CORES = 1.0
SERVER_MIB = 400.0
FINISHED_A_SECOND = 34.0  # twice what 500 agents with runs of 30 s need
IDLE_CORES = 0.5  # an idle slot asks for work each 1.5 s
START_P50_MS, START_P99_MS = 1_000.0, 2_000.0
LEASE_RATIO = 1.5
WATCHED_HEARTBEAT_P99_MS = 500.0  # an agent sends one in seconds, and its lease lasts minutes


@dataclass(frozen=True)
class Goal:
    """One promise: its text, what was measured, and its bound, as they are printed."""

    text: str
    measured: str
    bound: str
    holds: bool


@dataclass(frozen=True)
class Phase:
    """What was seen in ``seconds``; ``server_cores``: CPU seconds of the server for each of them.

    ``loop_late_ms``: the 99th percentile of how late this process itself was: latencies include it.
    ``own_cores``: CPU seconds of this process for each second.
    """

    title: str
    seconds: float
    server_cores: float
    memory_mib: float
    loop_late_ms: float
    counts: Counts
    own_cores: float = 0.0


@dataclass(frozen=True)
class Phases:
    """Those of a lab, by what the agents did. ``starts``: seconds from a submission to the lease of each idle
    slot that it has work for."""

    idle: Phase
    starts: list[float]
    paced: Phase
    watched: Phase
    at_once: Phase

    @property
    def all(self) -> tuple[Phase, ...]:
        return self.idle, self.paced, self.watched, self.at_once


def goals_of(phases: Phases, agents: int) -> Iterator[Goal]:
    """The goals that are measured over sockets."""
    start = "idle slot to work that is submitted"
    yield _at_most(f"{start}, median, ms", milliseconds(phases.starts, 50), START_P50_MS)
    yield _at_most(f"{start}, 99th percentile, ms", milliseconds(phases.starts, 99), START_P99_MS)
    lease_ms = milliseconds(phases.paced.counts.leases, 99)
    yield _at_most("lease call, 99th percentile, ms", lease_ms, LEASE_P99_MS)
    yield _at_most("server while runs last, cores", phases.paced.server_cores, SERVER_CORES)
    yield _at_most("server while runs last, MiB", phases.paced.memory_mib, SERVER_MIB)
    late = sum(each.counts.heartbeats_late + each.counts.heartbeats_missed for each in phases.all)
    yield _at_most("heartbeats late or missed, all phases", late, 0)
    finished = phases.at_once
    rate = len(finished.counts.finished) / finished.seconds
    holds = rate >= FINISHED_A_SECOND
    yield Goal("finished runs a second", f"{rate:.3g}", f"at least {FINISHED_A_SECOND:g}", holds)
    yield _at_most(f"{agents} idle slots, cores of the server", phases.idle.server_cores, IDLE_CORES)
    watched_ms = milliseconds(phases.watched.counts.heartbeats, 99)
    yield _at_most("heartbeat with four watchers, 99th percentile, ms", watched_ms, WATCHED_HEARTBEAT_P99_MS)


def lease_goals(median_ms: Mapping[tuple[int, int], float]) -> Iterator[Goal]:
    """``median_ms``: CPU time of a lease by campaigns and queued runs; the ratios of its extremes."""
    by_runs = sorted((runs, ms) for (campaigns, runs), ms in median_ms.items() if campaigns == _MOST_RUNS_OF)
    by_campaigns = sorted((campaigns, ms) for (campaigns, _), ms in median_ms.items())
    for what, ((low, low_ms), *_, (high, high_ms)) in (
        ("queued runs", by_runs),
        ("campaigns", by_campaigns),
    ):
        yield _at_most(f"lease with {high:,} / {low:,} {what}, CPU time", high_ms / low_ms, LEASE_RATIO)


_MOST_RUNS_OF = 50  # campaigns, in the labs whose queues differ


def _at_most(text: str, measured: float, bound: float) -> Goal:
    return Goal(text, f"{measured:.3g}", f"at most {bound:g}", measured <= bound)
