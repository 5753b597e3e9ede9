"""The spool: what is in it survives any crash whole, or is recognised as not whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_agent.spool.attempt import AttemptEnded, SpooledAttempt
from assay_agent.spool.records import Seal
from assay_agent.spool.segments import (
    MAX_STREAM_BYTES,
    SegmentEncoder,
    Segmenter,
    launches_per_segment,
    read_segment,
)
from assay_agent.spool.spool import Spool
from assay_core.files import durable
from assay_core.records.attempt import LONGEST_LOG_CHARACTERS, AttemptKey, AttemptLog
from assay_core.records.failure import failure
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import WireError
from assay_sampling.errors import LaunchTableError, StorageError
from assay_sampling.launches.table import (
    CounterColumn,
    LaunchBatch,
    TableMetadata,
    launch_schema,
    make_batch,
    text_id,
)
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import LOG, assignment
from tests.support.agent.fake_server import batches_of, joined, table_of, wait_for

FLAGS = (ValidityFlag("counters_nan", "3 of 5"), ValidityFlag("launches_dropped", "7", invalidates=True))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool", minimum_free_bytes=0, flush_seconds=1e9)
    yield made
    made.close()


def reopened(path: Path) -> Spool:
    return Spool(path, minimum_free_bytes=0)


def content(attempt: SpooledAttempt) -> list[tuple[bytes, bytes]]:
    seal = attempt.seal_record
    assert seal is not None
    segments = [attempt.read(s) for s in seal.remaining]
    return [(bytes(s.names), bytes(s.launches)) for s in segments]


def test_segments_hold_at_most_64_k_launches_and_8_mib() -> None:
    batches = batches_of(150_000, 40_000)
    schema = batches[0].records.schema
    segmenter, encoder = Segmenter(schema), SegmentEncoder(schema)
    contents = [c for b in batches for c in segmenter.add(b)]
    last = segmenter.flush()
    assert last is not None and segmenter.flush() is None
    capacity = launches_per_segment(schema)
    assert 55_000 < capacity <= 65_536
    sizes = [c.launches for c in [*contents, last]]
    assert sizes == [capacity, capacity, 150_000 - 2 * capacity]
    for number, each in enumerate([*contents, last]):
        stream = pa.input_stream(
            pa.BufferReader(encoder.encode(number, each).launches), compression="zstd"
        ).read()
        assert len(stream) <= MAX_STREAM_BYTES
        assert each.launches < 50_000 or len(stream) > 0.95 * MAX_STREAM_BYTES


def test_many_counters_make_small_segments() -> None:
    few, many = (batches_of(10, 10, counters=n)[0].records.schema for n in (2, 400))
    assert launches_per_segment(few) > launches_per_segment(many) > 2_000
    batches = batches_of(20_000, 3_000, counters=400)
    segmenter, encoder = Segmenter(many), SegmentEncoder(many)
    contents = [c for b in batches for c in segmenter.add(b)]
    contents.append(segmenter.flush())  # type: ignore[arg-type]
    encoded = [encoder.encode(i, c) for i, c in enumerate(contents)]
    assert joined([(bytes(e.names), bytes(e.launches)) for e in encoded]).equals(table_of(batches))


def test_a_schema_too_wide_for_a_segment_is_an_error() -> None:
    counters = tuple(CounterColumn(f"c{i}", "inst", "m", "hardware") for i in range(30_000))
    with pytest.raises(LaunchTableError, match="do not fit a segment"):
        launches_per_segment(launch_schema(TableMetadata("detailed"), counters))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_rechunking_keeps_every_launch_once_and_every_name_before_its_use(sizes: list[int]) -> None:
    whole = batches_of(sum(sizes) or 1, 1_000)[0]
    segmenter = Segmenter(whole.records.schema)
    segmenter.capacity = 7
    pieces, offset, given_names = [], 0, dict(whole.new_names)
    for size in sizes:
        piece = LaunchBatch(whole.records.slice(offset, size), given_names if offset == 0 else {})
        pieces += list(segmenter.add(piece))
        offset += size
    rest = segmenter.flush()
    contents = [*pieces, rest] if rest else pieces
    assert [c.launches for c in contents[:-1]] == [7] * (len(contents) - 1)
    encoder = SegmentEncoder(whole.records.schema)
    encoded = [encoder.encode(i, c) for i, c in enumerate(contents)]
    if contents:
        found = joined([(bytes(e.names), bytes(e.launches)) for e in encoded])
        assert found.equals(pa.Table.from_batches([whole.records.slice(0, offset)]))


def test_long_names_are_spread_over_segments() -> None:
    texts = {text_id(t): t for t in (f"{i} {'x' * 1_000_000}" for i in range(20))}
    schema = batches_of(1, 1)[0].records.schema
    columns = {"process": [0] * 20, "launch": range(20), "grid_x": [1] * 20, "block_x": [1] * 20}
    records = make_batch(schema, {**columns, "kernel_id": pa.array(list(texts), pa.uint64())}, num_rows=20)
    segmenter, encoder = Segmenter(schema), SegmentEncoder(schema)
    contents = [*segmenter.add(LaunchBatch(records, texts)), segmenter.flush()]
    assert [len(c.names) for c in contents if c] == [5, 5, 5, 5]
    encoded = [encoder.encode(i, c) for i, c in enumerate(contents) if c]
    assert joined([(bytes(e.names), bytes(e.launches)) for e in encoded]).num_rows == 20


def test_a_name_too_long_for_a_segment_is_an_error() -> None:
    schema = batches_of(1, 1)[0].records.schema
    text = "x" * 7_000_000
    columns = {"process": [0], "launch": [0], "grid_x": [1], "block_x": [1], "kernel_id": [text_id(text)]}
    with pytest.raises(LaunchTableError, match="names of one launch"):
        list(Segmenter(schema).add(LaunchBatch(make_batch(schema, columns), {text_id(text): text})))


def test_a_sealed_attempt_outlives_its_process(spool: Spool) -> None:
    batches = batches_of(200_000, 30_000)
    attempt = spool.create(assignment())
    for batch in batches:
        attempt.append(batch)
    seal = attempt.seal(FLAGS, LOG)
    assert (seal.launches, seal.segments, seal.remaining) == (200_000, 4, (0, 1, 2, 3))
    again = reopened(spool.directory)
    recovery = again.recover()
    assert recovery.discarded == ()
    (found,) = recovery.sealed
    assert found.key == attempt.key
    assert found.seal_record == seal
    assert (seal.flags, seal.log) == (FLAGS, LOG)
    assert joined(content(found)).equals(table_of(batches))
    assert again.used_bytes == spool.used_bytes > 0
    again.remove(found)
    assert again.used_bytes == 0
    assert list(spool.directory.iterdir()) == []
    again.close()


def test_an_attempt_without_a_seal_is_discarded(spool: Spool) -> None:
    attempt = spool.create(assignment())
    for batch in batches_of(100_000, 30_000):
        attempt.append(batch)
    wait_for(lambda: attempt.next_pending(0) == 0)
    again = reopened(spool.directory)
    recovery = again.recover()
    assert recovery.sealed == ()
    assert [(each.key, each.why) for each in recovery.discarded] == [
        (attempt.key, "the agent ended before it was complete")
    ]
    assert list(spool.directory.iterdir()) == []
    assert again.used_bytes == 0
    again.close()


def test_acknowledged_segments_are_deleted_while_measuring(spool: Spool) -> None:
    attempt = spool.create(assignment())
    for batch in batches_of(200_000, 50_000):
        attempt.append(batch)
    wait_for(lambda: attempt.next_pending(2) == 2)
    for segment in (0, 1, 1):
        attempt.acknowledge(segment)
    seal = attempt.seal((), LOG)
    assert seal.remaining == (2, 3)
    assert sorted(p.name for p in attempt.directory.glob("*.seg")) == [
        "segment-00000002.seg",
        "segment-00000003.seg",
    ]
    assert spool.used_bytes == sum(p.stat().st_size for p in attempt.directory.glob("*.seg"))
    attempt.acknowledge(2)
    again = reopened(spool.directory)
    (found,) = again.recover().sealed  # the segments of a sealed attempt stay, so that its seal stays true
    assert found.next_pending(0) == 2
    again.close()
    attempt.acknowledge(3)
    assert attempt.wait_acknowledged() == seal
    spool.remove(attempt)
    assert (spool.used_bytes, list(spool.directory.iterdir())) == (0, [])


def test_an_attempt_leased_again_under_the_same_number_starts_afresh(spool: Spool) -> None:
    spool.create(assignment()).append(batches_of(60_000, 60_000)[0])
    other = reopened(spool.directory)
    attempt = other.create(assignment())
    assert [p.name for p in attempt.directory.iterdir()] == ["manifest.json"]
    other.close()


@pytest.mark.parametrize("run_id", ["../evil", "", ".hidden", "a/b", "a" * 201, "a\0b", "-rf"])
def test_a_key_that_is_no_file_name_is_refused(run_id: str) -> None:
    with pytest.raises(WireError):
        AttemptKey(run_id, 0, 1, 1)


class Snapshots:
    """Copies the spool before and after each change that is made to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, into: Path) -> None:
        self._directory, self._into, self._lock = directory, into, threading.RLock()
        self.taken: list[Path] = []
        for name in ("write_file", "sync_file", "replace", "sync_directory", "write_atomically"):
            monkeypatch.setattr(durable, name, self._around(getattr(durable, name)))

    def _around(self, function):  # type: ignore[no-untyped-def]
        def wrapped(*arguments):  # type: ignore[no-untyped-def]
            with self._lock:  # nothing changes while a copy is made
                self._take()
                function(*arguments)
                self._take()

        return wrapped

    def _take(self) -> None:
        target = self._into / str(len(self.taken))
        shutil.copytree(self._directory, target, ignore_dangling_symlinks=True)
        self.taken.append(target)


