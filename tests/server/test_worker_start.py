"""What a worker of the analysis makes of itself before its first job."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from assay_server.campaigns.analysing.executors import end_with_server


def semaphores_of_joblib() -> bool:
    """Whether joblib would make semaphores in this process."""
    from joblib import _multiprocessing_helpers as helpers  # noqa: PLC0415 - what the import does is asked

    return helpers.mp is not None


def test_a_worker_makes_no_semaphore_that_its_end_could_leave_behind() -> None:
    """The end of 'assay run' on a busy machine printed a warning of Python about one."""
    context = multiprocessing.get_context("spawn")
    receiver, lifeline = context.Pipe(duplex=False)
    with (
        lifeline,
        ProcessPoolExecutor(1, mp_context=context, initializer=end_with_server, initargs=(receiver,)) as pool,
    ):
        assert pool.submit(semaphores_of_joblib).result(timeout=60) is False
