"""Published files that are missing or changed are named, and measured again before anything rests on them."""

from __future__ import annotations

import errno
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_core.records.campaign import ReportChunk
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import StorageError
from assay_server import content_hash
from assay_server.analysis import pipeline
from assay_server.analysis.runs import intact
from assay_server.analysis.runs.intact import RecordsChangedError, require_intact
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.app import Server, ServerSettings
from assay_server.campaigns.analysing.job import analyse_campaign, analyse_one_workload
from assay_server.content_hash import hash_of_file
from tests.support.server.campaign_to_analyse import Ended
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

CAMPAIGN = """\
campaign: made
synthetic: true
analysis: {methods: [systematic]}
workloads:
  - name: training
    recordings:
      - {device: V100, light: light.sqlite}
      - {device: A100, light: other.json}
"""
FIRST, SECOND = made_segments((60, 40), synthetic=True), made_segments((100,), synthetic=True)
FILE = "records/made-1.0000/slice-00000.parquet"

Change = Callable[[Path], object]


def flip_a_bit(path: Path) -> None:
    """In the footer, where a column's name stands, and without another size or time of the file."""
    state = path.stat()
    data = bytearray(path.read_bytes())
    data[data.rindex(b"duration_ns") + 3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


CHANGES: dict[str, Change] = {"changed": flip_a_bit, "missing": Path.unlink, "cut": cut}


@pytest.fixture
def start(short_path: Path) -> Iterator[Callable[[str], Server]]:
    """Starts servers with the real analysis, in this process."""
    servers: list[Server] = []

    def make(name: str) -> Server:
        folder = short_path / name
        folder.mkdir(exist_ok=True, mode=0o700)
        config = ServerSettings(
            state_dir=folder / "state", listen=(f"unix:{folder}/s.sock",), lease_ms=60_000, retry_delay_ms=1
        )
        server = Server(config, make_executor=lambda: ThreadPoolExecutor(1))
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()


def report_of(agent: PlayingAgent, campaign_id: str = "made-1") -> list[ReportChunk]:
    return agent.report(campaign_id)


def ended(agent: PlayingAgent, state: str = "done") -> None:
    eventually(lambda: agent.status("made-1").state == state, f"the campaign being {state}", 60)


@pytest.fixture
def undisturbed(start: Callable[[str], Server]) -> tuple[bytes, dict[str, bytes]]:
    """The report of a campaign that nothing happened to, and its records."""
    server = start("undisturbed")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        agent.play(SECOND)
        ended(agent)
        report = b"".join(chunk.data for chunk in report_of(agent))
    return report, records(server)


def records(server: Server) -> dict[str, bytes]:
    state = server.settings.state_dir
    return {str(p.relative_to(state)): p.read_bytes() for p in (state / "records").rglob("*.parquet")}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_whose_file_changed_is_measured_again_and_the_report_is_that_of_one_undisturbed(
    what: str,
    start: Callable[[str], Server],
    undisturbed: tuple[bytes, dict[str, bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = start("disturbed")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        CHANGES[what](server.settings.state_dir / FILE)
        agent.play(SECOND)
        eventually(lambda: agent.status("made-1").state == "running", "the campaign running again", 60)
        [first, second] = agent.status("made-1").runs
        assert (first.state, first.retries, second.state) == ("waiting", 0, "done")
        [lost] = agent.run("made-1.0000").attempts
        assert (lost.state, lost.failure.failure_class) == ("failed", "records_changed")
        assert FILE in lost.failure.cause and FILE in caplog.text
        aside = agent.listed().set_aside
        assert [(a.reason, list(a.names)) for a in aside] == (
            [] if what == "missing" else [("changed", [FILE])]
        )
        agent.play(FIRST)
        ended(agent)
        assert [a.state for a in agent.run("made-1.0000").attempts] == ["failed", "published"]
        assert b"".join(chunk.data for chunk in report_of(agent)) == undisturbed[0]
    assert records(server) == undisturbed[1]


def test_a_disk_that_loses_the_same_file_again_and_again_ends_in_a_report_that_names_it(
    start: Callable[[str], Server],
) -> None:
    server = start("sick")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        flip_a_bit(server.settings.state_dir / FILE)
        agent.play(SECOND)
        for attempt in range(2, 11):
            with spoiled_once(server.settings.state_dir / FILE):
                key = agent.play(FIRST)
            assert (key.run_id, key.attempt) == ("made-1.0000", attempt)
        ended(agent, "failed")
        status = agent.status("made-1")
        assert [(r.state, r.failure and r.failure.failure_class) for r in status.runs] == [
            ("failed", "records_changed"),
            ("done", None),
        ]
        report = b"".join(chunk.data for chunk in report_of(agent)).decode()
        assert f"records_changed: run made-1.0000: {FILE}" in report


@contextmanager
def spoiled_once(path: Path) -> Iterator[None]:
    """A file changes after its publication, just before the analysis that follows at once hashes it."""
    real = content_hash.hash_of_file

    def spoiled(read: Path) -> str:
        if read == path and path.exists():
            flip_a_bit(path)
        return real(read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intact, "hash_of_file", spoiled)
        yield
        eventually(lambda: not path.exists(), "the changed file being set aside", 60)


@pytest.mark.parametrize("what", CHANGES)
def test_who_asks_for_an_old_report_hears_that_its_records_are_not_what_they_were(
    what: str, start: Callable[[str], Server], caplog: pytest.LogCaptureFixture
) -> None:
    """The report stands, as it was made of what was published; but it cannot be made again."""
    server = start("old")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        agent.play(SECOND)
        ended(agent)
        whole = report_of(agent)
        assert [c.run_id for chunk in whole for c in chunk.changed] == []
        whole_file = (server.settings.state_dir / FILE).read_bytes()
        CHANGES[what](server.settings.state_dir / FILE)
        again = report_of(agent)
        assert b"".join(c.data for c in again) == b"".join(c.data for c in whole)
        [found] = [c for chunk in again for c in chunk.changed]
        assert (found.run_id, found.file) == ("made-1.0000", FILE)
        assert found.what == ("missing" if what == "missing" else "changed")
        assert FILE in caplog.text
        assert agent.status("made-1").state == "done"
        assert named_in_status(agent) == [(FILE, found.what)]
    server.stop()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        server = start("old")
    if what != "changed":  # at the start only sizes are looked at: hashing everything would hold it up
        assert FILE in caplog.text
        with PlayingAgent(server.addresses[0]) as agent:
            assert named_in_status(agent) == [(FILE, found.what)]
            (server.settings.state_dir / FILE).parent.mkdir(exist_ok=True)
            (server.settings.state_dir / FILE).write_bytes(whole_file)  # out of a backup
            assert [c for chunk in report_of(agent) for c in chunk.changed] == named_in_status(agent) == []


def named_in_status(agent: PlayingAgent) -> list[tuple[str, str]]:
    answer = agent.listed()
    return [(each.file, each.what) for each in answer.changed]


def test_a_campaign_that_runs_has_lost_files_measured_again_at_the_next_start(
    start: Callable[[str], Server],
) -> None:
    server = start("restarted")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        server.stop()
        (server.settings.state_dir / FILE).unlink()
        start("restarted")
        key = agent.play(FIRST)
        assert (key.run_id, key.attempt) == ("made-1.0000", 2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "slice-00000.parquet"
    path.write_bytes(os.urandom(5000))
    return path


@settings(deadline=None, max_examples=200)
@given(bit=st.integers(0, 8 * 5000 - 1))
def test_no_flipped_bit_passes(whole: Path, bit: int) -> None:
    run = RunData("r", "w", "V100", "light", files=(str(whole),), file_hashes=(hash_of_file(whole),))
    require_intact([run])
    data = whole.read_bytes()
    state = whole.stat()
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    whole.write_bytes(changed)
    os.utime(whole, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(RecordsChangedError) as caught:
        require_intact([run])
    assert [(c.run_id, c.file, c.what) for c in caught.value.files] == [("r", str(whole), "changed")]
    whole.write_bytes(data)


JOBS: dict[str, Callable[[AnalysisRequest], object]] = {
    "analyse": analyse_campaign,
    "analyse_part": lambda request: analyse_one_workload(request, "training"),
}


@pytest.mark.parametrize(("what", "noticed"), [("changed", False), ("missing", False), ("missing", True)])
@pytest.mark.parametrize("reads", JOBS)
def test_no_result_rests_on_a_file_that_changed_while_the_analysis_read_it(
    reads: str, what: str, noticed: bool, start: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, requests = start("asked"), []
    real_whole, real_part = pipeline.analyse, pipeline.analyse_part

    def noted(request: AnalysisRequest) -> object:
        requests.append(request)
        return real_whole(request)

    def noted_part(request: AnalysisRequest, workload: str) -> object:
        requests.append(request)
        return real_part(request, workload)

    monkeypatch.setattr(pipeline, "analyse", noted)
    monkeypatch.setattr(pipeline, "analyse_part", noted_part)
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        agent.play(FIRST)
        agent.play(SECOND)
        ended(agent)
    request, path = requests[0], server.settings.state_dir / FILE
    assert JOBS[reads](request)
    real = real_whole if reads == "analyse" else real_part

    def disturbed(*read: object) -> object:
        result = real(*read)  # type: ignore[arg-type]
        CHANGES[what](path)
        if noticed:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return result

    monkeypatch.setattr(pipeline, reads, disturbed)
    with pytest.raises(RecordsChangedError) as caught:
        JOBS[reads](request)
    assert [(c.run_id, c.file, c.what) for c in caught.value.files] == [("made-1.0000", str(path), what)]


@pytest.mark.parametrize("job", [analyse_campaign, lambda request: analyse_one_workload(request, "w0")])
def test_no_report_says_of_a_run_that_a_disk_failed_while_it_was_read(
    job: Callable[[AnalysisRequest], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Ended(tmp_path / "state")
    made.fill(2)
    request = made.request()
    made.close()
    expected = job(request)

    class Failing(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, *arguments: object, **named: object) -> Iterator[object]:
            yield from itertools.islice(super().iter_batches(*arguments, **named), 0)
            raise OSError(errno.EIO, "Error reading bytes from file")

    with monkeypatch.context() as failing:
        failing.setattr(pq, "ParquetFile", Failing)
        with pytest.raises(StorageError, match="EIO"):
            job(request)
    assert job(request) == expected


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.ENOENT, FileNotFoundError), (errno.EACCES, PermissionError), (errno.ENOSPC, StorageError)],
)
@pytest.mark.parametrize("job", [analyse_campaign, lambda request: analyse_one_workload(request, "w0")])
def test_what_an_analysis_lacks_of_its_own_is_not_taken_for_a_disk_that_fails(
    job: Callable[[AnalysisRequest], object],
    number: int,
    raised: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Ended(tmp_path / "state")
    made.fill(2)
    request = made.request()
    made.close()

    def lacking(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number), "/etc/method.conf")

    monkeypatch.setattr(pipeline, "analyse", lacking)
    monkeypatch.setattr(pipeline, "analyse_part", lacking)
    with pytest.raises(raised):
        job(request)


def test_a_run_measured_again_keeps_no_flag_of_the_attempt_whose_file_changed(
    start: Callable[[str], Server],
) -> None:
    server = start("flagged")
    flags = [ValidityFlag(name="xid_error", detail="XID 79")]
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        key = agent.lease(wait_ms=5000).work.key
        agent.upload(key, FIRST)
        assert agent.finish(key, 2, 100, flags=flags).published
        before = {f.name for f in agent.run("made-1.0000").run.flags}
        assert "xid_error" in before
        flip_a_bit(server.settings.state_dir / FILE)
        agent.play(SECOND)
        eventually(lambda: agent.status("made-1").state == "running", "the campaign running again", 60)
        agent.play(FIRST)
        ended(agent)
        assert {f.name for f in agent.run("made-1.0000").run.flags} == before - {"xid_error"}


def test_a_file_is_hashed_once_as_long_as_nobody_touches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    real = content_hash.fresh_hash_of
    monkeypatch.setattr(content_hash, "fresh_hash_of", lambda path: hashed.append(path) or real(path))
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = hash_of_file(path)
    assert hash_of_file(path) == first and len(hashed) == 1
    path.write_bytes(b"two")
    assert hash_of_file(path) != first and len(hashed) == 2
    path.rename(tmp_path / "b")
    (tmp_path / "b").rename(path)
    assert hash_of_file(path) == hash_of_file(path) != first
