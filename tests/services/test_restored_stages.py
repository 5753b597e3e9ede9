"""Restoring a site by its own tools: pg_dump beside a copy of the folder or bucket, in either order.

What was published before both copies were made is there again; the rest is named by a check, set aside or
measured again. SQLite's own backup, and that of one folder, are in tests/server.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import obstore
import pytest
from obstore.store import S3Store

from assay_core.records.attempt import AttemptKey
from assay_server.app import Server, ServerSettings
from assay_server.database.moving import move_to_postgresql
from assay_server.database.opening import AskedDatabase, open_database
from assay_server.maintenance.backup import make_backup
from assay_server.maintenance.check import check_state
from assay_server.maintenance.restore import restore_backup
from assay_server.places import database_place
from assay_server.store.model import SliceState
from tests.services.needed import needs_seaweedfs
from tests.services.postgresql import OwnPostgresql
from tests.services.seaweedfs import KEY, SECRET, OwnSeaweedfs
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import REPORT, StandInExecutor, eventually

pytestmark = [
    needs_seaweedfs,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("seaweedfs"),
]
RUNS = 5
BEFORE = 2  # runs that are published before the first copy
STAGED = 60_000  # launches of a segment that is staged beside the records, not in the database
MANY = "campaign: many\nworkloads:\n" + "".join(
    f"  - {{name: w{i}, recordings: [{{device: V100, light: {i}.sqlite}}]}}\n" for i in range(RUNS)
)
ONE = "campaign: one\nworkloads: [{name: one, recordings: [{device: V100, light: one.sqlite}]}]\n"
Files = dict[str, bytes]


class Records(Protocol):
    """A place of records that an administrator copies and puts back."""

    options: dict[str, str]

    def files(self) -> Files: ...

    def put_back(self, files: Files) -> None: ...


class InFolder:
    """The state folder itself."""

    def __init__(self, state: Path) -> None:
        self.options: dict[str, str] = {}
        self._state = state

    def files(self) -> Files:
        tops = [self._state / name for name in ("records", "staging", "reports")]
        found = [path for top in tops for path in top.rglob("*") if path.is_file()]
        return {str(path.relative_to(self._state)): path.read_bytes() for path in found}

    def put_back(self, files: Files) -> None:
        for name in ("records", "staging", "reports"):
            shutil.rmtree(self._state / name, ignore_errors=True)
        for name, data in files.items():
            (self._state / name).parent.mkdir(parents=True, exist_ok=True)
            (self._state / name).write_bytes(data)


class InBucket:
    """A prefix of a bucket."""

    def __init__(self, server: OwnSeaweedfs, prefix: str) -> None:
        self.options = {"records": f"s3://lab/{prefix}", "records_endpoint": server.endpoint}
        self._store = S3Store(
            "lab", prefix=prefix, endpoint=server.endpoint, access_key_id=KEY, secret_access_key=SECRET,
            region="us-east-1", client_options={"allow_http": True},
        )  # fmt: skip

    def files(self) -> Files:
        names = [str(each["path"]) for some in obstore.list(self._store) for each in some]
        found = {}
        for name in names:
            with suppress(FileNotFoundError):  # what a server tries for a moment
                found[name] = bytes(obstore.get(self._store, name).bytes())
        return found

    def put_back(self, files: Files) -> None:
        obstore.delete(self._store, list(self.files()))
        for name, data in files.items():
            obstore.put(self._store, name, data)


@dataclass
class Site:
    """A server on PostgreSQL, its state folder, its database and its records."""

    folder: Path
    postgresql: OwnPostgresql
    records: Records
    analysis: StandInExecutor

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def served(self) -> Server:
        settings = ServerSettings(
            state_dir=self.state, listen=(f"unix:{self.folder}/s",), lease_ms=60_000, retry_delay_ms=1,
            database=self.postgresql.url("fresh"), **self.records.options,
        )  # fmt: skip
        return Server(settings, make_executor=lambda: self.analysis)

    def dump(self) -> None:
        self.postgresql.dump("fresh", self.folder / "dump")

    def restore(self, files: Files) -> None:
        self.postgresql.restore("fresh", self.folder / "dump")
        self.records.put_back(files)
        shutil.rmtree(self.state / "records-cache", ignore_errors=True)

    def check(self) -> set[tuple[str, str]]:
        return {(str(each.kind), each.subject) for each in check_state(self.state).findings}


@pytest.fixture
def analysis() -> Iterator[StandInExecutor]:
    with closing(StandInExecutor()) as executor:
        yield executor


@pytest.fixture(params=["folder", "bucket"])
def site(
    request: pytest.FixtureRequest,
    own_postgresql: OwnPostgresql,
    fresh_database: str,
    monkeypatch: pytest.MonkeyPatch,
    analysis: StandInExecutor,
) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="assay-") as made:
        folder = Path(made)
        if request.param == "folder":
            yield Site(folder, own_postgresql, InFolder(folder / "state"), analysis)
            return
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        with OwnSeaweedfs() as server:
            server.make_bucket("lab")
            yield Site(folder, own_postgresql, InBucket(server, "site"), analysis)


def published(files: Files) -> Files:
    return {name: data for name, data in files.items() if name.startswith("records/")}


def play(agent: PlayingAgent, numbers: range) -> None:
    for number in numbers:
        agent.play(made_segments((10 + number,)))


def done(agent: PlayingAgent, campaign_id: str) -> None:
    eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")


def half_sent(agent: PlayingAgent) -> Callable[[], AttemptKey]:
    """An attempt of which the server has acknowledged a segment; the call ends it."""
    work, segments = agent.work(wait_ms=5000), made_segments((STAGED, 3))
    agent.upload(work.key, segments[:1])

    def end() -> AttemptKey:
        agent.upload(work.key, segments[1:])
        assert agent.finish(work.key, 2, STAGED + 3).published
        return work.key

    return end


def test_a_database_older_than_its_records_loses_nothing_that_was_published_before(site: Site) -> None:
    """The safe order: first the database, then the records."""
    with site.served() as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        ended = agent.submit(ONE)
        agent.play(made_segments((7,)))
        done(agent, ended)
        campaign_id = agent.submit(MANY)
        play(agent, range(BEFORE))
        before = published(site.records.files())
        end = half_sent(agent)
        site.dump()
        attempt = end()
        play(agent, range(BEFORE + 1, RUNS))
        done(agent, campaign_id)
        copied = site.records.files()
    newest = published(copied)
    assert len(before) == 1 + BEFORE and len(newest) == 1 + RUNS
    site.restore(copied)
    later = {("unknown", name) for name in newest if name not in before}
    assert site.check() == {*later, ("segment", str(attempt))}, "what came after the dump, and nothing else"
    with site.served() as server:
        assert published(site.records.files()) == before
        with PlayingAgent(server.addresses[0], session_id="session-2") as agent:
            agent.register()
            assert b"".join(chunk.data for chunk in agent.report(ended)) == REPORT
            aside = agent.listed().set_aside
            assert sum(each.files for each in aside) == len(later)
            status = agent.status(campaign_id)
            assert sum(run.slices_done for run in status.runs) == BEFORE
            agent.play(made_segments((STAGED, 3)))
            play(agent, range(BEFORE + 1, RUNS))
            done(agent, campaign_id)
        assert site.check() == set()
    assert set(published(site.records.files()).values()) == set(newest.values())


def test_a_database_newer_than_its_records_names_what_they_lack_and_measures_it_again(site: Site) -> None:
    """The order that loses: first the records, then the database."""
    with site.served() as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(MANY)
        play(agent, range(BEFORE))
        copied = site.records.files()
        play(agent, range(BEFORE, RUNS))
        done(agent, campaign_id)
        newest = published(site.records.files())
        again = agent.submit(MANY)
        play(agent, range(BEFORE))
        both = site.records.files()
        site.dump()
    of_ended = {("missing", name) for name in newest if name not in copied}
    of_open = {("missing", name) for name in published(both) if name not in newest}
    assert len(of_ended) == RUNS - BEFORE and len(of_open) == BEFORE
    site.restore(copied)
    found = site.check()
    assert {*of_ended, *of_open} == {each for each in found if each[0] == "missing"}
    [report] = [subject for kind, subject in found if kind == "report"]
    assert campaign_id in report
    with site.served() as server, PlayingAgent(server.addresses[0], session_id="session-2") as agent:
        agent.register()
        play(agent, range(RUNS))  # the open campaign, from its first run on
        done(agent, again)
        assert {each for each in site.check() if each[0] == "missing"} == of_ended, "said until it is mended"
    site.records.put_back({**site.records.files(), **newest})
    assert not [each for each in site.check() if each[0] == "missing"]


def test_the_verbs_backup_is_one_moment_and_moves_up_to_an_empty_database(site: Site) -> None:
    kept, again = site.folder / "kept", site.folder / "again"
    with site.served() as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(MANY)
        play(agent, range(BEFORE))
        before = published(site.records.files())
        end = half_sent(agent)
        assert make_backup(site.state, kept).manifest.faults == ()
        end()
        play(agent, range(BEFORE + 1, RUNS))
        done(agent, campaign_id)
    restore_backup(kept, again)
    site.postgresql.administrate("DROP DATABASE IF EXISTS again WITH (FORCE)", "CREATE DATABASE again")
    database = AskedDatabase(database_place(site.postgresql.url("again")))
    move_to_postgresql(again, database, lambda table, rows: None)
    assert check_state(again).findings == ()
    assert sorted(published(InFolder(again).files()).values()) == sorted(before.values())
    with closing(open_database(again)) as store, store.snapshot() as read:
        states = [piece.state for run in read.runs(campaign_id) for piece in read.slices(run.run_id)]
    assert states.count(SliceState.DONE) == BEFORE
