"""The agent in one process with a fake server and a profiler of the test's own making."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_agent.daemon.state import StateDirectory
from assay_agent.execution.errors import ProfilerError
from assay_agent.health.internal_errors import InternalErrors
from assay_agent.spool.spool import Spool
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.failure import failure
from assay_core.records.machine import Inventory
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, Work
from assay_protos import agent_pb2, common_pb2
from assay_sampling.errors import InputError, ParameterError, StorageError
from assay_sampling.launches.table import BASELINE, LaunchBatch
from assay_sampling.running.failures import FailureClass
from tests.support.agent.fake_server import FakeServer, batches_of, table_of, wait_for

LAUNCHES = 2_000


class ScriptedProfiler:
    """Gives ``LAUNCHES`` launches, seeded by the run's number; ``between`` is called after each batch."""

    name = "recorded"

    def __init__(self) -> None:
        self.between: Callable[[Work, threading.Event], None] = lambda work, cancelled: None
        self.running: list[str] = []
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.ended: list[str] = []
        self.at_the_end: tuple[ValidityFlag, ...] = ()

    def plan(self, work: Work) -> list[str] | None:
        return ["ncu", work.workload]

    def run(self, work: Work, cancelled: threading.Event) -> ScriptedMeasurement:
        return ScriptedMeasurement(self, work, cancelled)


class ScriptedMeasurement:
    def __init__(self, profiler: ScriptedProfiler, work: Work, cancelled: threading.Event) -> None:
        self._profiler, self._work, self._cancelled = profiler, work, cancelled
        self.flags = (ValidityFlag("counters_nan", "3 of 7"),)
        self.log = AttemptLog(("ncu", work.workload), {"LC_ALL": "C"}, "==PROF== fine")

    def batches(self) -> Iterator[LaunchBatch]:
        for batch in batches_of(LAUNCHES, 100, seed=seed_of(self._work.key.run_id)):
            yield batch
            self._profiler.between(self._work, self._cancelled)
            if self._cancelled.is_set():
                return

    def __enter__(self) -> Self:
        with self._profiler.lock:
            self._profiler.running.append(self._work.key.run_id)
            self._profiler.most_at_once = max(self._profiler.most_at_once, len(self._profiler.running))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flags += self._profiler.at_the_end
        if self._profiler.at_the_end:
            self.log = replace(self.log, text=self.log.text + "\nundone")
        with self._profiler.lock:
            self._profiler.running.remove(self._work.key.run_id)
            self._profiler.ended.append(self._work.key.run_id)


def seed_of(run_id: str) -> int:
    return int(run_id.rpartition(".")[2])


def expected(run_id: str) -> Any:
    return table_of(batches_of(LAUNCHES, 100, seed=seed_of(run_id)))


def config_for(server: FakeServer, state: Path, **options: Any) -> AgentSettings:
    fields = {"minimum_free_bytes": 0, "flush_seconds": 0.0, "name": "box", **options}
    return AgentSettings(server=server.address, state_dir=state, **fields)


class RunningAgent:
    def __init__(self, config: AgentSettings, profiler: ScriptedProfiler) -> None:
        inventory = Inventory("host", "0", 2, 1 << 30, no_device_reason="none here")
        self.agent = Agent(config, profilers={"recorded": profiler}, inventory=lambda: inventory)
        self.problems: list[BaseException] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as problem:  # noqa: BLE001 - looked at by the test
            self.problems.append(problem)

    def stop(self, drain_seconds: float | None = None) -> None:
        self.agent.stop(drain_seconds)
        self.thread.join(120)
        assert not self.thread.is_alive()


@contextmanager
def running(
    server: FakeServer, state: Path, profiler: ScriptedProfiler, **options: Any
) -> Iterator[RunningAgent]:
    before = set(threading.enumerate())  # those of tests that ran earlier in this process
    made = RunningAgent(config_for(server, state, **options), profiler)
    try:
        yield made
    finally:
        made.stop()
        assert not made.problems
        left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("assay-")]
        assert left == []


@pytest.fixture
def profiler() -> ScriptedProfiler:
    return ScriptedProfiler()


