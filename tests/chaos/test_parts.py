"""The parts of the chaos lab do what they say: else its faults would prove nothing."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from assay_core.files.launch_file import new_launch_file
from assay_sampling.launches.table import (
    BASELINE,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)
from tests.chaos.comparing import Difference, compare_records, compare_reports
from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import SERVER, Outcome, Whom
from tests.chaos.interposing import Meddling, Operation, built
from tests.chaos.laboratory import waited
from tests.chaos.proof import enough_took_hold
from tests.chaos.repeating_agent import RepeatControl, Repeating
from tests.chaos.schedule import plan
from tests.chaos.wire import FAIR, Weather, Wire
from tests.support.integration.harness import wait_until

AGENTS = ("box-0", "box-1")


# Calls of the C library.


@pytest.fixture
def meddling(tmp_path: Path) -> Iterator[Meddling]:
    library = built(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler here")
    (tmp_path / "state").mkdir()
    made = Meddling(library, tmp_path / "control", tmp_path / "state")
    yield made
    made.close()


WRITE_AND_SYNC = """
try:
    with (here / "file").open("wb", buffering=0) as file:
        file.write(b"12345678")
        os.fsync(file.fileno())
    with (here / "file").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 3, 5) == b"678" and file.read(4) == b"1234"
    print("written")
except OSError as error:
    print(os.strerror(error.errno))
"""


@pytest.mark.parametrize("operations", Operation)
def test_calls_fail_in_the_folder_alone_and_only_while_the_fault_lasts(
    meddling: Meddling, tmp_path: Path, operations: Operation
) -> None:
    state = tmp_path / "state"
    assert output(meddling, WRITE_AND_SYNC, state) == "written"
    meddling.set(operations, error=5)
    assert output(meddling, WRITE_AND_SYNC, state) == "Input/output error"
    assert meddling.counters().failed == 1
    assert output(meddling, WRITE_AND_SYNC, tmp_path) == "written"
    meddling.set()
    assert output(meddling, WRITE_AND_SYNC, state) == "written"
    assert meddling.counters().failed == 1


def test_a_program_that_writes_over_its_environment_has_the_fault_too(
    meddling: Meddling, tmp_path: Path
) -> None:
    """As PostgreSQL does, for the titles of its processes."""
    meddling.set(Operation.SYNCS, error=5)
    overwriting = """
import ctypes
library = ctypes.CDLL(None)
library.getenv.restype = ctypes.c_void_p
ctypes.memset(library.getenv(b"ASSAY_CHAOS_FOLDER"), ord("x"), 8)
"""
    assert output(meddling, overwriting + WRITE_AND_SYNC, tmp_path / "state") == "Input/output error"


def output(meddling: Meddling, program: str, folder: Path) -> str:
    done = run(meddling, program, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run(meddling: Meddling, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    begin = f"import os, time, pathlib\nhere = pathlib.Path({str(folder)!r})\n"
    return subprocess.run(
        [sys.executable, "-S", "-c", begin + program],
        env=meddling.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_torn_write_leaves_half_of_it_and_kills_the_process(meddling: Meddling, tmp_path: Path) -> None:
    meddling.set(torn=1, part="file")
    assert run(meddling, WRITE_AND_SYNC, tmp_path / "state").returncode == -signal.SIGKILL
    assert (tmp_path / "state" / "file").read_bytes() == b"1234"
    assert meddling.counters().tears == 1
    assert output(meddling, WRITE_AND_SYNC, tmp_path / "state") == "written"


def test_the_wall_clock_is_off_and_the_monotonic_one_is_not(meddling: Meddling, tmp_path: Path) -> None:
    now = "print(int(time.time()) // 100_000, int(time.monotonic()) // 100_000)"
    wall, steady = map(int, output(meddling, now, tmp_path).split())
    meddling.set(clock_offset_ns=10**9 * 86_400 * 1000)
    assert output(meddling, now, tmp_path) == f"{wall + 864} {steady}"
    assert meddling.counters().clock_reads > 0


def test_time_passes_at_once_by_every_clock_and_in_waits_that_had_begun(
    meddling: Meddling, tmp_path: Path
) -> None:
    waits = """
import select, threading, sys
def wait(how):
    how()
    print("waited", flush=True)
waits = (lambda: threading.Event().wait(600), lambda: time.sleep(600), lambda: select.epoll().poll(600))
threads = [threading.Thread(target=wait, args=[each]) for each in waits]
began, wall = time.monotonic(), time.time()
for each in threads: each.start()
print("begun", flush=True)
for each in threads: each.join()
steady, wall = time.monotonic() - began, time.time() - wall
print(steady >= 600, abs(wall - steady) < 300)
"""
    meddling.let_pass(0)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", f"import time\n{waits}"],
        env=meddling.environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"

        def ended() -> bool:  # a wait that begins only now ends when time passes once more
            meddling.let_pass(600)
            return process.poll() is not None

        wait_until(ended, "the end of all waits")
        assert process.stdout.read() == "waited\n" * 3 + "True True\n"
    # What starts later finds that the time has passed, and waits as long as it asks for.
    short = "began = time.monotonic(); time.sleep(0.01); print(time.monotonic() - began < 300)"
    assert output(meddling, short, tmp_path) == "True"


def test_calls_wait(meddling: Meddling, tmp_path: Path) -> None:
    meddling.set(Operation.SYNCS, sleep_ms=1)
    assert output(meddling, WRITE_AND_SYNC, tmp_path / "state") == "written"
    assert (meddling.counters().slept, meddling.counters().failed) == (1, 0)


# The wire.


@contextlib.contextmanager
def echo() -> Iterator[int]:
    """A server that sends back what it gets, in capitals; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(4096):
                connection.sendall(data.upper())

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with echo() as port:
        made = Wire(port, seed=1)
        yield made
        made.close()


