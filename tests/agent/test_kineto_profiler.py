"""Light runs of workloads that trace themselves: the trace of this run, whole, or a failure that says why.

The traces are made up by tests/support/agent/kineto_workload.py; all data are marked synthetic.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.execution import exclusive_file as exclusive_file_module
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.exclusive_file import exclusive_file
from assay_agent.profilers.kineto_file import KINETO_VARIABLE, kineto_fault
from assay_agent.profilers.seam import Measurement
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE, LaunchBatch, table_metadata
from assay_sampling.running.failures import FailureClass
from tests.support.agent import kineto_workload
from tests.support.agent.assignments import WORK

F = FailureClass


class Bench:
    """A virtual V100, and a folder in which workloads run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        [place] = virtual_places([VirtualGPUs("V100")], folder / "state")
        self.profiler = place.profilers["kineto"]

    def work(self, *switches: str, file: str = "trace.json", timeout: float = 60.0) -> Work:
        argv = (sys.executable, kineto_workload.__file__, *switches)
        command = CommandSource(argv, {}, str(self.folder), timeout, kineto_file=file)
        return replace(WORK, level="light", profiler="kineto", command=command, synthetic=True)

    def measure(
        self, work: Work, cancelled: threading.Event | None = None
    ) -> tuple[list[LaunchBatch], Measurement]:
        self.profiler.plan(work)
        with self.profiler.run(work, cancelled or threading.Event()) as measurement:
            return list(measurement.batches()), measurement

    def failed(self, work: Work) -> ProfilerError:
        with pytest.raises(ProfilerError) as caught:
            self.measure(work)
        return caught.value


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("file", ["trace.json", "out/trace.json.gz"])
def test_the_launches_come_with_operators_and_input_shapes(bench: Bench, file: str) -> None:
    batches, measurement = bench.measure(bench.work(file=file))
    table = pa.Table.from_batches([batch.records for batch in batches])
    names = {key: text for batch in batches for key, text in batch.new_names.items()}
    assert table["launch"].to_pylist() == list(range(60))
    assert {names[key] for key in table["kernel_id"].to_pylist()} == {kineto_workload.KERNEL}
    assert [names[key] for key in table["operator_id"].to_pylist()] == ["aten::mul", "aten::mm"] * 30
    assert [names[key] for key in table["input_shapes_id"].to_pylist()[:2]] == [
        "[[8,16]]", "[[64,128],[128,256]]",
    ]  # fmt: skip
    assert table["duration_ns"].to_pylist() == [4_000, 20_000] * 30
    metadata = table_metadata(table.schema)
    assert (metadata.level, metadata.synthetic, metadata.condition) == ("light", True, BASELINE)
    assert (metadata.tool, metadata.format) == ("PyTorch profiler (Kineto)", "kineto-json")
    assert [device.uuid for device in metadata.devices] == ["GPU-virtual-V100-0"]
    assert measurement.flags == () and measurement.log.telemetry is not None
    assert measurement.log.wall_seconds > 0
    assert measurement.log.environment[KINETO_VARIABLE] == str(bench.folder / file)
    assert "operators are joined by External id: 60 of 60" in measurement.log.text
    # The trace is the user's and stays; the lock is ours and goes.
    assert [path.name for path in bench.folder.iterdir()] == [file.partition("/")[0]]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("switches", "failure_class", "cause", "remedy"),
    [
        (["writes_nothing"], F.NOTHING_PROFILED, "wrote no trace", "export_chrome_trace"),
        (["elsewhere"], F.NOTHING_PROFILED, "it wrote host_17.pt.trace.json", KINETO_VARIABLE),
        (["two_files"], F.INPUT_UNREADABLE, "more traces than trace.json: host_18.pt.trace.json", "nsys"),
        (["distributed"], F.INPUT_UNREADABLE, "one of 2 processes", "nsys"),
        (["another_gpu"], F.INPUT_UNREADABLE, "is of another GPU (A100", KINETO_VARIABLE),
        (["restored"], F.NOTHING_PROFILED, "is older than the run", KINETO_VARIABLE),
        (["empty"], F.REPORT_SHORT, "it is empty", "after export_chrome_trace is done"),
        (["truncated"], F.REPORT_SHORT, "cut off or not JSON", "after export_chrome_trace is done"),
        (["no_trace"], F.INPUT_UNREADABLE, "is not a Kineto trace", KINETO_VARIABLE),
        (["no_kernels"], F.NOTHING_PROFILED, "holds no kernels", "ProfilerActivity.CUDA"),
        (
            ["fails"],
            F.APPLICATION_FAILED,
            "exit status 7; the last words of its output: no such data set",
            "",
        ),
    ],
)
def test_what_goes_wrong_has_its_class_and_remedy(
    bench: Bench, switches: list[str], failure_class: FailureClass, cause: str, remedy: str
) -> None:
    error = bench.failed(bench.work(*switches))
    assert error.failure_class is failure_class, error
    assert cause in error.cause and remedy in error.remedy
    assert error.subject.startswith("run c-1.0000")


