"""Lists of published files come in pages that one message can hold, whatever a campaign has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from assay_core.records.archive import RecordsAsked
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.rpc.published.handler import PublishedHandler
from assay_server.store.model import Slice, SliceState
from assay_server.store.sqlite import SqliteStore
from tests.support.server.stored_values import campaign, run

FILES_OF_A_RUN = 10


def pages(**limits: int) -> list[list[tuple[str, int]]]:
    """The files of five runs, by run and slice, in the pages in which they come."""
    store = SqliteStore(None)
    runs = tuple(run(ordinal) for ordinal in range(5))
    slices = tuple(
        Slice(
            each.run_id, index, state=SliceState.DONE, file=f"f{index}", file_bytes=9, content_hash="ab" * 32
        )
        for each in runs
        for index in range(FILES_OF_A_RUN)
    )
    with store.transaction() as transaction:
        transaction.add_campaign(campaign(), runs, slices)
    coordinator: Any = SimpleNamespace(snapshot=store.snapshot)
    handler, first, found = PublishedHandler(coordinator, QueryLimits(**limits)), 0, []
    while True:
        page = handler.list(RecordsAsked("made-1", first))
        found.append([(file.run_id, file.slice) for file in page.files])
        if not page.next:
            return found
        assert page.next > first
        first = page.next


def test_a_page_ends_with_the_run_that_fills_it() -> None:
    whole = [(f"made-1.{ordinal:04d}", index) for ordinal in range(5) for index in range(FILES_OF_A_RUN)]
    assert pages() == [whole]
    cut = pages(records_page_files=15)
    assert [len(page) for page in cut] == [20, 20, 10]
    assert [file for page in cut for file in page] == whole
    assert [len(page) for page in pages(records_page_files=1)] == [10] * 5
    assert [len(page) for page in pages(status_page_runs=2)] == [20, 20, 10]


def test_the_longest_page_fits_into_an_answer() -> None:
    files = DEFAULT_LIMITS.queries.records_page_files + DEFAULT_LIMITS.campaign_file.campaign_run_slices
    # Of names as long as a campaign file may have them: run, workload, file, hash.
    of_each = 120 + 200 + 140 + 70 + 40
    assert files * of_each < DEFAULT_LIMITS.calls.answer_bytes
