"""Records in a real S3 server: killed and started again, answering 503, moved there and back by hash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from assay_sampling.errors import StorageError
from assay_server.places import RecordsPlace, records_place
from assay_server.records.opening import open_records
from assay_server.store.objects.bucket import Bucket, opened_bucket, probe_bucket
from tests.chaos.site.gate import Gate, Mood
from tests.services.needed import needs_seaweedfs
from tests.services.seaweedfs import KEY, SECRET, OwnSeaweedfs
from tests.support.integration.harness import BIN, Lab, lab, wait_until

pytestmark = [
    needs_seaweedfs,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("seaweedfs"),
]

T = TypeVar("T")
WORKLOAD = """\
workload = "long"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[kernels.sum]
name = "void sum<float>(float const*, float*)"
block = 256
instructions = 900
global_loads = 8
[[phases]]
repeat = 120
steps = [{ kernel = "scale", grid = 64, times = 3 }, { kernel = "sum", grid = 320, times = 2 }]
"""
CAMPAIGN = """\
campaign: long
synthetic: true
gpus: [V100]
detailed: {first: 600, slice_launches: 200, sets: features}
workloads: [{name: long, command: [long.toml]}]
analysis: {methods: [random: {launches: 4}, pks]}
"""
AGENT = ("--recorded-slots=0", "--virtual=V100", "--agent-id", "0f" * 16)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnSeaweedfs]:
    before = {name: os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    with OwnSeaweedfs() as own:
        own.make_bucket("lab")
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        yield own
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def bucket_of(server: OwnSeaweedfs, prefix: str, folder: Path) -> Bucket:
    return opened_bucket(RecordsPlace(f"s3://lab/{prefix}", server.endpoint, cache=folder))


def test_what_was_stored_is_there_after_a_kill_and_many_writers_have_one_winner(
    server: OwnSeaweedfs, tmp_path: Path
) -> None:
    bucket = bucket_of(server, "killed", tmp_path)
    probe_bucket(bucket)
    won: list[bytes] = []

    def write(number: int) -> None:
        data = b"%d" % number * 1000
        try:
            bucket.put_new("race", data)
        except StorageError:
            return
        won.append(data)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert won == [bucket.get("race")]
    large = tmp_path / "large"
    large.write_bytes(os.urandom(20 << 20))
    bucket.put_all_new([(f"many/{number}", b"%d" % number) for number in range(50)])
    bucket.put_file("large", large)
    server.kill()
    threading.Timer(1.0, server.start).start()  # the request waits, and is answered
    assert bucket.get("large") == large.read_bytes()
    assert sorted(bucket.get(each.name) for each in bucket.listed("many")) == sorted(
        b"%d" % number for number in range(50)
    )
    bucket.remove([each.name for each in bucket.listed("many")])
    assert list(bucket.listed("many")) == []


@pytest.fixture
def way(server: OwnSeaweedfs) -> Iterator[Gate]:
    """A gate on the way to the server, which disturbs nothing yet."""
    made = Gate(int(server.endpoint.rpartition(":")[2]))
    yield made
    made.close()


@pytest.mark.parametrize("mood", [Mood.HALF, Mood.CUT, Mood.BUSY])
def test_each_request_is_done_though_answers_are_halved_cut_or_503(
    mood: Mood, way: Gate, tmp_path: Path
) -> None:
    bucket = opened_bucket(
        RecordsPlace(f"s3://lab/each-{mood}", f"http://127.0.0.1:{way.port}", cache=tmp_path)
    )
    names, data = [f"some/{number}" for number in range(3)], os.urandom(200_000)

    def disturbed(request: Callable[[], T]) -> T:
        way.follow([mood, mood, *[Mood.OPEN] * 50])
        way.met.clear()
        answer = request()
        assert way.met[mood] == 2
        return answer

    for name in names:
        disturbed(lambda name=name: bucket.put_new(name, data))
    disturbed(lambda: bucket.replace("other", b"small"))
    assert disturbed(lambda: bucket.get("other")) == b"small"
    assert disturbed(lambda: bucket.get(names[0])) == data
    with (tmp_path / "copy").open("wb") as file:
        disturbed(lambda: bucket.download(names[1], file))
    assert (tmp_path / "copy").read_bytes() == data
    assert [each.name for each in disturbed(lambda: list(bucket.listed("some")))] == names
    assert disturbed(lambda: bucket.look_at("absent")) is None
    disturbed(lambda: bucket.copy("other", "another", 5))
    disturbed(lambda: bucket.remove(names))
    assert sorted(each.name for each in bucket.listed("")) == ["another", "other"]


def submit(laboratory: Lab) -> str:
    (laboratory.root / "long.toml").write_text(WORKLOAD)
    (laboratory.root / "long.yaml").write_text(CAMPAIGN)
    return laboratory.submit(laboratory.root / "long.yaml")


def report_of(laboratory: Lab, campaign_id: str) -> str:
    return laboratory.assay("report", campaign_id, "--format", "json").stdout


def server_verb(
    laboratory: Lab, *arguments: str, state: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [
        str(BIN / "assay-server"),
        *arguments,
        "--state",
        str(state or laboratory.server_state),
        "--json",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def published(laboratory: Lab, campaign_id: str, folder: Path) -> list[bytes]:
    """The bytes of all published files, fetched as a person does."""
    laboratory.assay("lab", "fetch", campaign_id, "-o", str(folder))
    return sorted(path.read_bytes() for path in folder.rglob("*.parquet"))


@dataclass(frozen=True)
class Ended:
    """The campaign's number, its report, and the bytes of its published files."""

    campaign_id: str
    report: str
    files: list[bytes]


