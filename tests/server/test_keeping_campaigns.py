"""Campaigns leave a server and come to one whole or not at all, and only when a person says so."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from assay_client.cli.main import main
from assay_client.remote.archives import export_to, import_from
from assay_client.remote.connection import Connection
from assay_core.records.runs import RunDetail
from assay_sampling.errors import CampaignError, InputError, ParameterError, StorageError
from assay_server.app import Server, ServerSettings
from assay_server.maintenance.check import check_state
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor, eventually

# Its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("keeping_campaigns")

TWO_RUNS = """\
campaign: two
workloads:
  - {name: one, recordings: [{device: V100, light: 1.sqlite}]}
  - {name: two, recordings: [{device: V100, light: 2.sqlite}]}
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def ended_campaign(agent: PlayingAgent) -> str:
    campaign_id = agent.submit(TWO_RUNS)
    agent.fail(agent.work(wait_ms=5000).key)
    for launches in (10, 20):
        agent.play(made_segments((launches,)))
    eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    return campaign_id


def without_tokens(detail: RunDetail) -> RunDetail:
    attempts = (replace(each, key=replace(each.key, token=0)) for each in detail.attempts)
    return replace(detail, attempts=tuple(attempts))


@pytest.fixture
def agent(server: Server) -> Iterator[PlayingAgent]:
    with PlayingAgent(server.addresses[0]) as playing:
        playing.register()
        yield playing


@pytest.fixture
def person(server: Server) -> Iterator[Connection]:
    with Connection(server.addresses[0]) as connection:
        yield connection


@pytest.fixture
def other(short_path: Path) -> Iterator[Server]:
    with serving(short_path) as server:
        yield server