@pytest.mark.processes
def test_a_trace_of_an_earlier_run_is_never_read_however_new_it_is(bench: Bench) -> None:
    kineto_workload.write(bench.folder / "trace.json", set())
    error = bench.failed(bench.work("writes_nothing"))
    assert (error.failure_class, "is older than the run" in error.cause) == (F.NOTHING_PROFILED, True)
    assert (bench.folder / "trace.json").exists(), "it is the user's"
    # Traces that lay there before are no others of this run.
    kineto_workload.write(bench.folder / "old.pt.trace.json", set())
    os.utime(bench.folder / "old.pt.trace.json", (1, 1))
    batches, _ = bench.measure(bench.work())
    assert sum(batch.records.num_rows for batch in batches) == 60


@pytest.mark.processes
def test_a_secret_that_is_also_an_argument_is_kept_nowhere(bench: Bench) -> None:
    work = bench.work("--token=swordfish")
    assert work.command is not None
    told = replace(work, command=replace(work.command, environment={"HF_TOKEN": "swordfish"}))
    _, measurement = bench.measure(told)
    assert measurement.log.command[-1] == "--token=(hidden)"
    assert "--token=(hidden)" in measurement.log.text and "swordfish" not in str(measurement.log)


@pytest.mark.processes
def test_time_limit_and_cancelling_apply_as_to_every_run(bench: Bench) -> None:
    work = bench.work(timeout=0.5)
    assert work.command is not None
    asleep = replace(work, command=replace(work.command, argv=("sleep", "60")))
    assert bench.failed(asleep).failure_class is F.HANG
    cancelled = threading.Event()
    cancelled.set()
    assert bench.measure(asleep, cancelled)[0] == []


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("", "names no file"),
        ("/etc/passwd", "leads out of the folder"),
        ("out/../../trace.json", "leads out of the folder"),
        ("*.pt.trace.json", "is a pattern, and traces of several processes"),
        ("trace\0.json", "names no file"),
    ],
)
def test_a_file_that_no_honest_campaign_names_is_refused(bench: Bench, file: str, cause: str) -> None:
    assert cause in kineto_fault(file)
    error = bench.failed(bench.work(file=file))
    assert (error.failure_class, cause in error.cause) == (F.SERVER_REFUSED, True)


def test_a_link_that_leads_out_of_the_folder_is_refused_before_anything_runs(bench: Bench) -> None:
    (bench.folder / "trace.json").symlink_to("/etc/hostname")
    error = bench.failed(bench.work())
    assert error.failure_class is F.INPUT_UNREADABLE and "leads out of the folder" in error.cause


@pytest.mark.parametrize(
    "changes",
    [
        {"level": "detailed"},
        {"launch_count": 5},
        {"condition": replace(BASELINE, cache="all")},
        {"condition": replace(BASELINE, sm_percent=50.0)},
    ],
)
def test_what_it_cannot_measure_is_refused(bench: Bench, changes: dict[str, object]) -> None:
    with pytest.raises(ProfilerError):
        bench.profiler.plan(replace(bench.work(), **changes))  # type: ignore[arg-type]


