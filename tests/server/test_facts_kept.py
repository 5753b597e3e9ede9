"""What an attempt's numbers rest on, kept by the server: taken over, stored, handed out, merged for a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptLog
from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.work import CommandSource
from assay_sampling.running.attempt_facts import (
    MOST_BYTES,
    AttemptFacts,
    LibraryFact,
    LibraryFacts,
    ProgramFact,
    ToolFact,
)
from assay_server.analysis.runs.request import RunFacts
from assay_server.campaigns.analysing.request_builder import analysis_request, run_facts
from assay_server.rpc.handlers.agents import bounded_log
from assay_server.rpc.handlers.campaigns import attempt_detail
from assay_server.store.model import Slice, SliceState
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.stored_values import attempt, campaign, run

DAY_MS = 86_400_000
NSYS = AttemptFacts(
    gpu="H100",
    driver="550.163",
    tools=(ToolFact("nsys", "2023.4.4", "/bin/nsys"),),
    libraries=LibraryFacts(
        "found",
        (
            LibraryFact("libcublas", "12", "nvidia-cublas-cu12 12.4.5.8", identity="edges:1"),
            LibraryFact("libcupti", "12", of_tool=True),
        ),
        note="said",
    ),
)


def test_facts_are_taken_over_as_they_are_unless_they_are_none() -> None:
    text = NSYS.to_json()
    assert bounded_log(AttemptLog(facts_json=text)).facts_json == text
    newer = '{"version": 7, "more": []}'
    assert bounded_log(AttemptLog(facts_json=newer)).facts_json == newer
    for wrong in ("", "no json", "[]", "[" * 100_000, '{"a": "%s"}' % ("x" * MOST_BYTES)):
        assert bounded_log(AttemptLog(facts_json=wrong)).facts_json == ""


def test_they_go_to_whoever_asks_for_the_run() -> None:
    made = attempt(log=AttemptLog(facts_json=NSYS.to_json()))
    assert attempt_detail(made).to_proto().facts_json == NSYS.to_json()
    assert attempt_detail(attempt()).to_proto().facts_json == ""


def test_the_facts_of_a_run_are_those_of_its_published_attempts(tmp_path: Path) -> None:
    store = SqliteStore(None)
    live = run(0, command=CommandSource(("train",)), state=RunState.DONE, recorded=None)
    pieces = [Slice(live.run_id, n, state=SliceState.DONE) for n in range(3)]
    made = campaign(synthetic=False)
    other = AttemptFacts(
        gpu="H100",
        driver="550.163",
        tools=(ToolFact("nsys", "2024.1"),),
        program=ProgramFact("/opt/train", 9, "cd" * 32),
    )
    with store.transaction() as write:
        write.add_campaign(made, [live], pieces)
        for piece, state, day, facts in (
            (2, AttemptState.PUBLISHED, 3, other.to_json()),
            (0, AttemptState.FAILED, 1, AttemptFacts(driver="1").to_json()),
            (0, AttemptState.PUBLISHED, 2, replace(NSYS, program=ProgramFact("/a", 9, "ab" * 32)).to_json()),
            (1, AttemptState.PUBLISHED, 2, NSYS.to_json()),
        ):
            token = 10 * piece + day
            key = attempt(token, day).key.__class__(live.run_id, piece, day, token)
            write.add_attempt(
                attempt(
                    key=key,
                    state=state,
                    slot_id=f"g{token}",
                    leased_at_ms=day * DAY_MS,
                    log=AttemptLog(facts_json=facts),
                )
            )
    with store.snapshot() as read:
        assert [at for at, _ in read.published_facts(live.run_id)] == [2 * DAY_MS, 2 * DAY_MS, 3 * DAY_MS]
        assert read.published_facts("nothing") == []
        [found] = analysis_request(read, "made-1", LocalRecordStore(tmp_path)).runs
    store.close()
    assert found.facts == RunFacts(
        gpus=("H100",),
        drivers=("550.163",),
        tools=(("nsys", "2023.4.4"), ("nsys", "2024.1")),
        libraries={"libcublas": {"edges:1": "nvidia-cublas-cu12 12.4.5.8"}},
        library_notes=("said",),
        programs=("ab" * 32, "cd" * 32),
        days=("1970-01-03", "1970-01-04"),
    )


@pytest.mark.parametrize("measured", [True, False])
def test_days_are_told_of_silicon_alone(measured: bool) -> None:
    found = run_facts([(DAY_MS + 1, NSYS.to_json()), (DAY_MS + 2, '{"version": 9}')], measured=measured)
    assert found.days == (("1970-01-02",) if measured else ())
    assert found.gpus == ("H100",)
    assert found.known and not RunFacts().known