def test_an_archived_campaign_is_the_same_on_another_server(
    short_path: Path, agent: PlayingAgent, other: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign_id, state = ended_campaign(agent), short_path / "state"
    report = [agent.report(campaign_id, form) for form in ("json", "html")]
    runs = [without_tokens(agent.run(f"{campaign_id}.000{n}")) for n in (0, 1)]
    records = contents(state / "records")
    assert len(records) == 2 and len(runs[0].attempts) == 2
    file = short_path / "two.tar"
    words = [
        "lab",
        "campaigns",
        "archive",
        campaign_id,
        "-o",
        str(file),
        "--server",
        f"unix:{short_path}/server.sock",
    ]
    assert main([*words, "--json"]) == 2 and not file.exists(), "not without --yes"
    assert main([*words, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "campaign_id": campaign_id, "runs": 2, "files": 2, "file": str(file),
        "bytes": sum(map(len, records.values())),
    }  # fmt: skip
    assert agent.listed().campaigns == () and contents(state / "records") == contents(state / "reports") == {}
    with Connection(other.addresses[0]) as connection, PlayingAgent(other.addresses[0]) as there:
        there.register()
        there.submit(TWO_RUNS.replace("two", "before"))
        there.work(wait_ms=5000)
        taken = import_from(connection, file)
        assert (taken.campaign_id, taken.runs, taken.files) == (campaign_id, 2, 2)
        assert [there.report(campaign_id, form) for form in ("json", "html")] == report
        assert [without_tokens(there.run(f"{campaign_id}.000{n}")) for n in (0, 1)] == runs
        assert contents(short_path / "other" / "records") == records
        with pytest.raises(CampaignError, match="has a campaign of that name already"):
            import_from(connection, file)
        assert contents(short_path / "other" / "records") == records
    assert check_state(short_path / "other").findings == () == check_state(state).findings
    # Its number is not given to another campaign, and so it can come back.
    assert agent.submit(TWO_RUNS) == "two-2"


def test_a_campaign_that_has_not_ended_stays(agent: PlayingAgent, person: Connection, tmp_path: Path) -> None:
    campaign_id = agent.submit(TWO_RUNS)
    agent.play(made_segments((10,)))
    with pytest.raises(
        CampaignError, match="it is running, and only a campaign that has ended may be deleted"
    ):
        person.delete(campaign_id, confirmed=True)
    with pytest.raises(CampaignError, match="may be exported"):
        export_to(person, campaign_id, tmp_path / "two.tar")
    assert list(tmp_path.iterdir()) == []
    agent.cancel(campaign_id)
    with pytest.raises(ParameterError, match="gone for good"):
        person.delete(campaign_id, confirmed=False)
    assert [run.state for run in agent.status(campaign_id).runs] == ["done", "cancelled"]
    person.delete(campaign_id, confirmed=True)
    with pytest.raises(CampaignError, match="knows no such campaign"):
        person.status(campaign_id)
    with pytest.raises(CampaignError, match="knows no such campaign"):
        person.delete(campaign_id, confirmed=True)


def test_a_deletion_that_a_crash_cut_short_goes_on(
    agent: PlayingAgent, person: Connection, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.maintenance.archives._RUNS_AT_A_TIME", 1)
    campaign_id, calls = ended_campaign(agent), []

    def torn(self: SqlTransaction, run_ids: list[str]) -> None:
        calls.append(run_ids)
        if len(calls) == 2:
            raise StorageError("metadata", "the disk is gone")
        real(self, run_ids)

    real = SqlTransaction.delete_runs
    monkeypatch.setattr(SqlTransaction, "delete_runs", torn)
    with pytest.raises(StorageError, match="the disk is gone"):
        person.delete(campaign_id, confirmed=True)
    assert [run.run_id for run in agent.status(campaign_id).runs] == ["two-1.0001"]
    assert check_state(short_path / "state").findings == ()
    assert person.delete(campaign_id, confirmed=True).runs == 1
    assert agent.listed().campaigns == () and contents(short_path / "state" / "records") == {}


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Another server, with its state in a folder."""
    analysis = StandInExecutor()
    settings = ServerSettings(state_dir=folder / "other", listen=(f"unix:{folder}/o.sock",))
    with Server(settings, make_executor=lambda: analysis) as started:
        yield started
    analysis.close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a campaign."""
    folder = tmp_path_factory.mktemp("x")
    with serving(folder) as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        with Connection(server.addresses[0]) as person:
            export_to(person, ended_campaign(agent), folder / "two.tar")
    return folder / "two.tar"


@pytest.fixture
def archive(exported: Path, short_path: Path) -> Path:
    shutil.copy(exported, short_path / "two.tar")
    return short_path / "two.tar"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes in none of the archives of these tests."""
    with serving(tmp_path_factory.mktemp("r")) as server:
        yield server


def require_untouched(server: Server) -> None:
    state = server.settings.state_dir
    with PlayingAgent(server.addresses[0]) as there:
        assert there.listed().campaigns == ()
    assert contents(state / "records") == contents(state / "reports") == {}
    eventually(lambda: not list((state / "importing").glob("*")), "the removal of what was received")


def repacked(archive: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """The archive with other files in it."""
    with tarfile.open(archive) as tar:
        files = {member.name: read.read() for member in tar if (read := tar.extractfile(member))}
    change(files)
    with tarfile.open(archive, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


RECORD = "records/two-1.0000/slice-00000.parquet"


def flipped(name: str) -> Callable[[dict[str, bytes]], object]:
    def flip(files: dict[str, bytes]) -> None:
        data = bytearray(files[name])
        data[len(data) // 2] ^= 16
        files[name] = bytes(data)

    return flip


def other_rows(statement: str) -> Callable[[dict[str, bytes]], object]:
    """Rows that somebody changed, under a manifest that fits them."""

    def change(files: dict[str, bytes]) -> None:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(files["metadata.sqlite"])
            connection = sqlite3.connect(file.name)
            connection.execute(statement)
            connection.commit()
            connection.close()
            files["metadata.sqlite"] = Path(file.name).read_bytes()
        manifest = json.loads(files["manifest.json"])
        [kept] = [kept for kept in manifest["files"] if kept["name"] == "metadata.sqlite"]
        kept["hash"] = hashlib.blake2b(files["metadata.sqlite"], digest_size=32).hexdigest()
        kept["bytes"] = len(files["metadata.sqlite"])
        files["manifest.json"] = json.dumps(manifest).encode()

    return change


def newer(files: dict[str, bytes]) -> None:
    files["manifest.json"] = files["manifest.json"].replace(b'"version": 1', b'"version": 2')


DAMAGES: dict[str, Callable[[dict[str, bytes]], object]] = {
    "a flipped bit in a record": flipped(RECORD),
    "a flipped bit in the rows": flipped("metadata.sqlite"),
    "a flipped bit in the report": flipped("reports/two-1/report.json"),
    "a record is missing": lambda files: files.pop(RECORD),
    "a further file": lambda files: files.update({"records/x": b"x"}),
    "a file outside": lambda files: files.update({"../x": b"x"}),
    "no manifest": lambda files: files.pop("manifest.json"),
    "a newer archive": newer,
    "a newer schema": other_rows("UPDATE alembic_version SET version_num = '9999'"),
    "another number of launches": other_rows("UPDATE slices SET launches = launches + 1"),
    "a file of another run": other_rows("UPDATE slices SET file = '../../metadata.sqlite'"),
    "it has not ended": other_rows("UPDATE campaigns SET state = 'running'"),
    "two attempts published it": other_rows("UPDATE attempts SET state = 'failed'"),
    "another campaign": other_rows("UPDATE campaigns SET campaign_id = 'one-1'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_archive_that_is_not_as_it_was_is_refused_whole(
    archive: Path, refusing: Server, damage: str
) -> None:
    repacked(archive, DAMAGES[damage])
    refused = pytest.raises((InputError, StorageError, CampaignError))
    with Connection(refusing.addresses[0]) as connection, refused:
        import_from(connection, archive)
    require_untouched(refusing)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_an_archive_that_is_cut_off_is_refused_whole(archive: Path, refusing: Server, share: float) -> None:
    data = archive.read_bytes()
    archive.write_bytes(data[: int(share * len(data))])
    with Connection(refusing.addresses[0]) as connection, pytest.raises(InputError):
        import_from(connection, archive)
    require_untouched(refusing)


def test_an_import_whose_rows_the_disk_refuses_takes_its_files_back(
    archive: Path, other: Server, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_path / "other" / "records" / "two-1.0000").mkdir()
    (short_path / "other" / RECORD).write_bytes(b"of somebody else")
    with Connection(other.addresses[0]) as connection:
        with pytest.raises(StorageError, match="File exists"):
            import_from(connection, archive)
        assert contents(short_path / "other" / "records") == {
            RECORD.removeprefix("records/"): b"of somebody else"
        }
        shutil.rmtree(short_path / "other" / "records" / "two-1.0000")
        monkeypatch.setattr(SqlTransaction, "add_attempt", _refused)
        with pytest.raises(StorageError, match="no space"):
            import_from(connection, archive)
        assert contents(short_path / "other" / "records") == {}
        monkeypatch.undo()
        assert import_from(connection, archive).files == 2


def _refused(*_arguments: object) -> None:
    raise StorageError("metadata", "no space left on the disk")


def test_beyond_the_limit_no_new_work_is_taken_until_there_is_room(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.upkeep._CAPACITY_SECONDS", 0.05)
    server = make_server(records_limit_bytes=20_000)
    with PlayingAgent(server.addresses[0]) as agent, Connection(server.addresses[0]) as person:
        agent.register()
        first = ended_campaign(agent)
        running = agent.submit(TWO_RUNS)
        assert agent.listed().shortage is None
        while agent.listed().shortage is None:
            work = agent.lease(wait_ms=300).work
            if work is not None:
                agent.upload(work.key, made_segments((5_000,)))
                agent.finish(work.key, 1, 5_000)
        shortage = agent.listed().shortage
        assert shortage is not None and shortage.used_bytes > shortage.limit_bytes == 20_000
        with pytest.raises(
            StorageError, match=r"takes no new work: published records take .* --records-limit"
        ):
            person.submit(TWO_RUNS, "c.yaml", "/data")
        assert agent.lease().work is None
        assert person.delete(first, confirmed=True).files == 2
        if agent.listed().shortage is not None:  # what runs is larger than the limit by itself
            agent.cancel(running)
            eventually(lambda: agent.status(running).state == "cancelled", "the end of the campaign")
            person.delete(running, confirmed=True)
        eventually(lambda: agent.listed().shortage is None, "room")
        assert agent.submit(TWO_RUNS) == "two-3"
        assert agent.lease(wait_ms=5000).work is not None


def test_a_disk_without_its_floor_takes_no_new_work(make_server: Callable[..., Server]) -> None:
    server = make_server(minimum_free_bytes=1 << 60)
    with PlayingAgent(server.addresses[0]) as agent, Connection(server.addresses[0]) as person:
        agent.register()
        with pytest.raises(StorageError, match=r"must stay free \(--minimum-free\)"):
            person.submit(TWO_RUNS, "c.yaml", "/data")
        shortage = agent.listed().shortage
        assert shortage is not None and shortage.minimum_free_bytes == 1 << 60 and shortage.free_bytes > 0


def test_only_old_logs_of_attempts_without_a_result_go_by_themselves(
    agent: PlayingAgent, server: Server, short_path: Path
) -> None:
    campaign_id = ended_campaign(agent)
    agent.submit(TWO_RUNS.replace("two", "open"))
    agent.fail(agent.work(wait_ms=5000).key)
    store = SqliteStore(short_path / "state" / "metadata.sqlite")
    with store.transaction() as transaction:
        for run_id in (f"{campaign_id}.0000", "open-1.0000"):
            for attempt in transaction.attempts(run_id):
                transaction.save_attempt(replace(attempt, log=replace(attempt.log, text="a long log")))
        campaign = transaction.campaign(campaign_id)
        assert campaign is not None
        ended_ms = campaign.ended_at_ms
        assert transaction.forget_logs(ended_ms, 10, "(removed)") == 0, "it has just ended"
        assert transaction.forget_logs(ended_ms + 1, 10, "(removed)") == 1
        assert transaction.forget_logs(ended_ms + 1, 10, "(removed)") == 0
    store.close()
    failed, published = agent.run(f"{campaign_id}.0000").attempts
    assert (failed.state, failed.log.text) == ("failed", "(removed)")
    assert (published.state, published.log.text) == ("published", "a long log")
    assert [each.log.text for each in agent.run("open-1.0000").attempts] == ["a long log"]