def test_runs_are_measured_sent_and_finished(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    for i in range(5):
        server.add_run(f"c-1.000{i}", workload=f"w{i}")
    with running(server, tmp_path, profiler):
        wait_for(lambda: len(server.published) == 5)
    for i in range(5):
        assert server.table(f"c-1.000{i}").equals(expected(f"c-1.000{i}"))
    finish = server.published["c-1.0003"][1]
    assert [(f.name, f.detail, f.invalidates) for f in finish.flags] == [("counters_nan", "3 of 7", False)]
    assert list(finish.log.command) == ["ncu", "w3"]
    assert dict(finish.log.environment) == {"LC_ALL": "C"}
    assert finish.log.log == "==PROF== fine"
    assert list((tmp_path / "spool").iterdir()) == []
    (registration,) = server.registrations
    assert registration.name == "box"
    assert registration.inventory.no_device_reason == "none here"
    assert [(s.slot_id, list(s.profilers)) for s in registration.slots] == [("recorded-0", ["recorded"])]


def test_what_is_found_when_conditions_are_undone_is_told_too(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    def fail(work: Work, cancelled: threading.Event) -> None:
        if work.workload == "failing":
            raise ProfilerError(FailureClass.APPLICATION_FAILED, "app")

    profiler.at_the_end, profiler.between = (ValidityFlag("clocks_left_locked", "no permission"),), fail
    server.add_run("c-1.0000")
    server.add_run("c-1.0001", workload="failing")
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.published and server.failures)
    finish = server.published["c-1.0000"][1]
    assert [flag.name for flag in finish.flags] == ["counters_nan", "clocks_left_locked"]
    assert finish.log.log == "==PROF== fine\nundone"
    (failure,) = server.failures
    assert failure.log.log == "==PROF== fine\nundone"


def test_a_slot_takes_one_run_at_a_time(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    # Nobody ends before three have run at once.
    profiler.between = lambda work, cancelled: wait_for(lambda: profiler.most_at_once >= 3)
    for i in range(9):
        server.add_run(f"c-1.000{i}")
    with running(server, tmp_path, profiler, recorded_slots=3):
        wait_for(lambda: len(server.published) == 9)
    assert profiler.most_at_once == 3
    assert [s.slot_id for s in server.registrations[0].slots] == ["recorded-0", "recorded-1", "recorded-2"]


def test_leases_are_kept_alive_with_progress(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    gate = threading.Event()
    profiler.between = lambda work, cancelled: gate.wait(30) and None
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler):
        wait_for(lambda: any(a.launches_spooled for h in server.heartbeats for a in h.attempts))
        gate.set()
        wait_for(lambda: server.published)
    progress = [a for h in server.heartbeats for a in h.attempts if a.launches_spooled]
    assert {a.key.run_id for a in progress} == {"c-1.0000"}
    assert progress[0].launches_spooled == 100


def test_a_short_lease_is_kept_alive_more_often_than_the_server_asks(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.heartbeat_ms = 3_600_000
    gate = threading.Event()
    profiler.between = lambda work, cancelled: gate.wait(30) and None
    server.add_run("c-1.0000", lease_remaining_ms=300)
    with running(server, tmp_path, profiler):
        wait_for(lambda: sum(1 for h in server.heartbeats if h.attempts) >= 3)
        gate.set()
        wait_for(lambda: server.published)


def test_an_idle_agent_is_silent_for_longer_and_an_attempt_is_told_of_at_once(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.idle_heartbeat_ms = 3_600_000
    gate = threading.Event()
    profiler.between = lambda work, cancelled: gate.wait(30) and None
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.heartbeats)  # the first tells how the spool is
        server.add_run("c-1.0000")
        wait_for(lambda: sum(1 for h in server.heartbeats if h.attempts) >= 3)
        gate.set()
        wait_for(lambda: server.published)
    # one that was due when the attempt ended may follow without it, so only those before it count
    assert [bool(heartbeat.attempts) for heartbeat in server.heartbeats[:2]] == [False, True]


def test_an_attempt_that_is_not_wanted_any_more_is_dropped(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    profiler.between = lambda work, cancelled: work.key.run_id == "c-1.0000" and cancelled.wait(30)
    work = server.add_run("c-1.0000")
    with running(server, tmp_path, profiler):
        wait_for(lambda: profiler.running == ["c-1.0000"])
        server.drop_at_heartbeat.add(("c-1.0000", 0, 1, work.key.token))
        wait_for(lambda: profiler.ended == ["c-1.0000"])
        server.add_run("c-1.0001")
        wait_for(lambda: "c-1.0001" in server.published)
    assert server.failures == []
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_server_without_memory_is_registered_with_again(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    with running(server, tmp_path, profiler) as agent:
        wait_for(lambda: agent.agent.registered)
        for i in range(2):
            with server.changed:
                server.sessions.clear()
            server.add_run(f"c-1.000{i}")
            wait_for(lambda run_id=f"c-1.000{i}": run_id in server.published)
    assert len(server.registrations) == 3
    assert len({r.session_id for r in server.registrations}) == 1


def test_a_server_that_goes_away_and_comes_back_loses_nothing(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    profiler.between = lambda work, cancelled: time.sleep(0.01)
    server.stop()
    with running(server, tmp_path, profiler) as agent:
        time.sleep(0.2)
        assert not agent.agent.registered
        server.add_run("c-1.0000")
        server.start()
        wait_for(lambda: any(len(s) > 5 for s in server.segments.values()))
        server.stop()
        time.sleep(0.3)
        server.add_run("c-1.0001")
        server.start()
        wait_for(lambda: len(server.published) == 2)
    for run_id in ("c-1.0000", "c-1.0001"):
        assert server.table(run_id).equals(expected(run_id))
        assert server.published[run_id][0][2] == 1, "the first attempt went on"


def test_a_finish_whose_answer_is_lost_is_asked_again(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    broken = []
    server.break_stream = lambda where: where == "finish" and len(broken) < 2 and not broken.append(where)
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.published)
        wait_for(lambda: not list((tmp_path / "spool").iterdir()))
    assert server.table("c-1.0000").equals(expected("c-1.0000"))
    assert len(broken) == 1


def test_a_failure_of_the_profiler_is_a_result(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    problems = {
        "c-1.0000": InputError("/data/x.csv", "a number cannot be read", line=7, field="ID"),
        "c-1.0001": ProfilerError(FailureClass.PERMISSION, "GPU-1"),
        "c-1.0002": ZeroDivisionError("division by zero"),
    }

    def between(work: Work, cancelled: threading.Event) -> None:
        raise problems[work.key.run_id]

    profiler.between = between
    for run_id in problems:
        server.add_run(run_id)
    server.add_run("c-1.0003", profiler="cupti")
    with running(server, tmp_path, profiler):
        wait_for(lambda: len(server.failures) == 4)
    told = [(f.failure.failure_class, f.failure.subject, f.failure.cause) for f in server.failures]
    assert told == [
        ("internal", "/data/x.csv:7: field 'ID'", "a number cannot be read"),
        ("permission", "GPU-1", FailureClass.PERMISSION.meaning),
        ("internal", "run c-1.0002 slice 0 attempt 1", "ZeroDivisionError: division by zero"),
        (
            "server_refused",
            "run c-1.0003 slice 0 attempt 1",
            "this agent does not have the profiler 'cupti', only recorded",
        ),
    ]
    assert all(f.failure.remedy and not f.failure.retryable for f in server.failures)
    assert list(server.failures[0].log.command) == ["ncu", "w"]
    assert server.failures[0].log.log == "==PROF== fine"
    assert list((tmp_path / "spool").iterdir()) == []


def test_internal_errors_of_two_runs_in_a_row_are_the_slots_and_a_run_that_ends_ends_the_row(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    def between(work: Work, cancelled: threading.Event) -> None:
        if work.key.run_id != "c-1.0003":
            raise ZeroDivisionError("division by zero")

    profiler.between = between
    with running(server, tmp_path, profiler):
        for number, ended in ((1, 1), (2, 3), (3, 4), (4, 5)):
            server.add_run(f"c-1.000{number}")
            wait_for(lambda: len(server.failures) + len(server.published) == ended)  # noqa: B023
    # The second run is tried again, fails alike, and so ends.
    told = [(f.key.run_id[-1], f.failure.failure_class) for f in server.failures]
    assert told == [("1", "internal"), ("2", "slot_broken"), ("2", "internal"), ("4", "internal")]
    assert "ZeroDivisionError" in server.failures[1].failure.cause


def test_a_run_that_is_internal_twice_itself_ends() -> None:
    errors, key = InternalErrors(), AttemptKey("c-1.0000", 0, 1, 1)
    problem = failure(FailureClass.INTERNAL, "run", "a fault")
    other = replace(key, run_id="c-1.0001")
    said = [errors.judged(each, problem) for each in (key, other, other, key)]
    assert [each and each.failure_class for each in said] == [
        "internal", "slot_broken", "internal", "slot_broken"
    ]  # fmt: skip
    assert errors.judged(other, None) is None and errors.judged(other, problem) == problem


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_a_disk_that_fails_under_a_profiler_is_the_boxs_fault_and_the_run_keeps_its_tries(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler, number: int
) -> None:
    def between(work: Work, cancelled: threading.Event) -> None:
        raise OSError(number, os.strerror(number), "trace.nsys-rep")

    profiler.between = between
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.failures)
    failed = server.failures[0].failure
    assert (failed.failure_class, failed.retryable) == ("disk_full", True)
    assert os.strerror(number) in failed.cause


def test_a_failure_does_not_tell_the_secrets_of_a_campaign(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    """A program's last words are quoted, and they may be what it was given."""

    def between(work: Work, cancelled: threading.Event) -> None:
        raise ProfilerError(FailureClass.APPLICATION_FAILED, "./train", "last words: no login with hunter-22")

    profiler.between = between
    secret = {"DB_PASSWORD": "hunter-22"}
    server.add_run("c-1.0000", command=agent_pb2.CommandSource(argv=["/bin/true"], environment=secret))
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.failures)
    (failed,) = server.failures
    assert failed.failure.failure_class == "application_failed"
    assert failed.failure.cause == "last words: no login with (hidden)"


def test_work_of_another_release_fails_instead_of_being_leased_for_ever(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.add_run("c-1.0000").run.level = 77
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.failures)
    (failed,) = server.failures
    assert (failed.key.run_id, failed.failure.failure_class) == ("c-1.0000", "server_refused")
    assert failed.failure.cause == "its Level has the number 77, which is not one of detailed, light, bare"


def test_a_full_spool_fails_the_attempt_and_the_next_one_may_succeed(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler, spool_limit_bytes=1_000):
        wait_for(lambda: server.failures)
    failed = server.failures[0].failure
    assert (failed.failure_class, failed.retryable) == ("disk_full", True)
    assert failed.subject == f"spool {tmp_path / 'spool'}"
    assert "no space" in failed.cause and "--spool-limit" in failed.remedy
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.published)
    assert server.table("c-1.0000").equals(expected("c-1.0000"))


def test_an_agent_told_to_stop_finishes_what_it_can(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    told = threading.Event()
    profiler.between = lambda work, cancelled: told.wait(60) and None
    server.add_run("c-1.0000")
    server.add_run("c-1.0001")
    with running(server, tmp_path, profiler) as agent:
        wait_for(lambda: profiler.running)
        agent.agent.stop(drain_seconds=60)
        told.set()
        agent.stop()
    assert list(server.published) == ["c-1.0000"]
    assert len(server.waiting) == 1


def test_an_agent_told_to_stop_hands_back_what_it_cannot_finish(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    profiler.between = lambda work, cancelled: cancelled.wait(600) and None
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler) as agent:
        wait_for(lambda: profiler.running)
        agent.stop(drain_seconds=0.1)
    (failed,) = server.failures
    assert (failed.failure.failure_class, failed.failure.retryable) == ("agent_restarted", True)
    assert failed.failure.cause == "the agent was told to stop"
    assert server.waiting[0].key.attempt == 2


def test_an_agent_told_to_stop_while_nothing_answers_stops(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.stop()
    with running(server, tmp_path, profiler):
        time.sleep(0.2)


def test_a_complete_attempt_is_kept_over_a_stop_and_sent_by_the_next_process(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    server.hold_acks.clear()
    server.add_run("c-1.0000")
    with running(server, tmp_path, profiler) as agent:
        wait_for(lambda: list((tmp_path / "spool").rglob("seal.json")))
        agent.stop(drain_seconds=0.1)
    assert server.failures == [] and not server.published
    server.hold_acks.set()
    with running(server, tmp_path, profiler):
        wait_for(lambda: server.published)
        wait_for(lambda: not list((tmp_path / "spool").iterdir()))
    assert server.table("c-1.0000").equals(expected("c-1.0000"))
    assert profiler.ended == ["c-1.0000"], "it was measured once"
    first, second = server.registrations
    assert first.agent_id == second.agent_id and first.session_id != second.session_id
    assert [each.key.run_id for each in second.held] == ["c-1.0000"]


def test_what_an_earlier_process_left_is_resumed_dropped_or_made_again(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    with StateDirectory(tmp_path) as state:
        spool = Spool(state.spool, minimum_free_bytes=0, flush_seconds=0.0)
        for number, complete in enumerate((True, True, False)):
            work = server.add_run(f"c-1.000{number}")
            server.waiting.remove(work)
            key = AttemptKey.from_proto(work.key)
            assignment = Work(
                key=key,
                campaign_id="c-1",
                workload="w",
                device_kind="V100",
                level="light",
                condition=BASELINE,
                profiler="recorded",
            )
            attempt = spool.create(replace(assignment, write_secret=work.write_secret))
            for batch in batches_of(LAUNCHES, 100, seed=number):
                attempt.append(batch)
            if complete:
                attempt.seal((), AttemptLog(text=f"log {number}"))
            if number != 1:  # the server has forgotten the second one
                server.leased[key.run_id, 0, 1, key.token] = ("an earlier session", work)
        spool.close()
    with running(server, tmp_path, profiler):
        wait_for(lambda: len(server.published) == 2)
        wait_for(lambda: not list((tmp_path / "spool").iterdir()))
    assert server.published["c-1.0000"][1].log.log == "log 0"
    assert profiler.ended == ["c-1.0002"]
    for run_id in ("c-1.0000", "c-1.0002"):
        assert server.table(run_id).equals(expected(run_id))
    (failed,) = server.failures
    assert (failed.key.run_id, failed.failure.failure_class) == ("c-1.0002", "agent_restarted")


def test_an_identity_that_is_given_is_taken_once_and_then_kept(tmp_path: Path) -> None:
    given = "0123456789abcdef" * 2
    for asked, kept in ((given, given), ("", given), ("f" * 32, given)):
        with StateDirectory(tmp_path / "given", asked) as state:
            assert state.agent_id == kept
    with pytest.raises(ParameterError, match="agent_id: string should match pattern"):
        AgentSettings(server="127.0.0.1:1", state_dir=tmp_path, agent_id="GPU")


def test_a_second_agent_on_one_state_directory_is_refused(
    server: FakeServer, tmp_path: Path, profiler: ScriptedProfiler
) -> None:
    with running(server, tmp_path, profiler) as first:
        wait_for(lambda: first.agent.registered)
        with pytest.raises(StorageError, match=r"another agent uses it \(process \d+\); stop that agent"):
            Agent(config_for(server, tmp_path)).run()


def test_a_damaged_identity_is_an_error_with_a_remedy(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(StorageError, match="does not hold an agent's identity"):
        Agent(config_for(server, tmp_path)).run()


def test_a_state_directory_that_cannot_be_made_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"state directory .*: the disk refused"):
        Agent(config_for(server, tmp_path / "file" / "state")).run()


def test_a_state_directory_with_a_colon_is_refused(server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"which separates folders in PATH.*--state"):
        Agent(config_for(server, tmp_path / "a:b")).run()
    assert not (tmp_path / "a:b").exists()


def test_what_is_wrong_with_the_state_directory_is_said_before_what_is_wrong_in_it(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "credentials.json").write_text("damaged")
    with StateDirectory(tmp_path), pytest.raises(StorageError, match="another agent uses it"):
        Agent(config_for(server, tmp_path)).run()
    (tmp_path / "credentials" / "credentials.json").chmod(0o600)
    with pytest.raises(InputError, match="enrol again with a new token"):
        Agent(config_for(server, tmp_path)).run()


@pytest.mark.parametrize(
    "options", [{"recorded_slots": -1}, {"drain_seconds": -1.0}, {"spool_limit_bytes": -1}]
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        AgentSettings(server="unix:/x", state_dir=tmp_path, **options)


def test_work_that_is_not_understood_is_refused() -> None:
    key = common_pb2.AttemptKey(run_id="r", attempt=1)
    for run in (
        agent_pb2.RunSpec(),
        agent_pb2.RunSpec(level=77),
        agent_pb2.RunSpec(level="LEVEL_LIGHT", condition=common_pb2.Condition(cache=77)),
    ):
        with pytest.raises(Exception, match="is not one of"):
            Work.from_proto(agent_pb2.Work(key=key, run=run))
    work = Work.from_proto(
        agent_pb2.Work(key=key, run=agent_pb2.RunSpec(level="LEVEL_LIGHT"), lease_remaining_ms=1500)
    )
    assert (work.condition.cache, work.condition.sm_percent, work.lease_remaining_ms) == (None, None, 1500)


def test_work_for_a_live_run_is_taken_as_it_comes() -> None:
    run = agent_pb2.RunSpec(
        level="LEVEL_DETAILED",
        profiler="nsight_compute",
        condition=common_pb2.Condition(cache="CACHE_ALL", clock="CLOCK_BASE", sm_percent=50),
        command=agent_pb2.CommandSource(
            argv=["./a", "-n"], environment={"A": "1"}, working_directory="/w", timeout_s=7.5
        ),
        counters=["instructions"],
        under_mps=True,
    )
    key = common_pb2.AttemptKey(run_id="r", slice=2, attempt=1, token=9)
    work = Work.from_proto(agent_pb2.Work(key=key, run=run, launch_skip=10, launch_count=5))
    assert work.command == CommandSource(("./a", "-n"), {"A": "1"}, "/w", 7.5)
    assert (work.recorded, work.counters, work.under_mps) == (None, ("instructions",), True)
    assert (work.key.slice_index, work.launch_skip, work.launch_count) == (2, 10, 5)
    assert str(work.condition) == "cache=all clock=base sm=50%"