def connected(wire: Wire) -> socket.socket:
    return socket.create_connection(("127.0.0.1", wire.port), timeout=20)


def test_in_fair_weather_bytes_pass(wire: Wire) -> None:
    with connected(wire) as line:
        line.sendall(b"abc")
        assert line.recv(10) == b"ABC"
    assert waited(lambda: wire.counts.bytes_passed == 6, 20)


def test_a_cut_wire_resets_connections_and_refuses_new_ones(wire: Wire) -> None:
    with connected(wire) as line:
        line.sendall(b"abc")
        assert line.recv(10) == b"ABC"
        wire.set(Weather(cut=True))
        assert gone(line)
    with connected(wire) as line:
        assert gone(line)
    assert wire.counts.resets == 2 and wire.counts.refused == 1
    wire.set(FAIR)
    with connected(wire) as line:
        line.sendall(b"abc")
        assert line.recv(10) == b"ABC"


def gone(line: socket.socket) -> bool:
    try:
        return line.recv(10) == b""
    except ConnectionError:
        return True


def test_what_was_held_arrives_late_over_the_same_connection(wire: Wire) -> None:
    with connected(wire) as line:
        wire.set(Weather(held=True))
        line.sendall(b"abc")
        assert waited(lambda: wire.counts.held == 1, 20)
        assert wire.counts.bytes_passed == 0
        wire.set(FAIR)
        assert line.recv(10) == b"ABC"
    assert wire.counts.late_bytes == 3


def test_answers_are_lost_and_the_broken_connection_ends_with_the_fault(wire: Wire) -> None:
    with connected(wire) as line:
        wire.set(Weather(answers_lost=True))
        line.sendall(b"abc")
        assert waited(lambda: wire.counts.lost_bytes == 3, 20)
        wire.set(FAIR)
        assert gone(line)


# Repeated messages.


class Answer:
    def result(self) -> str:
        return "answer"


class Upload:
    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number

    def WhichOneof(self, group: str) -> str:
        return self.kind

    def __repr__(self) -> str:
        return f"{self.kind[0]}{self.number}"


def test_calls_and_segments_come_twice_only_while_armed(tmp_path: Path) -> None:
    control = RepeatControl(tmp_path / "repeats")
    repeating, calls = Repeating(control), []

    def called(details: Any, request: Any) -> Answer:
        calls.append(request)
        return Answer()

    messages = [Upload(kind, number) for number in range(6) for kind in ("header", "chunk")]

    def sent() -> list[str]:
        stream = repeating.intercept_stream_stream(lambda _, requests: list(requests), None, iter(messages))
        return [repr(each) for each in stream]

    assert sent() == [repr(each) for each in messages]
    repeating.intercept_unary_unary(called, None, "one")
    assert (calls, control.repeats) == (["one"], (0, 0))
    RepeatControl(tmp_path / "repeats").arm(True)
    repeating.intercept_unary_unary(called, None, "two")
    assert calls == ["one", "two", "two"]
    assert Counter(sent()) == {repr(each): 2 for each in messages}
    assert sent().index("c5") < len(sent()) - 1, "the first segments come again after later ones"
    assert control.repeats[0] == 1


# The plan.


def test_a_plan_follows_from_its_seed_has_every_kind_and_hits_whom_it_may() -> None:
    planned = plan(Random(7), 200, list(KINDS), AGENTS)
    assert planned == plan(Random(7), 200, list(KINDS), AGENTS)
    assert planned != plan(Random(8), 200, list(KINDS), AGENTS)
    assert len(planned) == 200 and {each.kind for each in planned} == KINDS.keys()
    for each in planned:
        whom = KINDS[each.kind].whom
        assert (each.target == SERVER) <= (whom is not Whom.AGENTS)
        assert (each.target != SERVER) <= (whom is not Whom.SERVER)
    assert len({each.kind for each in plan(Random(7), 20, list(KINDS), AGENTS)}) == 20


@pytest.mark.parametrize(
    ("held", "kinds", "enough"), [(18, 18, True), (15, 15, True), (14, 14, False), (18, 11, False)]
)
def test_five_of_six_faults_of_twelve_kinds_prove_a_lab(held: int, kinds: int, enough: bool) -> None:
    outcomes = [
        Outcome(f"kind {number % kinds}", "agent-0", 0.0, 1.0, "seen" if number < held else "")
        for number in range(27)
    ]
    assert enough_took_hold(outcomes, 18, 30) is enough


