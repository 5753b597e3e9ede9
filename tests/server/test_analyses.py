"""Analyses on an executor: started when the runs have ended, kept whole, taken up again, and survived."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.campaign import CampaignState, ChangedFile, FileChange, RunState
from assay_sampling.errors import MisalignedError, RefusedError, StorageError
from assay_sampling.launches.table import BASELINE
from assay_server import content_hash
from assay_server.analysis.runs import intact
from assay_server.analysis.runs.intact import RecordsChangedError
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.campaigns.analysing.executors import WorkerPool
from assay_server.campaigns.analysing.job import submit_analysis
from assay_server.store.model import Campaign
from tests.support.server.analysis_lab import HandExecutor, Lab
from tests.support.server.cancelling import cancel
from tests.support.server.server_support import eventually


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.analyses.close()
    lab.close()


def test_an_analysis_starts_with_the_end_of_the_last_run_and_is_told_what_there_is(lab: Lab) -> None:
    lab.end_runs()
    [request] = lab.executors[0].requests
    assert (request.campaign_id, request.campaign_name, request.synthetic) == ("made-1", "made", False)
    assert (request.seed, request.reference, request.memory_limit_bytes) == (0, None, 8 << 30)
    assert request.methods == (("pks", {}), ("random", {}), ("systematic", {}))
    first, second = request.runs
    assert isinstance(first, RunData)
    assert (first.run_id, first.workload, first.device_kind, first.level) == (
        "made-1.0000",
        "w",
        "V100",
        "light",
    )
    assert (first.condition, first.repeat, first.launches) == (BASELINE, 0, 150)
    assert [name for name, _, invalidates in first.flags if not invalidates] == ["condition_assumed"]
    assert first.files == (str(lab.state / "records/made-1.0000/slice-00000.parquet"),)
    assert len(first.content_hash) == 64 and first.content_hash != second.content_hash
    assert request.failed_runs == ()
    assert lab.campaign().state is CampaignState.ANALYSING


def test_its_report_is_kept_and_the_campaign_done(lab: Lab) -> None:
    lab.end_runs()
    lab.futures[0].set_result((b"{}", b"<p>", b"PAR1"))
    assert (lab.campaign().state, lab.campaign().failure, lab.campaign().has_report) == (
        CampaignState.DONE,
        None,
        True,
    )
    assert (lab.report("json"), lab.report("html"), lab.report("parquet")) == (b"{}", b"<p>", b"PAR1")


def test_runs_without_data_are_named_and_fail_the_campaign_with_its_report(lab: Lab) -> None:
    lab.end_runs(fail_second=True)
    [request] = lab.executors[0].requests
    assert [r.run_id for r in request.runs] == ["made-1.0000"]
    assert request.failed_runs == (
        FailedRun("made-1.0001", RunState.FAILED, request.failed_runs[0].failure, "w", "A100", "light"),
    )
    [failed] = request.failed_runs
    assert failed.failure is not None and failed.failure.subject == "/data/y"
    assert failed.reason == "input_unreadable: /data/y: it is cut off"
    lab.futures[0].set_result((b"{}", b"<p>", b"PAR1"))
    campaign = lab.campaign()
    assert (campaign.state, campaign.has_report) == (CampaignState.FAILED, True)
    assert campaign.failure is not None
    assert campaign.failure.cause == "1 of 2 runs failed; the first: /data/y: it is cut off"


@pytest.mark.parametrize(
    ("error", "failure_class", "cause"),
    [
        (RefusedError("w on V100", "it would mislead", "do not"), "server_refused", "it would mislead"),
        (
            MisalignedError("w", "only 80 % match", "record again", ("launch 3",)),
            "server_refused",
            "only 80 % match; first differences: launch 3",
        ),
        (ZeroDivisionError("division"), "internal", "ZeroDivisionError: division"),
    ],
)
def test_an_analysis_that_fails_fails_the_campaign_with_its_cause(
    lab: Lab, error: Exception, failure_class: str, cause: str
) -> None:
    lab.end_runs()
    lab.futures[0].set_exception(error)
    campaign = lab.campaign()
    assert (campaign.state, campaign.has_report) == (CampaignState.FAILED, False)
    assert campaign.failure is not None
    assert (campaign.failure.failure_class, campaign.failure.cause) == (failure_class, cause)


def test_a_restart_begins_the_analysis_again(lab: Lab) -> None:
    lab.end_runs()
    lab.analyses.close()
    lab.futures[0].set_result((b"too late", b""))
    lab.restart()
    assert lab.campaign().state is CampaignState.ANALYSING
    lab.analyses.look()
    lab.analyses.look()
    assert len(lab.futures) == 2
    lab.futures[1].set_result((b"{}", b"<p>", b"PAR1"))
    assert (lab.campaign().state, lab.report("json")) == (CampaignState.DONE, b"{}")


@pytest.fixture
def started_by_hand(tmp_path: Path) -> Iterator[tuple[Lab, HandExecutor]]:
    starter = HandExecutor()
    lab = Lab(tmp_path, starter)
    yield lab, starter
    lab.analyses.close()
    lab.close()


def test_the_agent_that_ends_the_last_run_does_not_wait_for_the_start_of_the_analysis(
    started_by_hand: tuple[Lab, HandExecutor],
) -> None:
    lab, starter = started_by_hand
    lab.end_runs()
    assert lab.campaign().state is CampaignState.ANALYSING
    assert lab.futures == []
    [start] = starter.functions
    start(*starter.calls[0])
    assert [request.campaign_id for request in lab.executors[0].requests] == ["made-1"]


def test_a_campaign_that_was_cancelled_meanwhile_is_not_analysed(
    started_by_hand: tuple[Lab, HandExecutor],
) -> None:
    lab, starter = started_by_hand
    lab.end_runs()
    with lab.coordinator.schedule() as schedule:
        cancel(schedule, "made-1")
    [start] = starter.functions
    start(*starter.calls[0])
    assert (lab.campaign().state, lab.futures) == (CampaignState.CANCELLED, [])


def test_a_broken_pool_is_replaced_and_the_analysis_begun_once_more(lab: Lab) -> None:
    lab.end_runs()
    lab.executors[0].broken = True
    lab.futures[0].set_exception(BrokenExecutor("a process died"))
    assert [len(e.futures) for e in lab.executors] == [1, 1]
    lab.futures[1].set_result((b"{}", b"<p>", b"PAR1"))
    assert lab.campaign().state is CampaignState.DONE


def test_an_analysis_that_breaks_its_pool_twice_is_given_up(lab: Lab) -> None:
    lab.end_runs()
    for _ in range(2):
        lab.executors[-1].broken = True
        lab.futures[-1].set_exception(BrokenExecutor("a process died"))
    campaign = lab.campaign()
    assert campaign.state is CampaignState.FAILED
    assert campaign.failure is not None
    assert (
        campaign.failure.cause
        == "its process died, most likely because the system ran out of memory and killed it"
    )


def test_a_campaign_that_is_tried_again_has_both_its_tries_again(lab: Lab) -> None:
    lab.end_runs()
    for _ in range(2):
        lab.futures[-1].set_exception(BrokenExecutor("a process died"))
    with lab.metadata.transaction() as store:
        store.save_campaign(replace(lab.campaign(), state=CampaignState.ANALYSING, failure=None, retried=1))
    lab.analyses.look()
    lab.futures[-1].set_exception(BrokenExecutor("a process died"))
    assert (lab.campaign().state, len(lab.futures)) == (CampaignState.ANALYSING, 4)


@pytest.mark.parametrize("tries", [0, 2])
def test_a_report_that_the_disk_refuses_again_and_again_fails_the_campaign(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_TRIES", tries)
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 0.01)
    lab.end_runs()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    def refuse_reports(self: object, *arguments: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            real(self, *arguments)

    real = type(lab.coordinator.records).stage_report
    monkeypatch.setattr(type(lab.coordinator.records), "stage_report", refuse_reports)
    for made in range(tries + 1):
        eventually(lambda made=made: len(lab.futures) == made + 1, "the next analysis")
        assert lab.campaign().state is CampaignState.ANALYSING
        lab.futures[made].set_result((b"{}", b"<p>", b"PAR1"))
    campaign = when_it_is(lab, CampaignState.FAILED)
    assert not campaign.has_report
    assert campaign.failure is not None and campaign.failure.failure_class == "disk_full"
    assert not [p for p in (lab.state / "reports").rglob("*") if p.is_file()]


AWAY = StorageError("s3://lab: records/x", "the object store does not answer", "see that it runs")


def when_it_is(lab: Lab, state: CampaignState) -> Campaign:
    """The campaign in a state that another thread brings it into."""
    eventually(lambda: lab.campaign().state is state, f"a campaign that is {state}")
    return lab.campaign()


def next_analysis(lab: Lab, number: int) -> Any:
    eventually(lambda: len(lab.futures) == number, "the next analysis")
    return lab.futures[-1]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a disk refused is tried again at once, and once."""
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_TRIES", 1)
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._LONGEST_DISK_PAUSE_SECONDS", 0.01)