def test_one_run_at_a_time_writes_a_file(tmp_path: Path) -> None:
    path, go_on = tmp_path / "trace.json", threading.Event()
    with exclusive_file(path, [tmp_path], go_on, 1.0) as held:
        assert held
        with pytest.raises(ProfilerError) as caught, exclusive_file(path, [tmp_path], go_on, 0.0):
            raise AssertionError("both write it")
        assert caught.value.failure_class is F.LOCK_FILE and caught.value.failure.retryable
        with exclusive_file(tmp_path / "other.json", [tmp_path], go_on, 0.0) as other:
            assert other
        # Whoever waits gets it as soon as it is free, although its lock file has gone by then.
        got: list[bool] = []

        def wait() -> None:
            with exclusive_file(path, [tmp_path], go_on, 30.0) as mine:
                got.append(mine)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert got == []
    waiting.join(30)
    assert got == [True] and list(tmp_path.iterdir()) == []


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = exclusive_file_module._opened

    def removed_once(path: Path, folders: list[Path]) -> tuple[Path, int, bool]:
        # Whoever held it released it between our opening and our locking it.
        monkeypatch.setattr(exclusive_file_module, "_opened", opened)
        lock, handle, taken = opened(path, folders)
        lock.unlink()
        return lock, handle, taken

    monkeypatch.setattr(exclusive_file_module, "_opened", removed_once)
    with exclusive_file(tmp_path / "trace.json", [tmp_path], threading.Event(), 30.0) as held:
        assert held and len(list(tmp_path.iterdir())) == 1


def test_a_disk_without_locks_has_them_elsewhere_instead_of_waiting_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "private"
    elsewhere.mkdir()
    flock, tried = fcntl.flock, list[int]()

    def without_locks(handle: int, how: int) -> None:
        tried.append(handle)
        if len(tried) == 1:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with exclusive_file(tmp_path / "trace.json", [tmp_path, elsewhere], threading.Event(), 0.0) as held:
        assert held and len(list(elsewhere.iterdir())) == 1
        assert list(tmp_path.iterdir()) == [elsewhere]


@pytest.mark.processes
def test_a_file_that_is_no_trace_is_never_written_over(bench: Bench) -> None:
    (bench.folder / "train.py").write_text("import torch\n")
    error = bench.failed(bench.work(file="train.py"))
    assert error.failure_class is F.INPUT_UNREADABLE and "would overwrite it" in error.cause
    assert (bench.folder / "train.py").read_text() == "import torch\n"
    (bench.folder / "trace.json").write_text('{"schemaVersion": 1, "dev')  # of a run that was killed
    assert sum(batch.records.num_rows for batch in bench.measure(bench.work())[0]) == 60


@pytest.mark.processes
def test_the_clock_of_the_disk_tells_what_was_written_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That of the box goes an hour ahead of it.
    ahead = time.time_ns() + 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: ahead)
    monkeypatch.setattr(time, "time", lambda: ahead / 1e9)
    assert sum(batch.records.num_rows for batch in bench.measure(bench.work())[0]) == 60


def test_a_folder_that_cannot_be_written_has_its_lock_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "private"
    elsewhere.mkdir()
    cancelled = threading.Event()
    folders = [tmp_path / "not" / "there", elsewhere]
    with exclusive_file(tmp_path / "trace.json", folders, cancelled, 0.0):
        assert len(list(elsewhere.iterdir())) == 1
        cancelled.set()
        with exclusive_file(tmp_path / "trace.json", folders, cancelled, 30.0) as held:
            assert not held
    with (
        pytest.raises(ProfilerError, match="no lock can be made"),
        exclusive_file(tmp_path / "trace.json", folders[:1], cancelled, 0.0),
    ):
        raise AssertionError
