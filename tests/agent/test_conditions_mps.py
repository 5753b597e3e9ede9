"""A share of the SMs on a real GPU: the life of its private MPS daemon, with stand-ins."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from assay_agent.conditions import makes_partitions, mps_control, undo_leftovers
from assay_agent.conditions.journal import Journal
from assay_agent.daemon.places import installed_places
from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers import live
from assay_core.processes import tool_run
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import BASELINE, Condition, TableMetadata, launch_schema, table_metadata
from assay_sampling.running.failures import FailureClass
from assay_virtual.gpu_models import MODELS
from tests.support.agent import mps_stand_in
from tests.support.agent.conditions_bench import HALF_AT_BASE, Bench, Killed

pytestmark = pytest.mark.processes

HALF = replace(BASELINE, sm_percent=50.0)
QUICK = tool_run.EndingSteps(0.2, 0.2)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mps_stand_in.driver_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bench(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A box; whatever a test leaves on it fails the test."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = Bench(Path(folder))
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setitem(sys.modules, "pynvml", made.nvml)  # type: ignore[arg-type]
        monkeypatch.setattr(mps_control, "_QUIT_SECONDS", 0.5)
        monkeypatch.setattr(mps_control, "_FORCE_SECONDS", 1)
        monkeypatch.setattr(mps_control, "_ENDING", QUICK)
        for name in ("bin", "lib"):
            (made.folder / name).mkdir()
        (made.folder / "lib" / library.name).symlink_to(library)
        mps_stand_in.control_program(made.folder / "bin")
        yield made
        left = made.left()
        for process in made.processes():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        assert left == []


def until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("percent", "sms"), [(50.0, 40), (12.5, 10), (33.33, 26), (1.0, 2), (99.0, 78), (100.0, 80)]
)
def test_a_share_is_set_read_back_and_probed(bench: Bench, percent: float, sms: int) -> None:
    condition = replace(BASELINE, sm_percent=percent)
    measurement = bench.measure(bench.work(condition=condition, under_mps=True))
    assert measurement.result is not None
    assert measurement.result.stdout == f"status 0 SMs {sms}\n"
    assert f"all_sms=80, cuda_version=12.4, effective_sms={sms}" in measurement.log.text
    assert "mps_clients=1" in measurement.log.text
    assert "MPS: the daemon ended by quit\n" in measurement.log.text + "\n"
    assert measurement.log.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(bench.base / "mps" / "p")
    table = measurement.labelled(launch_schema(TableMetadata("light")), "1")
    assert [device.sm_count for device in table_metadata(pa.schema(table)).devices] == [sms]
    assert "sm_share_not_in_force" not in {flag.name for flag in measurement.flags}


def test_without_a_share_no_daemon_is_started_and_nobodys_is_used(bench: Bench) -> None:
    measurement = bench.measure(bench.work())
    assert measurement.result is not None
    assert measurement.result.stdout == "status 0 SMs 80\n"
    pipe = Path(measurement.log.environment["CUDA_MPS_PIPE_DIRECTORY"])
    assert pipe == bench.base / "no-mps"
    assert list(pipe.iterdir()) == []
    assert measurement.device.sm_count == 80


def test_where_nothing_tells_the_sms_of_the_gpu_a_process_without_mps_is_asked(bench: Bench) -> None:
    bench.sm_count = None
    measurement = bench.measure(bench.work(condition=HALF))
    assert "all_sms=80, cuda_version=12.4, effective_sms=40" in measurement.log.text


@pytest.mark.parametrize(
    ("faults", "cuda", "cause"),
    [
        ("not_in_force", "", "50 % was set, but the probe sees all 80 SMs"),
        ("keeps_share", "", "50 % was set, but the MPS daemon says that 100 % is in force"),
        ("dies", "", "ended at once (An instance of this daemon is already running)"),
        ("", "no_device", "the probe of the SMs failed: cuInit: 100 (no device)"),
        ("", "other_gpu", "it sees GPU-ff112233-4455-6677-8899-aabbccddeeff instead of GPU-00112233"),
    ],
)
def test_no_share_in_force_no_run(bench: Bench, faults: str, cuda: str, cause: str) -> None:
    bench.variables = {"ASSAY_TEST_MPS": faults, "ASSAY_TEST_CUDA": cuda}
    with pytest.raises(ProfilerError) as caught:
        bench.measure(bench.work(condition=HALF))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE
    assert cause in caught.value.cause
    assert not caught.value.failure.retryable


def test_many_more_sms_than_the_share_are_no_share(bench: Bench) -> None:
    bench.variables = {"ASSAY_TEST_MPS": "half_again"}
    with pytest.raises(ProfilerError, match=r"50 % of 80 SMs was set, but the probe sees 60") as caught:
        bench.measure(bench.work(condition=HALF))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


def test_many_fewer_sms_than_the_share_are_no_share(bench: Bench) -> None:
    bench.variables = {"ASSAY_TEST_MPS": "quarter_left"}
    with pytest.raises(ProfilerError, match=r"50 % of 80 SMs was set, but the probe sees 10") as caught:
        bench.measure(bench.work(condition=HALF))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


PARTITION = replace(HALF, sm_share="partition")


@pytest.mark.parametrize(
    ("percent", "sms", "in_force"), [(50.0, 40, 50), (33.33, 24, 30), (10.0, 8, 10), (99.0, 72, 90)]
)
@pytest.mark.parametrize("faults", ["", "wordy"])
def test_a_partition_of_whole_chunks_is_made_listed_and_probed(
    bench: Bench, percent: float, sms: int, in_force: float, faults: str
) -> None:
    bench.capability, bench.variables = "9.0", {"ASSAY_TEST_MPS": faults}
    measurement = bench.measure(bench.work(condition=replace(PARTITION, sm_percent=percent), under_mps=True))
    assert measurement.result is not None
    assert measurement.result.stdout == f"status 0 SMs {sms}\n"
    facts = measurement.log.facts
    assert facts is not None
    shown = facts.condition
    assert (shown.sm_share, shown.sm_percent, shown.sm_percent_in_force) == ("partition", percent, in_force)
    assert (shown.effective_sms, shown.all_sms) == (sms, 80)
    assert f"sm_chunks={sms // 8}" in measurement.log.text
    assert measurement.log.environment["CUDA_MPS_SM_PARTITION"] == f"{mps_stand_in.UUID}/Dx0AAAA"
    assert "MPS: the daemon ended by quit" in measurement.log.text


@pytest.mark.parametrize(
    ("capability", "faults", "offered"),
    [("9.0", "", True), ("8.0", "", True), ("7.5", "", False), ("", "", False), ("9.0", "old", False)],
)
def test_a_slot_says_whether_its_sms_can_be_partitioned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capability: str, faults: str, offered: bool
) -> None:
    """The server gives runs at a partition to such slots alone."""
    monkeypatch.setenv("PATH", bench.gpu.path)
    monkeypatch.setenv("ASSAY_TEST_MPS", faults)
    bench.capability, bench.variables = capability, {"ASSAY_TEST_MPS": faults}
    assert makes_partitions(bench.gpu) is offered
    device = InstalledDevice(0, "Stand-in", mps_stand_in.UUID, capability, 80, 1 << 34)
    if not faults:
        [place] = installed_places(Inventory("host", "0", 1, 1, (device,)), bench.state)
        assert place.slot.sm_partitions is offered
    assert not makes_partitions(replace(bench.gpu, model=MODELS.gpu("V100", 0).model))
    assert not makes_partitions(replace(bench.gpu, path="/nowhere"))


@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        ("old", "it is older than CUDA 13.1 (asked for its version it says: Cannot find MPS control daemon"),
        ("no_partitions", "made no partition of 5 chunks: Failed to fulfill the requested SM partition of 5"),
        ("unlisted", "does not list its partition Dx0AAAA"),
        ("lost_partition", "the probe of the SMs failed: cuInit: 915"),
        ("half_lost", "50 % of 80 SMs was set, but the probe sees 20"),
    ],
)
def test_no_partition_in_force_no_run(bench: Bench, faults: str, cause: str) -> None:
    bench.capability, bench.variables = "9.0", {"ASSAY_TEST_MPS": faults}
    with pytest.raises(ProfilerError) as caught:
        bench.measure(bench.work(condition=PARTITION))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE
    assert cause in caught.value.cause
    assert bench.left() == []


def test_a_share_smaller_than_a_chunk_is_no_partition(bench: Bench) -> None:
    bench.capability = "9.0"
    with pytest.raises(ProfilerError, match=r"9\.9 % of 80 SMs is less than one chunk"):
        bench.measure(bench.work(condition=replace(PARTITION, sm_percent=9.9)))


@pytest.mark.parametrize("capability", ["7.0", "7.5", ""])
def test_gpus_before_ampere_have_no_partitions(bench: Bench, capability: str) -> None:
    bench.capability = capability
    with pytest.raises(ProfilerError, match="have no static partitions") as caught:
        bench.measure(bench.work(condition=PARTITION))
    assert "leave sm_share out" in caught.value.remedy


def test_all_sms_under_a_daemon_are_all_of_the_gpu(bench: Bench) -> None:
    bench.variables = {"ASSAY_TEST_MPS": "half_lost"}
    with pytest.raises(ProfilerError, match=r"the probe sees 40 SMs at 100 %, but the GPU has 80") as caught:
        bench.measure(bench.work(under_mps=True))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


def test_a_daemon_that_hangs_at_its_start_ends_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps_control, "_START_SECONDS", 1.0)
    monkeypatch.setattr(mps_control.MpsControl.tell, "__defaults__", (0.5,))
    bench.variables = {"ASSAY_TEST_MPS": "silent"}
    with pytest.raises(ProfilerError, match="did not start within 1 s: the MPS daemon does not answer"):
        bench.measure(bench.work(condition=HALF))


@pytest.mark.parametrize(
    ("fault", "ending"), [("never_quits", "quit -t 1"), ("stubborn", "signals, because it did not quit")]
)
def test_a_daemon_that_does_not_quit_is_ended(
    bench: Bench, fault: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = mps_control.MpsControl.tell
    monkeypatch.setattr(
        mps_control.MpsControl, "tell", lambda self, command, seconds=1.0: tell(self, command, seconds)
    )
    bench.variables = {"ASSAY_TEST_MPS": fault}
    measurement = bench.measure(bench.work(condition=HALF))
    assert f"MPS: the daemon ended by {ending}" in measurement.log.text


def test_a_full_disk_keeps_no_daemon_alive(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Journal.step

    def full_at_the_end(journal: Journal, name: str, at: str, **facts: str | int) -> None:
        if at == "stop":
            raise StorageError(str(journal.path), "No space left on device")
        step(journal, name, at, **facts)

    monkeypatch.setattr(Journal, "step", full_at_the_end)
    measurement = bench.measure(bench.work(condition=HALF))
    assert "MPS: the daemon ended by quit" in measurement.log.text
    assert bench.left() == []
    # The lock of the GPU was the daemon's too.
    monkeypatch.setattr("assay_agent.execution.environment._LOCK_SECONDS", 0.5)
    assert "effective_sms=40" in bench.measure(bench.work(condition=HALF)).log.text


@pytest.mark.parametrize("how", ["time", "cancelled"])
def test_clients_are_terminated_before_signals_end_them(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, told = threading.Event(), bench.folder / "told"
    bench.variables = {"ASSAY_TEST_MPS_TOLD": str(told)}
    monkeypatch.setattr(live, "run_tool", lambda *a, **more: tool_run.run_tool(*a, **more, ending=QUICK))
    work = bench.work(seconds=60, condition=HALF, timeout_seconds=2.0 if how == "time" else 30.0)
    if how == "cancelled":
        threading.Timer(2.0, cancelled.set).start()
    with bench.measurement(work, cancelled) as measurement:
        if how == "time":
            with pytest.raises(ProfilerError) as caught:
                list(measurement.batches())
            assert caught.value.failure_class is FailureClass.HANG
        else:
            assert list(measurement.batches()) == []
    (said,) = (line for line in measurement.log.text.splitlines() if line.startswith("MPS: clients"))
    client = said.removeprefix("MPS: clients terminated: ")
    commands = [line.split() for line in told.read_text().splitlines()]
    (ended,) = (words for words in commands if words[0] == "terminate_client")
    # Server, then client; and only then the daemon is told to quit.
    assert ["get_client_list", ended[1]] in commands and ended[2] == client
    assert commands.index(ended) < commands.index(["quit"])
    assert "MPS: the daemon ended by quit" in measurement.log.text


def test_a_daemon_that_ends_during_the_run_is_a_failure(bench: Bench) -> None:
    with bench.measurement(bench.work(seconds=1.0, condition=HALF)) as measurement:
        pids = (bench.base / "mps" / "p" / "nvidia-cuda-mps-control.pid").read_text()
        os.kill(int(pids), signal.SIGKILL)
        with pytest.raises(ProfilerError, match="the MPS daemon ended during the run") as caught:
            list(measurement.batches())
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


def test_a_workload_that_goes_past_the_daemon_is_flagged(bench: Bench) -> None:
    measurement = bench.measure(bench.work(how="strayed", condition=HALF))
    assert measurement.result is not None
    assert measurement.result.stdout == "status 0 SMs 80\n"
    flags = {flag.name: flag for flag in measurement.flags}
    assert flags["sm_share_not_in_force"].invalidates
    assert "no process of the workload was a client" in flags["sm_share_not_in_force"].detail


def test_where_the_daemon_logs_no_clients_nothing_is_said_of_them(bench: Bench) -> None:
    bench.variables = {"ASSAY_TEST_MPS": "no_log"}
    measurement = bench.measure(bench.work(condition=HALF))
    assert "sm_share_not_in_force" not in {flag.name for flag in measurement.flags}


def test_without_the_control_program_there_is_no_run(bench: Bench) -> None:
    (bench.folder / "bin" / mps_control.PROGRAM).unlink()
    with pytest.raises(ProfilerError, match="is not in the PATH of the agent") as caught:
        bench.measure(bench.work(condition=HALF))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


def test_a_folder_whose_sockets_would_have_too_long_names_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = bench.folder / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(ProfilerError, match=r"would have paths of 1\d\d bytes") as caught:
        bench.measure(bench.work(condition=HALF))
    assert "TMPDIR" in caught.value.remedy
    assert bench.left() == []


@pytest.fixture
def stranger() -> Iterator[tuple[Path, list[bytes]]]:
    """Somebody else's daemon: its pipe folder, and what it was told."""
    heard: list[bytes] = []
    with tempfile.TemporaryDirectory(prefix="stranger-") as folder, socket.socket(socket.AF_UNIX) as control:
        control.bind(f"{folder}/control")
        control.listen()
        with socket.socket(socket.AF_UNIX) as privileged:
            privileged.bind(f"{folder}/control_privileged")
            privileged.listen()
            control.settimeout(0.05)
            yield Path(folder), heard
        with contextlib.suppress(TimeoutError):
            channel, _ = control.accept()
            heard.append(channel.recv(100))