def test_records_that_cannot_be_read_are_waited_for_and_the_campaign_says_so(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 1.0)
    lab.end_runs()
    lab.futures[0].set_exception(AWAY)
    campaign = lab.campaign()
    assert campaign.state is CampaignState.ANALYSING and campaign.failure is not None
    assert (campaign.failure.failure_class, campaign.failure.retryable) == ("disk_full", True)
    assert (campaign.failure.subject, campaign.failure.cause) == (AWAY.subject, AWAY.cause)
    next_analysis(lab, 2).set_result((b"{}", b"<p>", b"PAR1"))
    assert when_it_is(lab, CampaignState.DONE).failure is None


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_gives_no_records_again_and_again_fails_the_campaign(lab: Lab) -> None:
    lab.end_runs()
    for number in (1, 2):
        next_analysis(lab, number).set_exception(AWAY)
    failure = when_it_is(lab, CampaignState.FAILED).failure
    assert failure is not None and (failure.failure_class, failure.cause) == ("disk_full", AWAY.cause)


@pytest.mark.usefixtures("at_once")
def test_a_bucket_that_is_away_is_waited_for_as_long_as_it_takes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [True]

    def probe(self: object) -> None:
        if away:
            raise AWAY

    monkeypatch.setattr(type(lab.coordinator.records), "place", object())
    monkeypatch.setattr(type(lab.coordinator.records), "probe", probe)
    lab.end_runs()
    for number in range(1, 5):
        next_analysis(lab, number).set_exception(AWAY)
    last = next_analysis(lab, 5)
    assert lab.campaign().state is CampaignState.ANALYSING
    away.clear()
    last.set_exception(AWAY)  # of the time before: the bucket answers again
    next_analysis(lab, 6).set_exception(AWAY)
    when_it_is(lab, CampaignState.FAILED)


