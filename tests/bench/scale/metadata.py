"""Section ``metadata``: leases, heartbeats and ends of attempts on SQLite and on PostgreSQL.

Every case has the same campaign and agents, and processes of its own, which do as a server does for each
call, without sockets, for a few seconds, after some calls of each kind that are not counted. A round runs
each case once. Calls come one by one here; a server handles
those that wait in one transaction, on either database.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import SteadyClock
from assay_server.store.records import LocalRecordStore
from tests.bench.lab.goals import Goal
from tests.bench.leases import made_agent, submit
from tests.bench.scale.sections import ScaleSize
from tests.bench.scale.transactions import FINISH, HEARTBEAT, LEASE, ROUNDS_BEFORE, opened
from tests.services.postgresql import OwnPostgresql, programs
from tests.support.server.coordinators import coordinator_over

_SECONDS, _AGENTS = 4.0, 8
_MOST_RUNS_A_SECOND = 400  # of a quick machine; the campaign must not end while it is measured
_SHOWN = (LEASE, HEARTBEAT, FINISH)
# What 500 agents with runs of 30 s ask for: a lease, a segment, and the two transactions of an end.
_AT_LEAST = 500 / 30 * 4


@dataclass(frozen=True)
class Case:
    """Where the metadata are."""

    title: str
    on_postgresql: bool


SQLITE = Case("SQLite", False)
CASES = (SQLITE, Case("PostgreSQL", True))


@dataclass(frozen=True)
class Measured:
    """Of one round: transactions a second, percentiles by kind (ms), and CPU time of a transaction (ms)."""

    rate: float
    p50: dict[str, float]
    p99: dict[str, float]
    own_cpu_ms: float
    database_cpu_ms: float


def metadata_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines."""
    seconds = _SECONDS * size.share
    yield f"\n## Metadata: {_AGENTS} agents at a time, each case for {seconds:g} s\n"
    columns = [f"{kind} {percent}, ms" for kind in _SHOWN for percent in ("p50", "p99")]
    columns += ["CPU a transaction: ours, ms", "database's, ms"]
    yield f"| case | transactions a second | beside SQLite | {' | '.join(columns)} |"
    yield f"|---|---:|---:|{'---:|' * len(columns)}"
    cases = CASES if programs() is not None else CASES[:1]
    rounds: dict[Case, list[Measured]] = {case: [] for case in cases}
    for _ in range(size.rounds):
        for case in cases:
            rounds[case].append(_round(case, seconds))
    for case, found in rounds.items():
        ratios = [mine.rate / its.rate for mine, its in zip(found, rounds[SQLITE], strict=True)]
        ratio = statistics.median(ratios)
        yield f"| {case.title} | {' | '.join(_cells(found, ratio))} |"
        rate = statistics.median(each.rate for each in found)
        bound = f"at least {_AT_LEAST:.0f}"
        goals.append(Goal(f"transactions a second: {case.title}", f"{rate:.0f}", bound, rate >= _AT_LEAST))
    if len(cases) == 1:
        yield "\nPostgreSQL was left out: install Debian's package postgresql-15."


def _cells(found: list[Measured], ratio: float) -> Iterator[str]:
    yield f"{statistics.median(each.rate for each in found):,.0f}"
    yield f"{ratio:.2f}"
    for kind in _SHOWN:
        yield f"{statistics.median(each.p50[kind] for each in found):.1f}"
        yield f"{statistics.median(each.p99[kind] for each in found):.1f}"
    yield f"{statistics.median(each.own_cpu_ms for each in found):.2f}"
    yield f"{statistics.median(each.database_cpu_ms for each in found):.2f}"


def _round(case: Case, seconds: float) -> Measured:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-scale-"))
        database = stack.enter_context(OwnPostgresql()) if case.on_postgresql else None
        place = folder if database is None else database.url()
        _prepare(place, max(200, round(seconds * _MOST_RUNS_A_SECOND)) + ROUNDS_BEFORE * _AGENTS)
        told, database_cpu = _run(place, database, seconds)
    by_kind = told["seconds"]
    transactions = sum(len(each) for each in by_kind.values())
    return Measured(
        transactions / told["took"],
        {kind: 1e3 * float(np.percentile(each, 50)) for kind, each in by_kind.items()},
        {kind: 1e3 * float(np.percentile(each, 99)) for kind, each in by_kind.items()},
        1e3 * told["cpu"] / transactions,
        1e3 * database_cpu / transactions,
    )


def _prepare(place: str, runs: int) -> None:
    with closing(opened(place)) as store, tempfile.TemporaryDirectory() as folder:
        coordinator = coordinator_over(store, LocalRecordStore(Path(folder)), SchedulePolicy(), SteadyClock())
        submit(coordinator, "made-1", runs)
        for number in range(_AGENTS):
            with coordinator.schedule() as schedule:
                schedule.register(made_agent(number), {})


def _run(place: str, database: OwnPostgresql | None, seconds: float) -> tuple[dict[str, Any], float]:
    """What the server measured, and the CPU seconds of the database meanwhile."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.scale.transactions", place, str(_AGENTS), str(seconds)],
        cwd=Path(__file__).resolve().parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    before = 0.0 if database is None else database.cpu_seconds
    told = json.loads(child.communicate("go\n")[0])
    return told, 0.0 if database is None else database.cpu_seconds - before
