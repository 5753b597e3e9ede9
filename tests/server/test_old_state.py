"""State folders that earlier releases left: they open, nothing in them is lost, and their campaigns go on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from made_segments import made_segments
from playing_agent import PlayingAgent
from server_support import REPORT, eventually

from assay_protos import campaign_pb2
from assay_server.app import Server

FIXTURE = Path(__file__).parent / "fixtures" / "state_of_schema_0004"


@pytest.fixture
def old_state(short_path: Path) -> Path:
    """The folder as a server of schema 0004 left it; synthetic (see its README.md)."""
    state = short_path / "state"
    shutil.copytree(FIXTURE, state, ignore=shutil.ignore_patterns("*.sql", "*.md"))
    connection = sqlite3.connect(state / "metadata.sqlite")
    connection.executescript((FIXTURE / "metadata.sql").read_text())
    connection.close()
    return state


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_state_folder_of_before_leases_had_secrets_opens_and_its_campaign_ends(
    old_state: Path, make_server: Callable[..., Server]
) -> None:
    before = contents(old_state / "records")
    server = make_server()
    assert contents(old_state / "records") == before
    with PlayingAgent(server.addresses[0]) as agent:
        request = campaign_pb2.GetReportRequest(campaign_id="ended-1", format="json")
        assert b"".join(c.data for c in agent.campaigns.GetReport(request)) == REPORT
        states = [(r.state, r.launches) for r in agent.status("half-1").runs]
        assert states == [("done", 30), ("running", 20), ("waiting", 0)]
        # Nobody can prove a lease of before, so its slice is measured again; what was published stays.
        [old] = agent.run("half-1.0001").attempts
        assert [k.run_id for k in agent.heartbeat([old.key]).drop] == ["half-1.0001"]
        agent.session_id = "session-2"
        assert agent.register(sealed=[old.key]).drop == [old.key]
        for launches in (30, 70):
            agent.play(made_segments((launches,), synthetic=True))
        eventually(lambda: agent.status("half-1").state == "done", "the end of the campaign")
        assert [r.launches for r in agent.status("half-1").runs] == [30, 30, 70]
        assert [a.state for a in agent.run("half-1.0001").attempts] == ["failed", "published"]
    assert contents(old_state / "records").items() >= before.items()