def files_of(lab: Lab) -> list[Path]:
    return [Path(run.files[0]) for run in lab.executors[0].requests[0].runs]


def tell_of(lab: Lab, number: int, *changes: FileChange) -> None:
    """A worker says of the first file of each run how it changed."""
    runs = lab.executors[0].requests[0].runs
    found = (ChangedFile(run.run_id, run.files[0], what) for run, what in zip(runs, changes, strict=False))
    next_analysis(lab, number).set_exception(RecordsChangedError(tuple(found)))


def refuse_to_read(monkeypatch: pytest.MonkeyPatch, *refused: Path) -> None:
    """The server's disk does not give these files."""

    def read(path: Path) -> str:
        if path in refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return content_hash.fresh_hash_of(path)

    for name in ("hash_of_file", "fresh_hash_of"):
        monkeypatch.setattr(intact, name, read, raising=False)


def states_of_runs(lab: Lab) -> list[RunState]:
    with lab.coordinator.snapshot() as store:
        return [run.state for run in store.runs("made-1")]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("what", [FileChange.UNREADABLE, None])
def test_a_buckets_file_whose_copy_cannot_be_read_is_not_measured_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, what: FileChange | None
) -> None:
    monkeypatch.setattr(type(lab.coordinator.records), "place", object())
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._AWAY_PAUSE_SECONDS", 0.01)
    lab.end_runs()
    file = files_of(lab)[0]
    refuse_to_read(monkeypatch, *([file] if what else []))
    tell_of(lab, 1, FileChange.UNREADABLE)
    assert lab.campaign().state is CampaignState.ANALYSING and file.exists()
    next_analysis(lab, 2).set_result((b"{}", b"<p>", b"PAR1"))
    when_it_is(lab, CampaignState.DONE)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("readable", [True, False])
