"""State folders that earlier releases left: they open, nothing in them is lost, and their campaigns go on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_client.remote.client import Client
from assay_core.records.campaign import CampaignState
from assay_server.app import Server
from assay_server.campaign_file.compiled import CompileFault, RepeatRule, Slicing
from assay_server.keeping.check import check_state
from assay_server.store.model import Campaign
from assay_server.store.sqlite import SqliteStore
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import REPORT, eventually

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def old_state(short_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder as a server of the schema named by the test left it; synthetic (see its README.md)."""
    state, fixture = short_path / "state", FIXTURES / f"state_of_schema_{request.param}"
    shutil.copytree(fixture, state, ignore=shutil.ignore_patterns("*.sql", "*.md"))
    connection = sqlite3.connect(state / "metadata.sqlite")
    connection.executescript((fixture / "metadata.sql").read_text())
    connection.close()
    return state


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("old_state", ["0004"], indirect=True)
def test_a_state_folder_of_before_leases_had_secrets_opens_and_its_campaign_ends(
    old_state: Path, make_server: Callable[..., Server]
) -> None:
    before = contents(old_state / "records")
    server = make_server()
    assert contents(old_state / "records") == before
    with PlayingAgent(server.addresses[0]) as agent:
        assert b"".join(c.data for c in agent.report("ended-1")) == REPORT
        states = [(r.state, r.launches) for r in agent.status("half-1").runs]
        assert states == [("done", 30), ("running", 20), ("waiting", 0)]
        # Nobody can prove the lease of an older server: its slice is measured again; published ones stay.
        [old] = agent.run("half-1.0001").attempts
        assert [k.run_id for k in agent.heartbeat([old.key]).drop] == ["half-1.0001"]
        agent.session_id = "session-2"
        assert agent.register(sealed=[old.key]).drop == (old.key,)
        for launches in (30, 70):
            agent.play(made_segments((launches,), synthetic=True))
        eventually(lambda: agent.status("half-1").state == "done", "the end of the campaign")
        assert [r.launches for r in agent.status("half-1").runs] == [30, 30, 70]
        assert [a.state for a in agent.run("half-1.0001").attempts] == ["failed", "published"]
    assert contents(old_state / "records").items() >= before.items()


def stored(state: Path) -> dict[str, Campaign]:
    store = SqliteStore(state / "metadata.sqlite")
    with store.snapshot() as read:
        found = [read.campaign(each.campaign_id) for each in read.campaigns()]
    store.close()
    return {campaign.campaign_id: campaign for campaign in found if campaign is not None}


@pytest.mark.parametrize("old_state", ["0005"], indirect=True)
def test_campaigns_that_were_stored_as_text_are_compiled_once(
    old_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaigns = stored(old_state)
    recorded, light, open_ = (campaigns[name].compiled for name in ("recorded-1", "light-1", "open-1"))
    assert (recorded.slicing, recorded.repeat, recorded.fault) == (Slicing(1000), None, None)
    # The settings of the analysis are those that were stored, whatever this release would make of the file.
    assert (recorded.analysis.seed, recorded.analysis.reference, recorded.analysis.memory_limit_bytes) == (
        7, None, 8 << 30,
    )  # fmt: skip
    assert recorded.analysis.methods == (("systematic", {}), ("random", {"launches": 100}))
    assert (light.slicing, light.repeat) == (None, None)
    assert light.analysis.methods == (("random", {}),)
    assert (open_.slicing, open_.repeat) == (Slicing(0, 0, 600.0), RepeatRule(2.5, 12))
    monkeypatch.setattr("assay_server.campaign_file.compiling.load_campaign", None)
    assert stored(old_state) == campaigns


@pytest.mark.parametrize("old_state", ["0005"], indirect=True)
def test_a_campaign_whose_text_no_longer_compiles_is_kept_and_fails_with_the_reason(
    old_state: Path, make_server: Callable[..., Server]
) -> None:
    before = stored(old_state)
    fault = before["broken-1"].compiled.fault
    assert isinstance(fault, CompileFault)
    assert fault.subject == "c.yaml:8"
    assert fault.cause.startswith(
        "this release cannot read its file, which an earlier release accepted: "
        "field analysis.methods[0]: there is no method 'kernels'; there are "
    )
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        status = agent.status("broken-1")
        assert (status.state, status.failure.failure_class, status.failure.cause) == (
            "failed", "input_unreadable", fault.cause,
        )  # fmt: skip
        assert [run.state for run in status.runs] == ["cancelled", "cancelled"]
        # Those that had ended stay as they were, and all others go on.
        assert (agent.status("stopped-1").state, agent.status("stopped-1").failure) == ("cancelled", None)
        assert {agent.status(name).state for name in ("recorded-1", "open-1", "light-1")} == {"running"}
        assert agent.lease("recorded-0", wait_ms=5000).work.key.run_id == "recorded-1.0000"
    server.stop()
    assert stored(old_state)["broken-1"].text == before["broken-1"].text
    assert stored(old_state)["stopped-1"].state is CampaignState.CANCELLED


# As the server of schema 0013 gave it out with the lease, and the agent keeps it in its spool.
SECRET_OF_0013 = bytes.fromhex("46603ca9e41275f0c1687a2934ed4bb0a83a21148d3e678a1e8a9b1ce8f5f3e3")


@pytest.mark.parametrize("old_state", ["0013"], indirect=True)
def test_a_campaign_of_before_gangs_and_budgets_goes_on_where_it_was(
    old_state: Path, make_server: Callable[..., Server]
) -> None:
    before = contents(old_state / "records")
    server = make_server()
    assert check_state(old_state).findings == ()
    with PlayingAgent(server.addresses[0]) as agent, Client(server.addresses[0]) as client:
        [leased] = agent.run("two-1.0001").attempts
        agent.know(leased.key, SECRET_OF_0013)
        assert agent.register(sealed=[leased.key]).drop == ()
        agent.upload(leased.key, made_segments((40, 30))[1:])
        assert agent.finish(leased.key, 2, 70).published
        eventually(lambda: agent.status("two-1").state == "done", "the end of the campaign")
        assert [run.launches for run in agent.status("two-1").runs] == [20, 70]
        [vera] = client.budgets()["people"]
        assert (vera["name"], vera["project"], vera["own_gpu_hours"]) == ("vera", "vision", None)
        assert client.set_budget("vera", 1.5)["gpu_hours"] == 1.5
    assert contents(old_state / "records").items() >= before.items()