@pytest.mark.parametrize("condition", [BASELINE, HALF])
def test_a_strangers_daemon_is_left_alone_and_kept_away_from(
    bench: Bench, condition: Condition, stranger: tuple[Path, list[bytes]]
) -> None:
    pipe, heard = stranger
    measurement = bench.measure(bench.work(condition=condition))
    flags = {flag.name: flag for flag in measurement.flags}
    assert str(pipe) in flags["foreign_mps_daemon"].detail
    assert not flags["foreign_mps_daemon"].invalidates
    assert heard == []
    assert sorted(path.name for path in pipe.iterdir()) == ["control", "control_privileged"]


def start_daemon(bench: Bench) -> None:
    """A daemon of ours, in the background, that nothing supervises."""
    pipe, log = bench.base / "mps" / "p", bench.base / "mps" / "l"
    for folder in (pipe, log):
        folder.mkdir(parents=True)
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
    subprocess.run([bench.folder / "bin" / mps_control.PROGRAM, "-d"], env=variables, check=True)
    until((pipe / "nvidia-cuda-mps-control.pid").exists)


def test_a_daemon_that_another_agent_of_this_user_left_is_replaced(bench: Bench) -> None:
    start_daemon(bench)
    measurement = bench.measure(bench.work(condition=HALF))
    assert "effective_sms=40" in measurement.log.text


