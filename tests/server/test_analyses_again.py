"""An analysis whose server or workers died is made again as a whole, and its report has the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.campaign import CampaignState
from assay_sampling.launches.table import Condition
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.campaigns.analysing.analyses import Analyses
from assay_server.campaigns.analysing.job import Pages, analyse_campaign, submit_analysis
from tests.support.server.analysis_lab import HandExecutor
from tests.support.server.campaign_to_analyse import Ended, Inline, analysed
from tests.support.server.workloads_to_analyse import made_request

_ROOT = Path(__file__).parents[2]
NAMES = ["w0", "w1", "w2"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pages]:
    """A state folder to copy, and the report that its campaign must get."""
    made = Ended(tmp_path_factory.mktemp("filled") / "state")
    made.fill(len(NAMES))
    report = analyse_campaign(made.request())
    made.close()
    return made.state, report


@pytest.fixture
def ended(tmp_path: Path, filled: tuple[Path, Pages]) -> Iterator[Ended]:
    shutil.copytree(filled[0], tmp_path / "state")
    made = Ended(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def expected(filled: tuple[Path, Pages]) -> Pages:
    return filled[1]


@pytest.mark.processes
def test_after_a_kill_between_two_workloads_the_next_server_makes_the_whole_report(
    ended: Ended, expected: Pages
) -> None:
    ended.close()
    module = "tests.support.server.campaign_to_analyse"
    killed = subprocess.run(
        [sys.executable, "-m", module, str(ended.state), "2"],
        cwd=_ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    after = Ended(ended.state)
    executor = Inline()
    analysed(after, executor)
    assert executor.computed == NAMES
    assert (after.campaign_state(), after.report()) == (CampaignState.DONE, expected)
    after.close()


def test_after_a_worker_died_all_workloads_are_computed_once_more(ended: Ended) -> None:
    executors: list[Inline] = []

    def make() -> Inline:
        executors.append(Inline(really=False) if executors else _stopped_after(2))
        return executors[-1]

    Analyses(ended.coordinator, make).look()
    assert [each.computed for each in executors] == [NAMES[:2], NAMES]
    assert ended.campaign_state() is CampaignState.DONE


def _stopped_after(count: int) -> Inline:
    """Workers that go away after so many workloads."""

    def before(workload: str) -> None:
        if len(executor.computed) == count:
            executor.broken = True
            raise BrokenExecutor

    executor = Inline(before, really=False)
    return executor


def test_workloads_that_do_not_fit_together_go_one_after_the_other(ended: Ended, expected: Pages) -> None:
    request = replace(ended.request(), memory_limit_bytes=400 * 60 * len(NAMES) - 1)
    executor = HandExecutor()
    report = submit_analysis(executor, request)
    for done in range(len(NAMES) + 1):
        assert len(executor.futures) == done + 1
        executor.futures[done].set_result(executor.functions[done](*executor.calls[done]))
    assert report.result(0) == expected


def test_the_first_error_ends_the_report_and_drops_what_has_not_begun(tmp_path: Path) -> None:
    executor = HandExecutor()
    report = submit_analysis(executor, made_request(tmp_path, len(NAMES), 2))
    executor.futures[0].set_result(b"")
    executor.futures[1].set_exception(BrokenExecutor())
    assert executor.futures[2].cancelled()
    assert isinstance(report.exception(0), BrokenExecutor)


def test_a_workloads_request_has_nothing_of_other_workloads() -> None:
    run = RunData("c.0", "w", "V100", "detailed", condition=Condition("all", None, 50.0))
    alone = AnalysisRequest("c", "n", runs=(run,), failed_runs=(FailedRun("c.1", workload="w"),))
    other = replace(run, run_id="c.7", workload="v")
    failed = (*alone.failed_runs, FailedRun("c.8", workload="v"))
    both = replace(alone, runs=(run, other), failed_runs=failed, ranks={"v": "each"})
    assert both.of_workload("w") == alone
