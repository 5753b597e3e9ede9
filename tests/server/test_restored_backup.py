"""A server that goes on from a backup removes nothing, and takes nothing of leases that the backup lacks."""

from __future__ import annotations

import itertools
import logging
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from assay_core.files.durable import temporary_of
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import SetAside
from assay_sampling.readers.opening import open_recording
from assay_server.app import Server
from assay_server.store.model import PublishedFile, Segment
from assay_server.store.parts.attempts import EPOCH_SHIFT
from assay_server.store.record_store import CheckContent
from assay_server.store.records import LocalRecordStore
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

RUNS = 6
# Launches of a segment that is staged in a file: small ones are held in the database.
STAGED = 60_000
CAMPAIGN = """\
campaign: six
workloads:
""" + "".join(f"  - {{name: w{i}, recordings: [{{device: V100, light: {i}.sqlite}}]}}\n" for i in range(RUNS))
ONE_RUN = """\
campaign: one
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def back_up(state: Path, copy: Path) -> None:
    """The database alone, as sqlite3's own backup makes it of one that is in use."""
    source, target = sqlite3.connect(state / "metadata.sqlite"), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()


def restore(copy: Path, state: Path) -> None:
    for path in state.glob("metadata.sqlite*"):
        path.unlink()
    shutil.copy(copy, state / "metadata.sqlite")


def set_aside(agent: PlayingAgent) -> list[SetAside]:
    return list(agent.listed().set_aside)