def test_an_entry_of_an_earlier_agent_is_undone_before_the_next_run(bench: Bench) -> None:
    start_daemon(bench)
    bench.journal.step("mps", "probe", base=str(bench.base), program="/nowhere/nvidia-cuda-mps-control")
    bench.journal.step("clocks", "lock", clock="base")
    bench.nvml.change(locked=[1, 1])
    measurement = bench.measure(bench.work())
    assert measurement.result is not None
    assert measurement.result.stdout == "status 0 SMs 80\n"


def test_a_gpu_that_another_agent_uses_is_not_touched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay_agent.conditions import leftovers  # noqa: PLC0415

    monkeypatch.setattr(leftovers, "_LOCK_SECONDS", 0.2)
    bench.journal.step("mps", "probe", base=str(bench.base), program="/nowhere/nvidia-cuda-mps-control")
    other = Bench(bench.folder)
    with other.measurement(other.work(condition=HALF)) as measurement:
        elsewhere = bench.folder / "elsewhere"
        journal = Journal(elsewhere, mps_stand_in.UUID, bench.base / "lock")
        journal.step("mps", "probe", base=str(bench.base), program="/nowhere/nvidia-cuda-mps-control")
        undo_leftovers(elsewhere)
        assert list(measurement.batches()) == []
        assert measurement.result is not None
        assert measurement.result.stdout == "status 0 SMs 40\n"
        assert journal.path.exists()
    undo_leftovers(elsewhere)
    assert not journal.path.exists()


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    made = Killed()
    yield made
    made.close()


