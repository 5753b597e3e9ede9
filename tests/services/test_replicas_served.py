"""Two real servers share a database and a folder: what they publish and report is what one server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.needed import needs_replicas
from tests.services.postgresql import OwnPostgresql
from tests.services.replica_lab import ReplicaLab, replica_lab
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.paced_recordings import write_paced_recordings

RUNS, LAUNCHES, SECONDS = 8, 300, 2.0
pytestmark = [
    needs_replicas,
    pytest.mark.xdist_group("replicas"),
    pytest.mark.timeout(900),
]


@dataclass
class Told:
    """A campaign, and the report that one server with SQLite makes of it."""

    campaign: Path
    report: dict[str, Any]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("recordings")
    campaign = folder / "campaign.yaml"
    campaign.write_text(write_paced_recordings(folder, runs=RUNS, launches=LAUNCHES, seconds=SECONDS))
    with lab("tcp", lease_ms=20_000) as one:
        one.start_server()
        for name in ("first", "second"):
            one.start_agent(name)
        campaign_id = one.submit(campaign)
        assert one.wait_for(campaign_id) == "done"
        return Told(campaign, one.report(campaign_id))


@pytest.fixture(scope="module")
def postgresql() -> Iterator[OwnPostgresql]:
    with OwnPostgresql() as own:
        yield own


@pytest.fixture
def database(postgresql: OwnPostgresql) -> str:
    postgresql.administrate("DROP DATABASE IF EXISTS one WITH (FORCE)", "CREATE DATABASE one")
    return postgresql.url("one")


def agent(replicas: ReplicaLab, name: str, address: str) -> None:
    people = replicas.people
    people.address, before = address, people.address
    people.start_agent(name)
    people.address = before


def require_whole(replicas: ReplicaLab, campaign_id: str) -> None:
    """Every run is published once, and no file is there that nobody published."""
    status = json.loads(replicas.people.assay("status", campaign_id, "--json").stdout)
    assert [run["state"] for run in status["runs"]] == ["done"] * RUNS
    files = [p for p in (replicas.records / "records").rglob("*") if p.is_file()]
    assert sorted(p.parent.name for p in files) == sorted(run["run_id"] for run in status["runs"])
    staged = replicas.records / "staging"
    wait_until(lambda: not [p for p in staged.rglob("*") if p.is_file()], "the end of staging")


def test_agents_half_and_half_and_the_report_is_that_of_one_server(alone: Told, database: str) -> None:
    with replica_lab(database) as replicas:
        for number, address in enumerate(replicas.addresses.values()):
            for each in range(2):
                agent(replicas, f"agent-{number}{each}", address)
        people: Lab = replicas.people
        campaign_id = people.submit(alone.campaign)
        assert people.wait_for(campaign_id) == "done", people.logs()
        require_whole(replicas, campaign_id)
        assert people.report(campaign_id) == alone.report
        taken = {
            n: (replicas.root / f"{n}.log").read_text().count("registered with") for n in people.processes
        }
        assert all(taken[name] for name in taken if name.startswith("agent")), taken


def test_a_server_killed_behind_a_balancer_costs_nothing(alone: Told, database: str) -> None:
    with replica_lab(database) as replicas:
        people: Lab = replicas.people
        for number in range(3):
            agent(replicas, f"agent-{number}", replicas.balancer)
        campaign_id = people.submit(alone.campaign)
        wait_until(lambda: replicas.published() > 0, "a publication")
        people.kill("a")
        assert replicas.published() < RUNS  # in the middle of runs
        wait_until(lambda: people.state(campaign_id) != "unreachable", "an answer of the other server")
        assert people.wait_for(campaign_id) == "done", people.logs()
        require_whole(replicas, campaign_id)
        assert people.report(campaign_id) == alone.report