def test_an_older_database_beside_newer_records_loses_none_of_them(
    make_server: Callable[..., Server], short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    state = server.settings.state_dir
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        agent.play(made_segments((10,)))
        back_up(state, short_path / "backup.sqlite")
        for number in range(1, RUNS):
            agent.play(made_segments((10 + number,)))
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    server.stop()
    newer = contents(state / "records")
    assert len(newer) == RUNS
    restore(short_path / "backup.sqlite", state)
    with caplog.at_level(logging.WARNING):
        server = make_server()
    assert contents(state / "records") == dict([next(iter(newer.items()))])
    [folder] = (state / "set-aside").iterdir()
    assert contents(folder / "records") == {k: v for k, v in newer.items() if not k.startswith("six-1.0000")}
    told = caplog.text
    assert str(folder) in told and "six-1.0005/slice-00000.parquet" in told
    with PlayingAgent(server.addresses[0], session_id="session-2") as agent:
        [aside] = set_aside(agent)
        assert (aside.folder, aside.reason, aside.files) == (str(folder), "unknown_to_database", RUNS - 1)
        assert list(aside.names) == [f"records/six-1.000{i}/slice-00000.parquet" for i in range(1, RUNS)]
        assert aside.bytes == sum(len(data) for name, data in newer.items() if "six-1.0000" not in name)
        # What is missing is measured again, to the same bytes, and nothing more is set aside.
        agent.register()
        for number in range(1, RUNS):
            agent.play(made_segments((10 + number,)))
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    server.stop()
    assert contents(state / "records") == newer
    caplog.clear()
    server = make_server()
    assert "aside" not in caplog.text
    with PlayingAgent(server.addresses[0]) as agent:
        assert [a.folder for a in set_aside(agent)] == [str(folder)]
        shutil.rmtree(folder)
        assert set_aside(agent) == []


def test_staged_segments_and_reports_that_the_database_does_not_know_are_kept_too(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    server = make_server()
    state = server.settings.state_dir
    back_up(state, short_path / "backup.sqlite")
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(ONE_RUN)
        agent.play(made_segments((10,)))
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
        agent.submit(ONE_RUN)
        agent.upload(agent.lease(wait_ms=5000).work.key, made_segments((STAGED, 3))[:1])
    server.stop()
    newer = {k: v for top in ("records", "reports", "staging") for k, v in contents(state / top).items()}
    assert len(newer) == 5
    restore(short_path / "backup.sqlite", state)
    (state / "records" / "notes.txt").write_text("of a person")
    make_server()
    [folder] = (state / "set-aside").iterdir()
    kept = {k: v for top in ("records", "reports", "staging") for k, v in contents(folder / top).items()}
    assert kept == {**newer, "notes.txt": b"of a person"}


def test_half_written_files_of_our_own_are_removed_and_what_ended_leaves_no_segments(
    make_server: Callable[..., Server],
) -> None:
    server = make_server()
    state = server.settings.state_dir
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(ONE_RUN)
        agent.play(made_segments((10,)))
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    server.stop()
    (state / "records/one-1.0000/slice-00000.parquet.tmp-77").write_bytes(b"half")
    (state / "records/one-1.0001").mkdir()
    (state / "records/one-1.0001/slice-00000.parquet.tmp-77").write_bytes(b"half")
    (state / "reports/one-1/report.json.tmp-77").write_bytes(b"half")
    (state / "write-probe.tmp-77").write_bytes(b"of a server that was killed while it tried to write")
    (state / "staging/one-1.0000").mkdir()
    (state / "staging/one-1.0000/slice-00000-attempt-0001").write_bytes(b"segments of a published attempt")
    make_server()
    assert not (state / "set-aside").exists()
    # The new server may be trying to write at this moment.
    trying = temporary_of(state / "write-probe")
    assert [left for left in state.rglob("*.tmp-*") if left != trying] == []
    assert not list((state / "staging").iterdir())


def test_after_a_whole_folder_was_restored_the_lost_lease_proves_nothing(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    """One agent's rows were published with the other's log: both had the same key, and the same token."""
    server = make_server()
    state, copy = server.settings.state_dir, short_path / "copy"
    with PlayingAgent(server.addresses[0], "first") as first:
        first.register()
        first.submit(ONE_RUN)
        server.stop()
        shutil.copytree(state, copy)
        server = make_server()
        before = first.lease(wait_ms=5000).work
        first.upload(before.key, made_segments((40, 30))[:1])
        server.stop()
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        server = make_server()
        with PlayingAgent(server.addresses[0], "second") as second:
            second.register()
            after = second.lease(wait_ms=5000).work
            named = (after.key.run_id, after.key.slice_index, after.key.attempt)
            assert named == (before.key.run_id, before.key.slice_index, before.key.attempt)
            assert after.key.token > before.key.token
            assert after.write_secret != before.write_secret
            for key in (before.key, after.key):
                first.know(key, before.write_secret)
                [answer] = first.upload(key, made_segments((40, 30))[:1])
                assert answer.refusal.failure_class == "lease_expired"
                assert not first.finish(key, 1, 40).published
            second.upload(after.key, made_segments((9,)))
            assert second.finish(after.key, 1, 9).published
        eventually(lambda: first.status("one-1").state == "done", "the end of the campaign")
        [attempt] = first.run("one-1.0000").attempts
        assert (attempt.agent, attempt.launches) == ("name of second", 9)
        [file] = first.run("one-1.0000").files
    with open_recording(state / file) as recording:
        assert sum(batch.records.num_rows for batch in recording.batches()) == 9


def test_every_start_raises_the_epoch_of_tokens_also_where_the_clock_went_back(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [2_000_000_000_000]
    monkeypatch.setattr("assay_server.app.wall_ms", lambda: now[0])
    tokens = []
    for step in (0, 0, 1, -100_000_000, 3_600_000):
        now[0] += step
        server = make_server()
        with PlayingAgent(server.addresses[0], session_id=f"session-{len(tokens)}") as agent:
            agent.register()
            agent.submit(ONE_RUN)
            tokens.append(agent.lease(wait_ms=5000).work.key.token)
            agent.fail(agent.lease().work.key, "permission", retryable=False)
        server.stop()
    epochs = [token >> EPOCH_SHIFT for token in tokens]
    assert all(later > earlier for earlier, later in itertools.pairwise(epochs))
    assert max(tokens) < 2**63


YEAR_MS = 366 * 86_400_000


@pytest.mark.parametrize("wrong_ms", [-YEAR_MS, 0, 138 * YEAR_MS, 2**43, 10**18])
def test_a_clock_that_shows_an_absurd_time_stops_no_server_and_uses_up_no_epochs(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, wrong_ms: int
) -> None:
    now = [1_800_000_000_000]
    monkeypatch.setattr("assay_server.app.wall_ms", lambda: now[0])
    tokens = []
    for shown in (now[0], wrong_ms, wrong_ms, now[0]):
        now[0] = shown
        server = make_server()
        with PlayingAgent(server.addresses[0], session_id=f"session-{len(tokens)}") as agent:
            agent.register()
            agent.submit(ONE_RUN)
            tokens.append(agent.lease(wait_ms=5000).work.key.token)
            agent.fail(agent.lease().work.key, "permission", retryable=False)
        server.stop()
    assert tokens == sorted(set(tokens))
    assert (2**63 - tokens[-1]) >> EPOCH_SHIFT > YEAR_MS


def test_a_file_beside_an_attempt_whose_segments_are_gone_is_set_aside_and_never_lost(
    make_server: Callable[..., Server], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup was made just before the attempt was published and its segments were removed."""
    real = LocalRecordStore.publish

    def backed_up(
        records: LocalRecordStore, key: AttemptKey, segments: Sequence[Segment], check: CheckContent
    ) -> PublishedFile:
        if not (short_path / "backup.sqlite").exists():
            back_up(Path(records.location("")).parent, short_path / "backup.sqlite")
        return real(records, key, segments, check)

    monkeypatch.setattr(LocalRecordStore, "publish", backed_up)
    server = make_server()
    state = server.settings.state_dir
    segments = made_segments((STAGED, 30))
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(ONE_RUN)
        work = agent.lease(wait_ms=5000).work
        agent.upload(work.key, segments)
        assert agent.finish(work.key, 2, STAGED + 30).published
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    server.stop()
    newer = contents(state / "records")
    restore(short_path / "backup.sqlite", state)
    server = make_server()
    with PlayingAgent(server.addresses[0], session_id="session-2") as agent:
        agent.register()
        eventually(lambda: agent.run(work.key.run_id).attempts[0].state == "failed", "the end of it", 60)
        kept = [c for folder in (state / "set-aside").iterdir() for c in contents(folder / "records").items()]
        assert dict(kept) == newer
        assert contents(state / "records") == {}
        assert [name for a in set_aside(agent) for name in a.names] == [f"records/{name}" for name in newer]
        agent.play(segments)
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    assert contents(state / "records") == newer