def test_of_a_buckets_files_only_those_that_differ_are_measured_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    monkeypatch.setattr(type(lab.coordinator.records), "place", object())
    lab.end_runs()
    missing, other = files_of(lab)
    missing.unlink()
    refuse_to_read(monkeypatch, *([] if readable else [other]))
    tell_of(lab, 1, FileChange.MISSING, FileChange.UNREADABLE)
    assert other.exists() and states_of_runs(lab) == [RunState.WAITING, RunState.DONE]


def test_a_folders_file_that_can_be_read_again_is_not_measured_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 0.01)
    lab.end_runs()
    files = files_of(lab)
    tell_of(lab, 1, FileChange.UNREADABLE, FileChange.UNREADABLE)
    next_analysis(lab, 2)
    assert all(file.exists() for file in files)
    assert states_of_runs(lab) == [RunState.DONE, RunState.DONE]
    lab.futures[1].set_result((b"{}", b"<p>", b"PAR1"))
    when_it_is(lab, CampaignState.DONE)


@pytest.mark.usefixtures("at_once")
def test_a_folders_file_that_cannot_be_read_is_waited_for_and_then_measured_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.end_runs()
    first, second = files_of(lab)
    refuse_to_read(monkeypatch, first)
    tell_of(lab, 1, FileChange.UNREADABLE, FileChange.UNREADABLE)
    failure = lab.campaign().failure
    assert failure is not None and failure.subject == f"records/made-1.0000/{first.name}"
    assert first.exists() and states_of_runs(lab) == [RunState.DONE, RunState.DONE]
    tell_of(lab, 2, FileChange.UNREADABLE, FileChange.UNREADABLE)
    eventually(lambda: states_of_runs(lab) == [RunState.WAITING, RunState.DONE], "the run waiting again")
    assert not first.exists() and second.exists()


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_does_not_let_a_missing_file_be_set_aside_fails_the_campaign_in_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, file: str) -> None:
        raise StorageError(file, "the disk refused", "check it")

    monkeypatch.setattr(type(lab.coordinator.records), "set_aside", refuse)
    lab.end_runs()
    files_of(lab)[0].unlink()
    for number in (1, 2):
        tell_of(lab, number, FileChange.MISSING)
    assert when_it_is(lab, CampaignState.FAILED).failure is not None


