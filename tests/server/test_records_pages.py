"""Lists of published files come in pages that one message can hold, whatever a campaign has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay_core.records.archive import RecordsAsked
from assay_server.limits import CAMPAIGN_FILE_LIMITS, DEFAULT_LIMITS, QueryLimits
from assay_server.rpc.handlers.published import PublishedHandler
from assay_server.store.model import Slice, SliceState
from assay_server.store.sqlite import SqliteStore
from tests.support.server.stored_values import campaign, run

FILES_OF_A_RUN = 10


def pages() -> list[list[tuple[str, int]]]:
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
    handler, first, found = PublishedHandler(coordinator, QueryLimits()), 0, []
    while True:
        page = handler.list(RecordsAsked("made-1", first))
        found.append([(file.run_id, file.slice) for file in page.files])
        if not page.next:
            return found
        assert page.next > first
        first = page.next


def test_a_page_ends_with_the_run_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [(f"made-1.{ordinal:04d}", index) for ordinal in range(5) for index in range(FILES_OF_A_RUN)]
    assert pages() == [whole]
    monkeypatch.setattr(QueryLimits, "records_page_files", 15)
    cut = pages()
    assert [len(page) for page in cut] == [20, 20, 10]
    assert [file for page in cut for file in page] == whole
    monkeypatch.setattr(QueryLimits, "records_page_files", 1)
    assert [len(page) for page in pages()] == [10] * 5
    monkeypatch.setattr(QueryLimits, "records_page_files", 100)
    monkeypatch.setattr(QueryLimits, "status_page_runs", 2)
    assert [len(page) for page in pages()] == [20, 20, 10]


def test_the_longest_page_fits_into_an_answer() -> None:
    files = DEFAULT_LIMITS.queries.records_page_files + CAMPAIGN_FILE_LIMITS.campaign_run_slices
    # Of names as long as a campaign file may have them: run, workload, file, hash.
    of_each = 120 + 200 + 140 + 70 + 40
    assert files * of_each < DEFAULT_LIMITS.calls.answer_bytes