# As often as the journal is written in a run at half the SMs and at the base clock: clocks, then the folders,
# daemon, share, probe and run of MPS, then its end, and those of MPS and clocks.
STEPS = 9


def test_the_steps_of_a_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[list[tuple[str, str]]] = []
    write = Journal._write

    def noted(journal: Journal, entries: dict[str, dict[str, str]]) -> None:
        steps.append([(name, entry["step"]) for name, entry in entries.items()])
        write(journal, entries)

    monkeypatch.setattr(Journal, "_write", noted)
    bench.measure(bench.work(condition=HALF_AT_BASE))
    clocks = ("clocks", "lock")
    of_mps = ["folders", "daemon", "share", "probe", "in force", "stop"]
    assert steps == [[clocks], *([clocks, ("mps", step)] for step in of_mps), [clocks], []]
    assert len(steps) == STEPS


# Just before a step is written, what it is about is there already.
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_an_agent_killed_at_any_step_leaves_nothing_after_the_next_start(
    bench: Bench, killed: Killed, step: int, when: str
) -> None:
    killed.start(bench.folder, step, when)
    assert killed.ended() == -signal.SIGKILL
    undo_leftovers(bench.state)
    assert bench.left() == []


@pytest.mark.parametrize("also", ["", "supervisors"])
def test_an_agent_killed_while_the_workload_runs_leaves_nothing_after_the_next_start(
    bench: Bench, killed: Killed, also: str
) -> None:
    process = killed.start(bench.folder, 0, "during")
    until(lambda: any("ctypes" in command for command in bench.processes().values()))
    time.sleep(0.3)
    assert bench.nvml.state["locked"] is not None
    os.kill(process, signal.SIGKILL)
    for other, command in bench.processes().items():
        if also and "supervisor.py" in command:
            os.kill(other, signal.SIGKILL)
    assert killed.ended() == -signal.SIGKILL
    assert "journal: " in " ".join(bench.left())
    inventory = Inventory("host", "0", 1, 1, no_device_reason="the driver went away")
    assert list(installed_places(inventory, bench.state)) == []
    assert bench.left() == []
