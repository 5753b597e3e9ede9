"""A place of records without a state's mark is refused once the database names files there.

A wrong name of a bucket, of its prefix, or a disk that is not mounted looks like an empty place, in which all
published files would be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from assay_sampling.errors import StorageError
from assay_server.app import Server, ServerSettings
from assay_server.database.opening import open_database
from assay_server.database.state_notes import noted_records
from assay_server.places import RecordsPlace, records_place
from assay_server.records.opening import names_records, open_records
from tests.support.server.buckets import TinyS3
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor

ONE = "campaign: one\nworkloads: [{name: one, recordings: [{device: V100, light: one.sqlite}]}]\n"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with TinyS3() as server:
        server.objects["/lab/one/state.json"] = b'{"version": 1, "state": 5}'
        yield server


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def opened(state: Path, asked: RecordsPlace, *, has_files: bool) -> None:
    with ExitStack() as resources:
        open_records(state, asked, lambda: 5, resources, has_files=lambda: has_files)


@pytest.mark.parametrize("url", ["s3://lba/one", "s3://lab/oen"])
def test_a_wrong_bucket_or_prefix_is_refused_before_anything_is_written_there(
    tiny: TinyS3, state: Path, url: str
) -> None:
    right = records_place("s3://lab/one", tiny.endpoint)
    opened(state, right, has_files=True)
    (state / "records.json").unlink()  # as in a folder that was put together by hand
    before = dict(tiny.objects)
    with pytest.raises(StorageError, match=r"has no state\.json") as told:
        opened(state, records_place(url, tiny.endpoint), has_files=True)
    assert told.value.subject == f"{url} at {tiny.endpoint}"
    assert "name the right bucket and prefix with --records" in told.value.remedy
    assert tiny.objects == before and noted_records(state) is None
    opened(state, right, has_files=True)


def test_a_bucket_at_another_endpoint_than_before_is_refused(tiny: TinyS3, state: Path) -> None:
    right = records_place("s3://lab/one", tiny.endpoint)
    opened(state, right, has_files=True)
    with TinyS3() as other, pytest.raises(StorageError, match=r"has no state\.json"):
        opened(state, records_place("s3://lab/one", other.endpoint), has_files=True)
    assert other.objects == {}
    opened(state, records_place(""), has_files=True)  # by the note, which still names the right one


def test_whose_records_are_lost_goes_on_with_the_mark_that_the_message_gives(
    tiny: TinyS3, state: Path
) -> None:
    asked = records_place("s3://lab/one", tiny.endpoint)
    opened(state, asked, has_files=True)
    tiny.objects.clear()
    with pytest.raises(StorageError, match="measures again what campaigns under way") as told:
        opened(state, asked, has_files=True)
    content = told.value.remedy.partition("with the content ")[2].partition(": the server then")[0]
    assert json.loads(content) == {"version": 1, "state": 5}
    tiny.objects["/lab/one/state.json"] = content.encode()
    opened(state, asked, has_files=True)


def test_a_shared_folder_whose_disk_is_not_mounted_is_refused_and_nothing_is_measured_again(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    with closing(StandInExecutor()) as executor:

        def served() -> Server:
            settings = ServerSettings(
                state_dir=tmp_path / "state", listen=(f"unix:{tmp_path}/s",), records=str(shared)
            )
            return Server(settings, make_executor=lambda: executor)

        with served() as server, PlayingAgent(server.addresses[0]) as agent:
            agent.register()
            campaign_id = agent.submit(ONE)
            agent.play(made_segments((7,)))
        shared.rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError, match="has no state-number") as told, served():
            pass
        assert told.value.subject == str(shared) and "see that its disk is mounted" in told.value.remedy
        assert not shared.exists()
        (tmp_path / "elsewhere").rename(shared)
        with served() as server, PlayingAgent(server.addresses[0]) as agent:
            run = agent.status(campaign_id).runs[0]
            assert (run.state, run.attempts) == ("done", 1)


def test_staged_segments_are_files_of_the_records(tmp_path: Path) -> None:
    found = []
    settings = ServerSettings(state_dir=tmp_path / "state", listen=(f"unix:{tmp_path}/s",))
    with Server(settings) as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(ONE)
        key = agent.work(wait_ms=5000).key
        with closing(open_database(tmp_path / "state")) as database:
            found.append(names_records(database))
            agent.upload(key, made_segments((7,)))
            found.append(names_records(database))
    assert found == [False, True]