def test_every_crash_point_leaves_a_whole_attempt_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool", minimum_free_bytes=0, flush_seconds=0.0)
    monkeypatch.setattr(shutil, "rmtree", _tolerant_rmtree)
    snapshots = Snapshots(monkeypatch, spool.directory, tmp_path)
    batches = batches_of(50, 10)
    attempt = spool.create(assignment())
    for batch in batches:
        attempt.append(batch)
    attempt.seal(FLAGS, LOG)
    spool.remove(attempt)
    spool.close()
    monkeypatch.undo()
    outcomes = []
    for path in snapshots.taken:
        again = reopened(path)
        recovery = again.recover()
        for found in recovery.sealed:
            assert joined(content(found)).equals(table_of(batches))
        assert not [p for p in path.iterdir() if p.name.startswith(".")]
        outcomes.append((len(recovery.sealed), len(recovery.discarded)))
        again.close()
    assert set(outcomes) == {(0, 0), (0, 1), (1, 0)}
    assert len(outcomes) >= 40  # 48 to 56: how many changes share a sync is a matter of time


def _tolerant_rmtree(path: Path, ignore_errors: bool = False, *, original=shutil.rmtree) -> None:  # type: ignore[no-untyped-def]
    original(path, ignore_errors=ignore_errors)


