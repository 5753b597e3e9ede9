"""An active server and its standby: what they publish and report is what one server alone does."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from assay_sampling.errors import NotReadyError, StorageError
from tests.chaos.wire import Weather, Wire
from tests.services.needed import needs_standby
from tests.services.postgresql import OwnPostgresql
from tests.services.standby_lab import StandbyLab, standby_lab
from tests.support.integration.harness import BIN, Lab, lab, wait_until
from tests.support.integration.paced_recordings import write_paced_recordings

RUNS, LAUNCHES, SECONDS = 8, 300, 2.0
STILL_SECONDS, AWAY_SECONDS = 60.0, 8.0
pytestmark = [
    needs_standby,
    pytest.mark.xdist_group("standby"),
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


def require_whole(two: StandbyLab, campaign_id: str) -> None:
    """Every run is published once, and no file is there that nobody published."""
    status = json.loads(two.people.assay("lab", "status", campaign_id, "--json").stdout)
    assert [run["state"] for run in status["runs"]] == ["done"] * RUNS
    files = [p for p in (two.records / "records").rglob("*") if p.is_file()]
    assert sorted(p.parent.name for p in files) == sorted(run["run_id"] for run in status["runs"])
    staged = two.records / "staging"
    wait_until(lambda: not [p for p in staged.rglob("*") if p.is_file()], "the end of staging")


def started(two: StandbyLab, alone: Told) -> str:
    """Three agents at the balancer measure the campaign, of which a run is published."""
    people: Lab = two.people
    for number in range(3):
        people.start_agent(f"agent-{number}")
    campaign_id = people.submit(alone.campaign)
    wait_until(lambda: two.published() > 0, "a publication")
    assert two.published() < RUNS  # in the middle of runs
    return campaign_id


def require_done(two: StandbyLab, campaign_id: str, alone: Told) -> None:
    """The campaign is done, and its report is that of one server."""
    people: Lab = two.people
    wait_until(lambda: people.state(campaign_id) != "unreachable", "an answer of the other server")
    assert people.wait_for(campaign_id) == "done", people.logs()
    require_whole(two, campaign_id)
    assert people.report(campaign_id) == alone.report


def test_a_standby_takes_over_from_a_killed_server_and_nothing_is_lost(alone: Told, database: str) -> None:
    with standby_lab(database) as two:
        assert not two.is_active("b") and two.stands_by("b")
        campaign_id = started(two, alone)
        two.kill_active("a")
        two.start_server("a")
        assert not two.is_active("a")
        require_done(two, campaign_id, alone)


def test_a_server_that_stood_still_for_a_minute_ends_and_changes_nothing(alone: Told, database: str) -> None:
    with standby_lab(database) as two:
        campaign_id = started(two, alone)
        process = two.people.processes["a"]
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_until(lambda: two.is_active("b"), "the takeover", 10)
        require_done(two, campaign_id, alone)
        time.sleep(max(0.0, STILL_SECONDS - (time.monotonic() - stopped)))
        before = two.digest()
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == StorageError.exit_code
        # Whichever it notices first: the row of another, or that it was silent itself.
        assert re.search("another (assay-server leads this database|server may lead it)", two.log("a"))
        assert two.digest() == before
        require_done(two, campaign_id, alone)


def test_a_server_that_ends_in_order_is_followed_at_once(alone: Told, database: str) -> None:
    with standby_lab(database) as two:
        campaign_id = started(two, alone)
        assert two.people.stop("a") == 0
        wait_until(lambda: two.is_active("b"), "the takeover", 5)
        require_done(two, campaign_id, alone)


def test_a_standby_answers_probes_with_not_serving_and_ends_when_it_is_asked(database: str) -> None:
    with standby_lab(database) as two:
        health = [str(BIN / "assay-server"), "health", two.socket("b")]
        probed = subprocess.run(health, check=False, capture_output=True, text=True, timeout=60)
        assert probed.returncode == NotReadyError.exit_code, probed.stderr
        assert two.people.stop("b") == 0
        assert "Traceback" not in two.log("b")


def test_a_restarted_database_leaves_the_lead_where_it_was(
    alone: Told, database: str, postgresql: OwnPostgresql
) -> None:
    with standby_lab(database) as two:
        campaign_id = started(two, alone)
        postgresql.kill()
        time.sleep(AWAY_SECONDS)
        postgresql.start()
        require_done(two, campaign_id, alone)
        assert two.is_active("a") and not two.is_active("b")


@pytest.mark.parametrize("weather", [Weather(cut=True), Weather(held=True)], ids=["refused", "silent"])
def test_a_server_that_cannot_reach_the_database_ends_and_its_agents_go_on_at_the_other(
    alone: Told, database: str, weather: Weather
) -> None:
    url = urlsplit(database)
    assert url.port is not None
    with contextlib.closing(Wire(url.port, seed=1)) as wire:
        way = database.replace(f":{url.port}/", f":{wire.port}/")
        with standby_lab(database, ways={"a": way}) as two:
            campaign_id = started(two, alone)
            wire.set(weather)
            wait_until(lambda: two.is_active("b"), "the takeover", 10)
            assert two.people.processes["a"].wait(90) == StorageError.exit_code, two.log("a")
            require_done(two, campaign_id, alone)
