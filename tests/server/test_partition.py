"""An agent that is cut off for ten minutes, and one whose certificate is renewed while it sends.

Real agents and a real server over mutual TLS in this process; the minutes pass by the server's clock.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.identity.credentials import CredentialsFolder
from assay_core.identity.roles import Role
from assay_core.records.machine import Inventory
from assay_sampling.readers.opening import read_launches
from assay_server.app import Server
from tests.chaos.wire import FAIR, Weather, Wire
from tests.support.identity.tls_lab import joined, tls_server
from tests.support.integration.paced_recordings import write_paced_recordings
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import HandClock, eventually

LAUNCHES = 300
TEN_MINUTES_MS = 600_000
LEASE_MS = 60_000
IDENTITIES = {"away": "a" * 32, "near": "b" * 32, "box": "c" * 32}
NOBODY = Inventory("host", "0", 2, 1 << 30, no_device_reason="none here")


@contextlib.contextmanager
def agent(server: Server, folder: Path, name: str, address: str = "") -> Iterator[Path]:
    """An agent that plays recordings; its state folder."""
    state, identity = folder / name, IDENTITIES[name]
    state.mkdir(mode=0o700)
    policy = folder / "policy.toml"
    policy.write_text('version = 1\nallow_root = true\nrecordings = ["/**"]\n')
    policy.chmod(0o644)
    CredentialsFolder(state / "credentials").write(joined(server, Role.AGENT, name, identity))
    settings = AgentSettings(
        server=address or server.addresses[0], state_dir=state, name=name, agent_id=identity,
        policy_file=policy, minimum_free_bytes=0, flush_seconds=0.1,
    )  # fmt: skip
    made = Agent(settings, inventory=lambda: NOBODY)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield state
    finally:
        made.stop(at_once=True)
        thread.join(30)
        assert not thread.is_alive()


def submitted(folder: Path, owner: PlayingAgent, seconds: float) -> str:
    """A campaign of one run, which lasts so long; the run's id."""
    text = write_paced_recordings(folder, runs=1, launches=LAUNCHES, seconds=seconds)
    return f"{owner.submit(text, str(folder))}.0000"


def durable_launches(server: Server, run_id: str) -> int:
    """The launches of a run's attempts that are under way."""
    query = "SELECT SUM(launches) FROM attempts WHERE run_id = ? AND state = 'leased'"
    with contextlib.closing(sqlite3.connect(server.settings.state_dir / "metadata.sqlite")) as database:
        return int(database.execute(query, (run_id,)).fetchone()[0] or 0)


def published(server: Server, run_id: str) -> bytes:
    return (server.settings.state_dir / "records" / run_id / "slice-00000.parquet").read_bytes()


@pytest.mark.parametrize("weather", [Weather(cut=True), Weather(held=True)], ids=["cut", "held"])
def test_after_ten_minutes_away_an_agent_changes_nothing_that_was_published_meanwhile(
    make_server: Callable[..., Server], short_path: Path, tmp_path: Path, weather: Weather
) -> None:
    """``cut``: connections are reset. ``held``: what was sent arrives ten minutes late."""
    clock = HandClock()
    server = tls_server(make_server, short_path, clock=clock, lease_ms=LEASE_MS, heartbeat_ms=100)
    wire = Wire(int(server.addresses[0].rpartition(":")[2]), seed=1)
    with contextlib.closing(wire), PlayingAgent(server.addresses[-1]) as owner:
        run_id = submitted(tmp_path, owner, seconds=2.0)
        with agent(server, tmp_path, "away", wire.address) as spool_of:
            eventually(lambda: durable_launches(server, run_id) > 0, "the first segment")
            before = wire.counts
            wire.set(weather)
            began_ms = clock.ms

            def lease_is_over() -> bool:
                # A heartbeat that was under way may still be noted, so one step is not enough.
                clock.ms += LEASE_MS + 1
                return owner.run(run_id).attempts[0].state != "leased"

            eventually(lease_is_over, "the end of the lease")
            clock.ms = max(clock.ms, began_ms + TEN_MINUTES_MS)
            with agent(server, tmp_path, "near"):
                eventually(lambda: owner.run(run_id).run.state == "done", "the run on the other agent", 40)
                whole = published(server, run_id)
                # All of the first attempt is in the spool, and wants to be sent.
                eventually(lambda: list((spool_of / "spool").glob("*/seal.json")) != [], "its seal")
                wire.set(FAIR)
                eventually(lambda: list((spool_of / "spool").iterdir()) == [], "its end in the spool", 40)
                first, second = sorted(owner.run(run_id).attempts, key=lambda each: each.key.attempt)
        assert published(server, run_id) == whole
        assert (first.agent, second.agent) == ("away", "near")
        assert (first.state, second.state) == ("superseded", "published")
        happened = wire.counts.since(before)
        assert happened.late_bytes > 0 if weather.held else happened.resets + happened.refused > 0
    launches = read_launches(server.settings.state_dir / "records" / run_id / "slice-00000.parquet")
    assert launches.column("launch").tolist() == list(range(LAUNCHES))


def test_uploads_live_on_over_the_renewal_of_a_certificate(
    make_server: Callable[..., Server], short_path: Path, tmp_path: Path
) -> None:
    """Certificates of five seconds are renewed about every second and a half, while one run is sent.

    Three seconds are too short where other work keeps this process waiting: they expire before a renewal.
    """
    server = tls_server(make_server, short_path, certificate_validity_seconds=5.0, heartbeat_ms=100)
    with PlayingAgent(server.addresses[-1]) as owner:
        run_id = submitted(tmp_path, owner, seconds=4.0)
        with agent(server, tmp_path, "box") as state:
            folder = CredentialsFolder(state / "credentials")
            serials: set[str] = set()

            def done() -> bool:
                found = folder.read()
                if found is not None and durable_launches(server, run_id) > 0:
                    serials.add(found.identity.serial)
                return owner.run(run_id).run.state == "done"

            eventually(done, "the end of the run", 60)
            [attempt] = owner.run(run_id).attempts
        assert (attempt.state, attempt.launches) == ("published", LAUNCHES)
        assert len(serials) >= 2, "no certificate was renewed while segments were sent"
    launches = read_launches(server.settings.state_dir / "records" / run_id / "slice-00000.parquet")
    assert launches.column("launch").tolist() == list(range(LAUNCHES))
