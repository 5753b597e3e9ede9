"""State folders from before a lab had identities: both programs open them, and the campaign goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.campaign import AgentSpool
from assay_server.app import Server, ServerSettings
from tests.support.server.left_states import agent_of, leave_states
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import REPORT, StandInExecutor, eventually


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def left(short_path: Path) -> Path:
    leave_states(short_path)
    return short_path


@pytest.fixture
def person(left: Path, analysis: StandInExecutor) -> Iterator[PlayingAgent]:
    settings = ServerSettings(
        state_dir=left / "server", listen=(f"unix:{left}/s",), lease_ms=600, heartbeat_ms=100
    )
    with (
        Server(settings, make_executor=lambda: analysis) as server,
        PlayingAgent(server.addresses[0]) as asking,
    ):
        yield asking


def test_both_folders_open_and_the_campaign_in_them_goes_on(left: Path, person: PlayingAgent) -> None:
    published = contents(left / "server" / "records")
    assert [path.name for path in (left / "agent/spool").iterdir()] == ["open-1.0001-0-1"]
    assert b"".join(chunk.data for chunk in person.report("ended-1")) == REPORT
    with agent_of(left / "agent", f"unix:{left}/s"):
        eventually(lambda: person.status("open-1").state == "done", "the end of the campaign")
    assert {run.state for run in person.status("open-1").runs} == {"done"}
    # What the agent had measured was sent, and not measured again; what nobody held was.
    [sealed] = person.run("open-1.0001").attempts
    assert (sealed.state, sealed.agent) == ("published", "box")
    assert [each.state for each in person.run("open-1.0002").attempts] == ["superseded", "published"]
    assert person.listed().set_aside == () and person.listed().spools == ()
    assert list((left / "agent/spool").iterdir()) == []
    after = contents(left / "server" / "records")
    assert after.items() >= published.items() and len(after) == 4


@pytest.mark.parametrize("damage", ["a flipped bit", "cut off", "a torn seal"])
def test_a_damaged_segment_is_quarantined_and_only_its_range_is_measured_again(
    left: Path, person: PlayingAgent, damage: str
) -> None:
    published = contents(left / "server" / "records")
    [segment] = (left / "agent/spool").rglob("*.seg")
    victim = segment.with_name("seal.json") if damage == "a torn seal" else segment
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1 << 3 if damage == "a flipped bit" else 0
    victim.write_bytes(data if damage == "a flipped bit" else data[: len(data) // 2])
    found = victim.read_bytes()
    with agent_of(left / "agent", f"unix:{left}/s"):
        eventually(lambda: person.run("open-1.0001").attempts[0].failure is not None, "the failure")
        told = eventually_spools(person)
        # Its box rests after a fault of the box, so another one measures the range again.
        with agent_of(left / "second", f"unix:{left}/s"):
            eventually(lambda: person.status("open-1").state == "done", "the end of the campaign")
    first, second = person.run("open-1.0001").attempts
    assert first.failure is not None and first.failure.failure_class == "spool_damaged"
    assert (first.state, second.state, second.launches > 0) == ("failed", "published", True)
    [kept] = (left / "agent/spool-damaged").iterdir()
    reason = json.loads((kept / "reason.json").read_bytes())
    assert (reason["run_id"], reason["slice"], reason["file"]) == ("open-1.0001", 0, victim.name)
    assert reason["cause"] in first.failure.cause and (kept / victim.name).read_bytes() == found
    assert (told.agent, told.damaged, told.waits) == ("box", 1, False)
    # Nothing else was measured again.
    assert contents(left / "server" / "records").items() >= published.items()
    assert [each.state for each in person.run("open-1.0000").attempts] == ["published"]


def eventually_spools(person: PlayingAgent) -> AgentSpool:
    eventually(lambda: bool(person.listed().spools), "the agent's word")
    [told] = person.listed().spools
    return told