@pytest.fixture(scope="module")
def sealed_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "spool"
    spool = Spool(path, minimum_free_bytes=0, flush_seconds=0.0)
    attempt = spool.create(assignment())
    for batch in batches_of(50, 10):
        attempt.append(batch)
    attempt.seal(FLAGS, LOG)
    spool.close()
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_recognised(sealed_directory: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(sealed_directory, copy)
    files = sorted(p for p in copy.rglob("*") if p.is_file())
    for victim in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
        size = victim.stat().st_size
        how = data.draw(st.sampled_from(["remove", "truncate", "extend"]))
        if how == "remove":
            victim.unlink()
        elif how == "truncate":
            os.truncate(victim, data.draw(st.integers(0, size - 1)))
        else:
            with victim.open("ab") as file:
                file.write(b"}")
    again = reopened(copy)
    recovery = again.recover()
    assert recovery.sealed == ()
    assert len(recovery.discarded) <= 1
    assert list(copy.iterdir()) == []
    again.close()


def test_flipped_bits_are_found_before_they_are_sent(sealed_directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sealed_directory, copy)
    victim = sorted(copy.rglob("*.seg"))[2]
    content_bytes = bytearray(victim.read_bytes())
    for position in range(len(content_bytes)):
        changed = bytearray(content_bytes)
        changed[position] ^= 1 << random.Random(position).randrange(8)
        victim.write_bytes(changed)
        with pytest.raises(StorageError):
            read_segment(victim)


def test_append_waits_for_room_and_goes_on_when_segments_are_acknowledged(tmp_path: Path) -> None:
    batches = batches_of(600_000, 60_000)
    one = Spool(tmp_path / "measure", minimum_free_bytes=0)
    first = one.create(assignment())
    first.append(batches[0])
    size = one.used_bytes
    one.close()
    assert size > 0
    spool = Spool(tmp_path / "spool", limit_bytes=int(3.5 * size), minimum_free_bytes=0)
    attempt = spool.create(assignment())
    read: list[int] = []

    def profile() -> None:
        for number, batch in enumerate(batches):
            read.append(number)
            attempt.append(batch)
        attempt.seal((), LOG)

    thread = threading.Thread(target=profile)
    thread.start()
    wait_for(lambda: attempt.next_pending(2) == 2)
    thread.join(0.3)
    assert thread.is_alive()
    assert len(read) <= 5
    assert spool.used_bytes <= spool.limit_bytes
    sent = 0
    while thread.is_alive() or attempt.next_pending(sent) is not None:
        if attempt.next_pending(sent) is not None:
            assert spool.used_bytes <= spool.limit_bytes
            attempt.acknowledge(sent)
            sent += 1
        thread.join(0.001)
    assert attempt.wait_acknowledged().launches == 600_000
    assert sent == attempt.segments == 11
    spool.close()


def test_ending_an_attempt_wakes_whoever_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", limit_bytes=2_000_000, minimum_free_bytes=0)
    attempt = spool.create(assignment())
    caught: list[AttemptEnded] = []

    def profile() -> None:
        try:
            for batch in batches_of(600_000, 60_000):
                attempt.append(batch)
        except AttemptEnded as ended:
            caught.append(ended)

    thread = threading.Thread(target=profile)
    thread.start()
    wait_for(lambda: attempt.next_pending(0) == 0)
    why = failure(FailureClass.CANCELLED, "run")
    attempt.end(why)
    attempt.end(None)
    thread.join(60)
    assert [c.failure for c in caught] == [why]
    with pytest.raises(AttemptEnded):
        attempt.wait_acknowledged()
    spool.remove(attempt)
    assert (spool.used_bytes, list(spool.directory.iterdir())) == (0, [])
    spool.close()


def test_a_limit_under_one_segment_is_an_error_and_spoils_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", limit_bytes=3_000_000, minimum_free_bytes=0)
    kept = spool.create(assignment("kept"))
    kept.append(batches_of(1_000, 1_000)[0])
    kept.seal((), LOG)
    spool.limit_bytes = 100_000
    attempt = spool.create(assignment("failing"))
    with pytest.raises(StorageError, match=r"spool .*: no space: a segment of .* --spool-limit") as caught:
        attempt.append(batches_of(60_000, 60_000)[0])
    assert caught.value.exit_code == 8
    spool.remove(attempt)
    assert joined(content(kept)).num_rows == 1_000
    spool.close()


def test_the_disk_is_never_filled_to_the_brim(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", minimum_free_bytes=1 << 60)
    attempt = spool.create(assignment())
    with pytest.raises(StorageError, match="must stay free"):
        attempt.append(batches_of(60_000, 60_000)[0])
    spool.close()


FILL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.agent.fake_server import batches_of
from tests.support.agent.assignments import LOG, assignment
from assay_agent.spool.spool import Spool
from assay_sampling.errors import StorageError
# No reserve, not even what the next segment takes: the disk itself must be what refuses.
spool = Spool(Path({directory!r}), minimum_free_bytes=-(1 << 60), flush_seconds=1e9)
kept = spool.create(assignment("kept"))
kept.append(batches_of(1_000, 1_000)[0])
kept.seal((), LOG)
{limit}
attempt = spool.create(assignment("failing"))
try:
    for batch in batches_of(600_000, 60_000):
        attempt.append(batch)
    attempt.seal((), LOG)
except StorageError as error:
    print(type(error).__name__, error)
else:
    print("nothing happened")
"""


def fill(directory: Path, limit: str) -> str:
    script = FILL.format(root=str(Path(__file__).parents[2]), directory=str(directory), limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    again = reopened(directory)
    recovery = again.recover()
    assert [a.key.run_id for a in recovery.sealed] == ["kept"]
    assert [each.key.run_id for each in recovery.discarded] == ["failing"]
    assert joined(content(recovery.sealed[0])).num_rows == 1_000
    again.close()
    return done.stdout


def test_the_file_size_limit_is_a_disk_that_is_full(tmp_path: Path) -> None:
    said = fill(tmp_path / "spool", "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))")
    assert said.startswith(f"StorageError spool {tmp_path / 'spool'}: no space left")
    assert "EFBIG" in said and "--state" in said


def test_a_full_file_system_ends_the_attempt_and_nothing_else(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system; the file size limit stands in for it")
    try:
        said = fill(small / "spool", "")
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert "no space left on the disk: No space left on device (ENOSPC)" in said


def test_what_a_run_said_is_kept_in_bounds_beginning_and_end() -> None:
    said = AttemptLog(text="first " + "x" * (4 * LONGEST_LOG_CHARACTERS) + " last")
    told = said.to_proto().log
    assert len(told) < LONGEST_LOG_CHARACTERS + 100
    assert told.startswith("first ") and told.endswith(" last") and "characters left out" in told
    sealed = Seal.from_json(Seal(0, 0, (), (), said).to_json())
    assert sealed.log.text == told
