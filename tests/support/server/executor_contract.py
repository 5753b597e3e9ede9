"""One contract for every executor of analyses. A test module inherits it and gives ``executors``."""

from __future__ import annotations

import os
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from assay_sampling.errors import RefusedError
from assay_server.campaigns.analysing.executors import Executors, WorkersAwayError
from assay_server.campaigns.analysing.job import analyse_campaign, submit_analysis
from tests.support.server.server_support import eventually
from tests.support.server.worker_tasks import refuse
from tests.support.server.workloads_to_analyse import made_request

_SECONDS = 120


class ExecutorContract:
    """What holds wherever analyses are computed."""

    busy_seconds = 600.0  # of a task that is under way when its executor is ended

    def test_the_report_has_the_bytes_of_one_that_is_made_here(
        self, executors: Executors, tmp_path: Path
    ) -> None:
        request = made_request(tmp_path, 3, 300)
        executor = executors()
        assert executor.submit(os.getpid).result(_SECONDS) != os.getpid()
        assert submit_analysis(executor, request).result(_SECONDS) == analyse_campaign(request)

    def test_errors_of_a_task_come_as_they_are(self, executors: Executors) -> None:
        with pytest.raises(RefusedError) as caught:
            executors().submit(refuse, "w on V100").result(_SECONDS)
        assert (caught.value.subject, caught.value.remedy) == ("w on V100", "do not")

    def test_a_task_that_its_processes_die_of_fails_and_the_tasks_beside_it_do_not(
        self, executors: Executors
    ) -> None:
        executor, dying = executors(), cast(Any, os._exit)
        before, failed, after = (
            executor.submit(pow, 3, 2), executor.submit(dying, 9), executor.submit(abs, -7)
        )  # fmt: skip
        with pytest.raises(BrokenExecutor):
            failed.result(_SECONDS)
        assert (before.result(_SECONDS), after.result(_SECONDS)) == (9, 7)

    def test_an_executor_that_is_ended_keeps_nobody_waiting(self, executors: Executors) -> None:
        executor = executors()
        tasks = [executor.submit(time.sleep, self.busy_seconds) for _ in range(8)]
        executors.end()
        eventually(lambda: all(task.done() for task in tasks), "the end of all tasks")
        with pytest.raises((RuntimeError, WorkersAwayError)):
            executor.submit(abs, -7)
