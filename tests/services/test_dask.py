"""A real Dask cluster analyses: its workers are killed, refused, lost with their scheduler, and come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from assay_core.records.campaign import CampaignState
from assay_server.campaigns.analysing import dask_workers
from assay_server.campaigns.analysing.analyses import Analyses
from assay_server.campaigns.analysing.dask_workers import DaskWorkers
from assay_server.campaigns.analysing.executors import WorkersAwayError
from assay_server.campaigns.analysing.job import analyse_campaign, submit_analysis
from assay_server.store.record_store import REPORT_FORMS
from tests.services.dask_cluster import OwnDask, made_tls_files
from tests.support.server.analysis_lab import HandExecutor, Lab
from tests.support.server.executor_contract import ExecutorContract
from tests.support.server.server_support import eventually
from tests.support.server.worker_tasks import die_first
from tests.support.server.workloads_to_analyse import made_request

pytestmark = pytest.mark.skipif(
    not os.environ.get("ASSAY_SERVICES"), reason="make services-long starts a Dask cluster"
)
SECONDS = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnDask]:
    with OwnDask() as own:
        yield own


@pytest.fixture
def executors(cluster: OwnDask) -> Iterator[DaskWorkers]:
    workers = DaskWorkers(cluster.place)
    eventually(lambda: has_workers(cluster, 2), "both workers", SECONDS)
    yield workers
    workers.end()


def has_workers(cluster: OwnDask, count: int) -> bool:
    from distributed import Client  # noqa: PLC0415 - takes a second to load

    with Client(cluster.place.address, set_as_default=False) as client:
        return len(client.scheduler_info()["workers"]) >= count


def gives_an_executor(workers: DaskWorkers) -> bool:
    try:
        workers()
    except WorkersAwayError:
        return False
    return True


class TestDask(ExecutorContract):
    """The fixture of this module gives its executors."""

    busy_seconds = 0.5  # a worker of Dask ends what it has begun


def test_a_worker_that_is_killed_in_a_task_is_replaced_and_the_task_is_done(
    executors: DaskWorkers, tmp_path: Path
) -> None:
    begun = executors().submit(die_first, 2, str(tmp_path)).result(SECONDS)
    assert begun == 3


def test_a_worker_that_is_killed_in_an_analysis_changes_no_byte(
    executors: DaskWorkers, tmp_path: Path
) -> None:
    request = made_request(tmp_path, 8, 3_000)
    expected = analyse_campaign(request)
    executor = executors()
    victim = psutil.Process(executor.submit(os.getpid).result(SECONDS))
    report = submit_analysis(executor, request)
    victim.kill()
    assert report.result(SECONDS) == expected


def test_workers_of_other_releases_are_refused_by_name(
    executors: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = dask_workers.releases_here()
    monkeypatch.setattr(dask_workers, "releases_here", lambda: {**ours, "assay-gpu": "9.9", "python": "3.99"})
    with pytest.raises(WorkersAwayError) as caught:
        executors()
    for worker in (0, 1):
        named = [part for part in caught.value.cause.split("; ") if f"worker made-{worker} (tcp://" in part]
        assert len(named) == 1
        assert (
            f"has python {ours['python']} instead of 3.99, assay-gpu {ours['assay-gpu']} instead of 9.9"
            in (named[0])
        )
    assert "the server's releases" in caught.value.remedy


def test_a_worker_that_joined_with_other_releases_after_the_check_refuses_the_task_itself(
    executors: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = executors()
    monkeypatch.setattr(dask_workers, "releases_here", lambda: {**dict.fromkeys(("python",), "3.99")})
    with pytest.raises(WorkersAwayError, match=r"worker .* has python .* instead of 3\.99"):
        executor.submit(abs, -7).result(SECONDS)


def test_nobody_at_the_address_is_said_with_the_remedy() -> None:
    with OwnDask(workers=1) as gone:
        place = gone.place
    with pytest.raises(WorkersAwayError) as caught:
        DaskWorkers(place, connect_seconds=1)()
    assert caught.value.subject == str(place)
    assert caught.value.cause.startswith("the Dask scheduler does not answer")
    assert "start it (dask scheduler)" in caught.value.remedy


def test_a_campaign_outlives_its_scheduler_and_its_workers(
    cluster: OwnDask, executors: DaskWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._LONGEST_AWAY_PAUSE_SECONDS", 1.0)
    lab = Lab(tmp_path)
    lab.analyses.close()
    workers = DaskWorkers(cluster.place, connect_seconds=2)
    cluster.kill_scheduler()
    analyses = Analyses(lab.coordinator, workers)
    lab.end_runs()
    failure = lab.campaign().failure
    assert failure is not None
    assert (failure.failure_class, failure.retryable) == ("analysis_workers", True)
    assert lab.campaign().state is CampaignState.ANALYSING
    cluster.restart()
    eventually(lambda: lab.campaign().state is CampaignState.DONE, "the end of the campaign", SECONDS)
    assert lab.campaign().failure is None
    analyses.close()
    workers.end()
    kept = tuple(map(lab.report, REPORT_FORMS))
    here = Lab(tmp_path / "here")
    here.end_runs()
    [request] = here.executors[0].requests
    assert isinstance(here.executors[0], HandExecutor)
    assert kept == analyse_campaign(request)
    here.close()
    lab.close()


def test_a_scheduler_that_is_lost_in_the_middle_ends_what_is_under_way_and_the_next_try_works(
    cluster: OwnDask, executors: DaskWorkers, tmp_path: Path
) -> None:
    executor = executors()
    report = submit_analysis(executor, made_request(tmp_path, 8, 3_000))
    cluster.kill_scheduler()
    with pytest.raises(WorkersAwayError, match="the connection to the Dask scheduler was lost"):
        report.result(SECONDS)
    cluster.restart()
    eventually(lambda: gives_an_executor(executors), "a worker at the new scheduler", SECONDS)
    assert executors().submit(abs, -7).result(SECONDS) == 7


def test_over_tls_only_who_shows_the_authoritys_certificate_is_let_in(tmp_path: Path) -> None:
    with OwnDask(made_tls_files(tmp_path / "lab"), workers=1) as cluster:
        workers = DaskWorkers(cluster.place)
        eventually(lambda: gives_an_executor(workers), "the worker", SECONDS)
        assert workers().submit(abs, -7).result(SECONDS) == 7
        workers.end()
        strange = made_tls_files(tmp_path / "stranger")
        place = type(cluster.place)(cluster.place.scheduler, strange.ca, strange.certificate, strange.key)
        with pytest.raises(WorkersAwayError, match="does not answer"):
            DaskWorkers(place, connect_seconds=2)()
        plain = type(cluster.place)(cluster.place.scheduler)
        with pytest.raises(WorkersAwayError, match="does not answer"):
            DaskWorkers(plain, connect_seconds=2)()