def test_a_file_that_changed_without_a_write_is_measured_again_though_this_server_remembers_its_hash(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.end_runs()
    request = lab.executors[0].requests[0]
    monkeypatch.setattr(intact, "hash_of_file", lambda path: request.runs[0].file_hashes[0])
    file = files_of(lab)[0]
    file.write_bytes(file.read_bytes()[::-1])
    tell_of(lab, 1, FileChange.CHANGED)
    assert states_of_runs(lab) == [RunState.WAITING, RunState.DONE]


@pytest.mark.processes
class TestWorkerPool:
    def test_work_is_done_in_another_process(self) -> None:
        pool = WorkerPool(1)
        assert pool().submit(os.getpid).result(timeout=60) != os.getpid()
        pool.end()

    @pytest.mark.parametrize("how", ["ended", "replaced"])
    def test_workers_end_at_once_whatever_they_do(self, how: str) -> None:
        pool = WorkerPool(1)
        executor = pool()
        worker = executor.submit(os.getpid).result(timeout=60)
        busy = executor.submit(time.sleep, 600)
        pool.end() if how == "ended" else pool()
        eventually(lambda: not _runs(worker), "the end of the worker")
        eventually(busy.done, "the end of its work")
        pool.end()

    def test_its_semaphores_are_unlinked_when_it_has_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        semaphores: list[Path] = []
        register = resource_tracker.register

        def noting(name: str, kind: str) -> None:
            semaphores.append(Path(f"/dev/shm/sem.{name.removeprefix('/')}"))
            register(name, kind)

        monkeypatch.setattr(resource_tracker, "register", noting)
        pool = WorkerPool(1)
        assert pool().submit(pow, 2, 3).result(timeout=60) == 8
        assert semaphores
        assert all(path.exists() for path in semaphores)
        pool.end()
        assert not any(path.exists() for path in semaphores)


def _runs(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _request(workloads: int, *, launches: int = 100, memory_limit_bytes: int = 1 << 30) -> AnalysisRequest:
    runs = tuple(
        RunData(f"made-1.{i:04d}", f"w{i}", "V100", "light", launches=launches) for i in range(workloads)
    )
    return AnalysisRequest("made-1", "made", False, runs=runs, memory_limit_bytes=memory_limit_bytes)


class TestWorkloadsSideBySide:
    def test_the_report_is_joined_from_the_parts_in_the_campaigns_order(self) -> None:
        executor = HandExecutor()
        report = submit_analysis(executor, _request(3))
        assert len(executor.futures) == 3
        for number in (2, 0, 1):
            assert not report.done()
            executor.futures[number].set_result(f"part {number}")
        assert [arguments[1:] for arguments in executor.calls] == [
            ("w0",), ("w1",), ("w2",), (["part 0", "part 1", "part 2"],)
        ]  # fmt: skip
        executor.futures[3].set_result((b"{}", b"<p>", b"PAR1"))
        assert report.result(0) == (b"{}", b"<p>", b"PAR1")

    def test_the_first_failure_ends_it_and_the_rest_is_not_begun(self) -> None:
        executor = HandExecutor()
        report = submit_analysis(executor, _request(3))
        executor.futures[1].set_exception(RefusedError("w1", "no"))
        with pytest.raises(RefusedError, match="w1: no"):
            report.result(0)
        assert [future.cancelled() for future in executor.futures] == [True, False, True]
        assert len(executor.futures) == 3

    def test_a_pool_that_is_ended_cancels_it(self) -> None:
        executor = HandExecutor()
        report = submit_analysis(executor, _request(2))
        for future in executor.futures:
            future.cancel()
        assert report.cancelled()

    def test_a_pool_that_breaks_before_the_join_breaks_it(self) -> None:
        executor = HandExecutor()
        report = submit_analysis(executor, _request(2))
        executor.futures[0].set_result("part 0")
        executor.broken = True
        executor.futures[1].set_result("part 1")
        with pytest.raises(BrokenExecutor):
            report.result(0)

    @pytest.mark.parametrize(
        ("workloads", "limit", "jobs"), [(1, 1 << 30, 1), (2, 80_000, 2), (2, 79_999, 1)]
    )
    def test_workloads_that_might_exceed_the_memory_limit_go_one_after_the_other(
        self, workloads: int, limit: int, jobs: int
    ) -> None:
        executor = HandExecutor()
        submit_analysis(executor, _request(workloads, memory_limit_bytes=limit))
        assert len(executor.futures) == jobs
