"""What earlier releases kept and sent is opened by this one; what this one keeps is opened too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pool import Default
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from assay_agent.daemon.state import kept_agent_id
from assay_agent.spool.spool import Spool
from assay_client.local_service import LocalService
from assay_client.remote.client import Client
from assay_server.campaigns.scheduling import leases
from tests.release.fixtures import (
    ARCHIVE,
    FIXTURES,
    GPU,
    SPOOLED_LAUNCHES,
    make_fixture,
    printed,
    typed,
    unpacked,
)
from tests.support.agent.fake_server import joined
from tests.support.wire_records import RECORDS

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("fixtures")]

HERE = "this checkout"
KEPT = [HERE, *sorted(path.name for path in FIXTURES.glob("*/"))]


@pytest.fixture(scope="module", params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a fixture: of an earlier release, or made by this one now."""
    fixture = FIXTURES / request.param
    if request.param == HERE:
        fixture = tmp_path_factory.mktemp("made") / "fixture"
        make_fixture(fixture, HERE)
        size = sum(path.stat().st_size for path in fixture.iterdir())
        assert size < 200_000, f"{ARCHIVE} is committed with every release: keep it small"
    return unpacked(fixture, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def inside(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(kept)
    return kept


def lost(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The keys of a document that another one lacks; of lists, those of the first items."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key not in new:
                yield f"{path}.{key}"
            else:
                yield from lost(value, new[key], f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for first, second in list(zip(old, new, strict=False))[:1]:
            yield from lost(first, second, f"{path}[]")


def test_a_lost_key_is_noticed() -> None:
    assert list(lost({"a": [{"b": 1, "c": None}], "d": 2}, {"a": [{"b": 3}], "e": 4})) == [".a[].c", ".d"]


def printed_then(kind: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "printed.json").read_text())[kind]
    assert found
    return found


def lost_keys(then: dict[str, Any], out: Path, *options: str) -> dict[str, list[str]]:
    """Type the command lines of that release; the keys that are no longer printed, by the name of each."""
    now = printed({name: each["command"] for name, each in then.items()}, out, *options)
    found = {name: list(lost(then[name]["document"], each["document"])) for name, each in now}
    return {name: keys for name, keys in found.items() if keys}


def test_its_files_are_read_and_its_documents_keep_their_keys(inside: Path, tmp_path: Path) -> None:
    assert lost_keys(printed_then("files", inside), tmp_path) == {}
    was = json.loads((inside / "selection.json").read_text())
    now = json.loads((tmp_path / "selection.json").read_text())
    assert [group["representatives"] for group in now["groups"]] == [
        group["representatives"] for group in was["groups"]
    ]
    assert (tmp_path / "weights.txt").read_text() == (inside / "weights.txt").read_text()
    assert set(pq.read_schema(inside / "report.parquet").names) >= {"workload", "device"}


def test_a_server_opens_its_state_and_goes_on(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An agent that was seen elsewhere a moment ago is a copy; between releases pass more than moments.
    monkeypatch.setattr(leases, "SEEN_EVERY_MS", -(1 << 40))
    state = inside / "state"
    agent_id = kept_agent_id(state / "agent")
    report = (state / "server" / "reports" / "kept-1" / "report.json").read_bytes()
    with LocalService(state, [GPU], begins=False) as service, Client(service.address) as client:
        server = ("--server", service.address)
        assert lost_keys(printed_then("server", inside), tmp_path, *server) == {}
        assert client.report_bytes("kept-1", "json") == report
        assert "tiny" in typed(["report", "kept-1", *server])
        assert client.summary("waiting-1")["state"] == "running"
        client.cancel("waiting-1")  # its workload is not where it was
        again = client.submit(Path("waiting.yaml"))
        service.begin()
        service.serve(again)
        service.refuse_what_cannot_begin(client)  # waits for the agent, which was last seen long ago
        statuses = service.while_it_can_go_on(client, client.watch(again))
        measured = next(each for each in statuses if each["runs_done"] or each["runs_failed"])
        service.raise_agent_error()
        assert (again, measured["runs_done"]) == ("waiting-2", 1)
    assert kept_agent_id(state / "agent") == agent_id is not None


def test_an_agent_takes_over_its_spool(kept: Path) -> None:
    spool = Spool(kept / "spool", minimum_free_bytes=0)
    recovery = spool.recover()
    (attempt,) = recovery.sealed
    seal = attempt.seal_record
    assert recovery.discarded == () and seal is not None
    assert (seal.launches, seal.flags[0].name) == (SPOOLED_LAUNCHES, "counters_nan")
    segments = [attempt.read(number) for number in seal.remaining]
    launches = joined([(bytes(each.names), bytes(each.launches)) for each in segments])
    assert launches.column("launch").to_pylist() == list(range(SPOOLED_LAUNCHES))
    spool.close()


def test_its_messages_are_read_whole(kept: Path) -> None:
    records = {record.to_proto().DESCRIPTOR.full_name: type(record) for record in RECORDS}
    messages = json.loads((kept / "wire.json").read_text())
    assert len(messages) > 90
    for each in messages:
        name, data = each["message"], bytes.fromhex(each["bytes"])
        message = GetMessageClass(Default().FindMessageTypeByName(name)).FromString(data)
        fields = MessageToDict(message)
        message.DiscardUnknownFields()  # type: ignore[attr-defined]
        assert type(message).FromString(data) == message, f"{name} has lost a field"
        if name in records:
            assert list(lost(fields, MessageToDict(records[name].from_proto(message).to_proto()))) == [], name
