"""State folders of the release before a lab had identities: both programs open them, and the campaign goes on."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.records.machine import Inventory
from assay_server.app import Server, ServerSettings
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import REPORT, StandInExecutor, eventually

TESTS = Path(__file__).parents[1]
LEFT = Path(__file__).parent / "fixtures" / "state_of_schema_0007"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def left(short_path: Path) -> Path:
    """Both folders and the recordings of their campaigns, at their places (see the fixture's README.md)."""
    for state in ("server", "agent"):
        shutil.copytree(LEFT / state, short_path / state)
        (short_path / state).chmod(0o700)
    for name in ("light.json", "window.csv", "faster.json"):
        shutil.copy(TESTS / "golden" / "inputs" / name, short_path)
    for path in (short_path / "agent").rglob("*.json"):
        path.write_text(path.read_text().replace("@WORK@", str(short_path)))
    with closing(sqlite3.connect(short_path / "server" / "metadata.sqlite")) as database:
        database.executescript((LEFT / "metadata.sql").read_text().replace("@WORK@", str(short_path)))
    return short_path


@contextmanager
def agent_of(state: Path, address: str) -> Iterator[None]:
    settings = AgentSettings(server=address, state_dir=state, name="box", minimum_free_bytes=0)
    inventory = Inventory("host", "0", 2, 1 << 30, no_device_reason="none here")
    agent = Agent(settings, inventory=lambda: inventory)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join(30)
        assert not thread.is_alive()


def test_both_folders_open_and_the_campaign_in_them_goes_on(left: Path, analysis: StandInExecutor) -> None:
    published = contents(left / "server" / "records")
    assert [path.name for path in (left / "agent/spool").iterdir()] == ["open-1.0001-0-1"]
    settings = ServerSettings(
        state_dir=left / "server", listen=(f"unix:{left}/s",), lease_ms=600, heartbeat_ms=100
    )
    with (
        Server(settings, make_executor=lambda: analysis) as server,
        PlayingAgent(server.addresses[0]) as person,
    ):
        assert b"".join(chunk.data for chunk in person.report("ended-1")) == REPORT
        with agent_of(left / "agent", server.addresses[0]):
            eventually(lambda: person.status("open-1").state == "done", "the end of the campaign")
        runs = {run.run_id: run for run in person.status("open-1").runs}
        assert {run.state for run in runs.values()} == {"done"}
        # What the agent had measured was sent, and not measured again; what nobody held was.
        [sealed] = person.run("open-1.0001").attempts
        assert (sealed.state, sealed.agent) == ("published", "box")
        assert [each.state for each in person.run("open-1.0002").attempts] == ["superseded", "published"]
        assert person.listed().set_aside == ()
    assert list((left / "agent/spool").iterdir()) == []
    after = contents(left / "server" / "records")
    assert after.items() >= published.items() and len(after) == 4