@pytest.fixture(scope="module")
def in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The same campaign with its records in the server's folder."""
    with lab(lease_ms=60_000, heartbeat_ms=500) as local:
        local.start_server()
        local.start_agent("agent", *AGENT)
        campaign_id = submit(local)
        assert local.wait_for(campaign_id, 200) == "done", local.logs()
        files = published(local, campaign_id, tmp_path_factory.mktemp("local"))
        return Ended(campaign_id, report_of(local, campaign_id), files)


def test_a_campaign_goes_on_through_503_and_slow_halved_and_cut_answers_of_its_bucket(
    way: Gate, in_a_folder: Ended, tmp_path: Path
) -> None:
    options = ("--records", "s3://lab/bad-way", "--records-endpoint", f"http://127.0.0.1:{way.port}")
    with lab(lease_ms=60_000, heartbeat_ms=500) as laboratory:
        # Most requests are disturbed, and those that are sent again meet another mood.
        way.follow([Mood.OPEN, Mood.BUSY, Mood.HALF, Mood.OPEN, Mood.SLOW, Mood.CUT, Mood.BUSY])
        laboratory.start_server(*options, "--records-cache-limit", "20kB")
        laboratory.start_agent("agent", *AGENT)
        campaign_id = submit(laboratory)
        assert laboratory.wait_for(campaign_id, 400) == "done", laboratory.logs()
        found = Ended(
            campaign_id,
            report_of(laboratory, campaign_id),
            published(laboratory, campaign_id, tmp_path / "bucket"),
        )
        assert laboratory.stop("server") == 0, laboratory.logs()
    assert found == in_a_folder
    assert all(way.met[mood] for mood in Mood), way.met