# The comparison.


def write(path: Path, launches: list[int], durations: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = launch_schema(TableMetadata(level="light", origin="synthetic", condition=BASELINE))
    names, count = Names(), len(launches)
    columns = {
        "process": np.zeros(count, np.int32),
        "launch": np.array(launches),
        "kernel_id": np.full(count, names.intern("k()"), np.uint64),
        "grid_x": np.ones(count),
        "block_x": np.ones(count),
        "start_ns": np.arange(count),
        "duration_ns": np.array(durations),
    }
    with new_launch_file(path, schema) as writer:
        writer.write(LaunchBatch(make_batch(schema, columns), dict(names.items())))


@pytest.mark.parametrize(
    ("launches", "durations", "lost_duplicated_changed"),
    [
        ([0, 1, 2, 3], [5, 6, 7, 8], (0, 0, 0)),
        ([0, 1, 3], [5, 6, 8], (1, 0, 0)),
        ([0, 1, 1, 2, 3], [5, 6, 6, 7, 8], (0, 1, 0)),
        ([0, 1, 2, 3], [5, 9, 7, 9], (0, 0, 2)),
        ([0, 0, 0], [5, 5, 5], (3, 2, 0)),
    ],
)
def test_lost_duplicated_and_changed_launches_are_counted(
    tmp_path: Path, launches: list[int], durations: list[int], lost_duplicated_changed: tuple[int, int, int]
) -> None:
    write(tmp_path / "a" / "c-1.0000" / "slice-00000.parquet", [0, 1, 2, 3], [5, 6, 7, 8])
    write(tmp_path / "b" / "c-1.0000" / "slice-00000.parquet", launches, durations)
    found = Difference()
    compare_records(tmp_path / "a", tmp_path / "b", found)
    assert (found.lost, found.duplicated, found.changed) == lost_duplicated_changed
    assert found.identical is (lost_duplicated_changed == (0, 0, 0))
    assert found.launches == 4


def test_files_that_are_missing_or_unknown_differ(tmp_path: Path) -> None:
    write(tmp_path / "a" / "c-1.0000" / "slice-00000.parquet", [0, 1], [5, 6])
    write(tmp_path / "b" / "c-1.0001" / "slice-00000.parquet", [0, 1], [5, 6])
    found = Difference()
    compare_records(tmp_path / "a", tmp_path / "b", found)
    assert (found.files_missing, found.files_unknown, found.lost, found.identical) == (1, 1, 2, False)


def test_the_same_launches_in_other_bytes_are_not_the_same(tmp_path: Path) -> None:
    for lab in ("a", "b"):
        write(tmp_path / lab / "c-1.0000" / "slice-00000.parquet", [0, 1], [5, 6])
    other = tmp_path / "b" / "c-1.0000" / "slice-00000.parquet"
    written, table = pq.read_metadata(other).metadata, pq.read_table(other)
    with pq.ParquetWriter(other, table.schema, compression="none") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: value for key, value in written.items() if b"ARROW" not in key})
    found = Difference()
    compare_records(tmp_path / "a", tmp_path / "b", found)
    assert (found.lost, found.duplicated, found.changed, found.other_bytes) == (0, 0, 0, 1)
    assert not found.identical and found.names == [
        "c-1.0000/slice-00000.parquet: the same launches in other bytes"
    ]


WHOLE = b'{"rows": [{"error": 1.5, "flags": ["x"]}]}'


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (
            {"json": b'{"rows": [{"error": 1.6, "flags": []}]}', "html": b"<p>"},
            ["c-1.json.rows[0].error: 1.5 became 1.6", 'c-1.json.rows[0].flags: ["x"] became []'],
        ),
        ({"json": WHOLE + b"\n", "html": b"<p>"}, ["c-1.json: 42 bytes, and 43 others from byte 42 on"]),
        ({"json": WHOLE, "html": b"<q>"}, ["c-1.html: 3 bytes, and 3 others from byte 1 on"]),
        ({"json": WHOLE}, ["c-1.html: 3 bytes, and 0 others from byte 0 on"]),
    ],
)
def test_reports_differ_in_any_byte(other: dict[str, bytes], named: list[str]) -> None:
    whole = {"c-1": {"json": WHOLE, "html": b"<p>"}}
    found = Difference()
    compare_reports(whole, {"c-1": dict(whole["c-1"])}, found)
    assert found.identical
    compare_reports(whole, {"c-1": other}, found)
    assert found.results == named and not found.identical


def test_the_virtual_gpus_of_all_boxes_of_a_lab_have_one_name() -> None:
    program = (
        "from assay_virtual.gpu_models import MODELS\n"
        "from tests.chaos.repeating_agent import name_gpus_alike\n"
        "named = lambda: len({MODELS.gpu('V100', 0, agent * 16).device.uuid for agent in 'ab'})\n"
        "apart = named()\n"
        "name_gpus_alike()\n"
        "print(apart, named())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 1\n"