def test_a_campaign_in_a_bucket_ends_as_one_in_a_folder_and_moves_back(
    server: OwnSeaweedfs, in_a_folder: Ended, tmp_path: Path
) -> None:
    campaign_id, wanted, files = in_a_folder.campaign_id, in_a_folder.report, in_a_folder.files
    with lab(lease_ms=60_000, heartbeat_ms=500) as laboratory:
        options = ("--records", "s3://lab/campaign", "--records-endpoint", server.endpoint)
        laboratory.start_server(*options, "--records-cache-limit", "20kB")
        laboratory.start_agent("agent", *AGENT)
        assert submit(laboratory) == campaign_id
        wait_until(lambda: _slices(laboratory, campaign_id) > 0, "the first published slice", 120)
        server.kill()  # in the middle; agents keep what they measure
        server.start()
        assert laboratory.wait_for(campaign_id, 300) == "done", laboratory.logs()
        assert report_of(laboratory, campaign_id) == wanted
        assert published(laboratory, campaign_id, tmp_path / "bucket") == files
        assert not any((laboratory.server_state / "records").glob("*"))
        checked = server_verb(laboratory, "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        backup = tmp_path / "backup"
        made = server_verb(laboratory, "backup", str(backup))
        assert made.returncode == 0, made.stderr
        restored = server_verb(laboratory, "restore", str(backup), state=tmp_path / "restored")
        assert restored.returncode == 0, restored.stderr
        assert (
            sorted(path.read_bytes() for path in (tmp_path / "restored/records").rglob("*.parquet")) == files
        )
        assert laboratory.stop("server") == 0
        _damage_is_found(server, laboratory)
        _moves_to_the_folder_and_back(server, laboratory, campaign_id, wanted, tmp_path)


def _slices(laboratory: Lab, campaign_id: str) -> int:
    status = json.loads(laboratory.assay("lab", "status", campaign_id, "--json").stdout)
    return sum(int(run.get("slices_done") or 0) for run in status["runs"])


def _damage_is_found(server: OwnSeaweedfs, laboratory: Lab) -> None:
    bucket = bucket_of(server, "campaign", laboratory.root)
    first, second, *_ = [each.name for each in bucket.listed("records")]
    kept = {name: bucket.get(name) for name in (first, second)}
    bucket.replace(first, b"altered")
    bucket.remove([second])
    found = json.loads(server_verb(laboratory, "check").stdout)["findings"]
    assert {(each["kind"], each["subject"]) for each in found} == {("changed", first), ("missing", second)}
    for name, data in kept.items():
        bucket.replace(name, data)


def _moves_to_the_folder_and_back(
    server: OwnSeaweedfs, laboratory: Lab, campaign_id: str, wanted: str, folder: Path
) -> None:
    moved = server_verb(laboratory, "move", "--records-to", "folder")
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert json.loads(moved.stdout)["files"] > 0
    laboratory.start_server()
    assert report_of(laboratory, campaign_id) == wanted
    assert laboratory.stop("server") == 0
    place = ("--records-to", "s3://lab/again", "--records-endpoint", server.endpoint)
    moved = server_verb(laboratory, "move", *place)
    assert moved.returncode == 0, moved.stdout + moved.stderr
    laboratory.start_server()  # by its note
    assert report_of(laboratory, campaign_id) == wanted
    checked = server_verb(laboratory, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_wrong_bucket_or_prefix_of_a_lab_with_files_is_refused_and_not_made(
    server: OwnSeaweedfs, tmp_path: Path
) -> None:
    def opened(url: str, *, has_files: bool) -> None:
        state = tmp_path / url.replace("/", "-")
        state.mkdir(exist_ok=True)
        with ExitStack() as resources:
            asked = records_place(url, server.endpoint)
            open_records(state, asked, lambda: 5, resources, has_files=lambda: has_files)

    opened("s3://made-with-its-first-object/right", has_files=False)  # of a new lab
    opened("s3://made-with-its-first-object/right", has_files=True)
    for wrong, cause in (("wrong/right", "no such bucket"), ("lab/wrong", r"has no state\.json")):
        for _ in range(2):
            with pytest.raises(StorageError, match=cause):
                opened(f"s3://{wrong}", has_files=True)  # the second time, too: the first one made no bucket
    assert list(bucket_of(server, "wrong", tmp_path).listed("")) == []


def test_a_bucket_of_another_state_is_refused(server: OwnSeaweedfs, tmp_path: Path) -> None:
    asked = records_place("s3://lab/one", server.endpoint)
    for number, name in ((5, "first"), (6, "second")):
        state = tmp_path / name
        state.mkdir()
        with ExitStack() as resources:
            if number == 5:
                open_records(state, asked, lambda: 5, resources)
                shutil.rmtree(state)
            else:
                with pytest.raises(StorageError, match="another state folder"):
                    open_records(state, asked, lambda: 6, resources)
