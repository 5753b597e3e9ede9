"""Results of running campaigns on their page: analysed again while somebody looks, from what is there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assay_core.records.campaign import CampaignState, RunState
from assay_sampling.errors import InputError
from assay_server.analysis.runs.request import RunFacts
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.campaigns.errors import NotYetError
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.store.model import Campaign, Run, Slice, SliceState
from assay_server.web.views.so_far import ResultsSoFar
from tests.support.server.campaign_files import load_campaign
from tests.support.server.made_reports import made_report, made_rows
from tests.support.server.server_support import HandClock

SLICED = """\
campaign: made
synthetic: true
gpus: [V100]
detailed: {first: 300, slice_launches: 100, sets: [features]}
light: auto
workloads:
  - {name: w, command: [w.toml]}
"""


class Store:
    """A campaign with one detailed run of three slices and a light run, as a store would tell it."""

    def __init__(self) -> None:
        spec = load_campaign(SLICED, "campaign.yaml")
        plan = plan_campaign(spec, "made-1", "/data", "campaign.yaml")
        self.made = Campaign(
            "made-1", "made", 1, True, CampaignState.RUNNING, SLICED, "campaign.yaml", "/data",
            compile_campaign(spec), 0,
        )  # fmt: skip
        self.by_id: dict[str, Run] = {run.run_id: replace(run, state=RunState.RUNNING) for run in plan.runs}
        self.pieces: dict[str, list[Slice]] = {}
        for piece in plan.slices:
            self.pieces.setdefault(piece.run_id, []).append(piece)
        [self.detailed] = [run.run_id for run in plan.runs if run.level == "detailed"]
        [self.light] = [run.run_id for run in plan.runs if run.level == "light"]

    def publish(self, run_id: str, index: int, launches: int = 100) -> None:
        piece = self.pieces[run_id][index]
        self.pieces[run_id][index] = replace(
            piece, state=SliceState.DONE, file=f"{run_id}/{index}", launches=launches, content_hash="h"
        )
        if all(each.file for each in self.pieces[run_id]):
            self.by_id[run_id] = replace(self.by_id[run_id], state=RunState.DONE)

    def campaign(self, _campaign_id: str) -> Campaign:
        return self.made

    def runs(self, _campaign_id: str) -> list[Run]:
        return list(self.by_id.values())

    def slices(self, run_id: str) -> list[Slice]:
        return self.pieces[run_id]

    def published_facts(self, _run_id: str) -> list[Any]:
        return []

    def attempts(self, _run_id: str) -> list[Any]:
        return []


class Records:
    place = None

    def location(self, file: str) -> str:
        return f"/records/{file}"


@dataclass
class Coordinator:
    store: Store = field(default_factory=Store)
    clock: HandClock = field(default_factory=HandClock)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Store]:
        yield self.store


class Waiting(Executor):
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []

    def submit(self, function: Any, /, *arguments: Any, **_keywords: Any) -> Future[Any]:
        self.work.append(lambda: function(*arguments))
        return Future()

    def go(self) -> None:
        self.work.pop(0)()


class Lab:
    """What draws the page of a campaign: ``looks`` is one drawing of it."""

    def __init__(self) -> None:
        self.coordinator, self.thread = Coordinator(), Waiting()
        self.now, self.changes, self.took = 0.0, 0, 1.0
        self.made: list[str] = []
        self.outcome: Callable[[], Pages | None] = lambda: (self.report(), b"", made_rows(made_report(2)))
        self.found = ResultsSoFar(
            self.coordinator,  # type: ignore[arg-type]
            self.analysed,  # type: ignore[arg-type]
            self.thread,
            version=lambda _: self.changes,
            made=self.made.append,
            monotonic=lambda: self.now,
        )

    def report(self) -> bytes:
        return json.dumps(made_report(2)).encode()

    def analysed(self, campaign_id: str, *, windows_so_far: bool) -> Pages | None:
        assert (campaign_id, windows_so_far) == ("made-1", True)
        self.now += self.took
        return self.outcome()

    def looks(self) -> Any:
        return self.found.of("made-1")


def test_an_analysis_begins_with_the_first_look_and_never_keeps_a_page_waiting() -> None:
    lab = Lab()
    assert lab.looks() is None
    assert lab.looks() is None
    assert len(lab.thread.work) == 1, "one at a time"
    lab.thread.go()
    assert lab.made == ["made-1"]
    found = lab.looks()
    assert {each.workload for each in found.results.rows}
    assert len(found.results.every) == len(made_report(2)["rows"])
    assert lab.thread.work == []


def test_the_next_one_waits_for_news_and_ten_times_as_long_as_the_last_one_took() -> None:
    lab = Lab()
    lab.took = 3.0
    lab.looks()
    lab.thread.go()
    lab.now += 1_000
    lab.looks()
    assert lab.thread.work == [], "nothing has changed"
    lab.changes = 1
    lab.looks()
    lab.thread.go()
    ended = lab.now
    for after, begun in ((0.0, 0), (29.0, 0), (30.0, 1)):
        lab.now, lab.changes = ended + after, lab.changes + 1
        lab.looks()
        assert len(lab.thread.work) == begun, after


def test_while_one_campaign_is_analysed_another_waits() -> None:
    lab = Lab()
    lab.looks()
    lab.found.of("made-2")
    assert len(lab.thread.work) == 1


@pytest.mark.parametrize("error", [NotYetError("c", "somebody asks"), MemoryError("no room")])
def test_results_stay_when_a_later_analysis_fails(error: Exception) -> None:
    lab = Lab()
    lab.looks()
    lab.thread.go()
    before = lab.looks()

    def refuse() -> Pages:
        raise error

    lab.outcome, lab.changes, lab.now = refuse, 1, 1_000.0
    lab.looks()
    lab.thread.go()
    assert lab.looks() == before
    lab.now += 1_000
    lab.looks()
    assert len(lab.thread.work) == 1, "it is tried again"


def test_why_there_are_no_results_is_said() -> None:
    lab = Lab()

    def refuse() -> Pages:
        raise InputError("run", "it has no <script>")

    lab.outcome = refuse
    lab.looks()
    lab.thread.go()
    assert lab.looks().problem == "it has no <script>"
    lab.outcome = lambda: None
    lab.changes, lab.now = 1, 1_000.0
    lab.looks()
    lab.thread.go()
    assert lab.looks().problem == "no launches are there yet"


def test_the_share_of_launches_grows_slice_by_slice() -> None:
    lab = Lab()
    store, shares = lab.coordinator.store, []
    for index in (None, 0, 1):
        if index is not None:
            store.publish(store.detailed, index)
        lab.changes, lab.now = lab.changes + 1, lab.now + 1_000
        lab.looks()
        lab.thread.go()
        shares.append(lab.looks().there_percent[("w", "V100")])
    assert shares == [0.0, pytest.approx(100 / 3), pytest.approx(200 / 3)]
    store.publish(store.light, 0, 250)  # now it is known that there are no 300 launches
    lab.changes, lab.now = lab.changes + 1, lab.now + 1_000
    lab.looks()
    lab.thread.go()
    assert lab.looks().there_percent[("w", "V100")] == 80.0


def test_a_run_under_way_counts_with_its_first_launches_up_to_the_first_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "assay_server.campaigns.analysing.request_builder.run_facts", lambda *_, **__: RunFacts()
    )
    store = Store()

    def asked(windows_so_far: bool = True) -> dict[str, int]:
        request = analysis_request(
            store,  # type: ignore[arg-type]
            "made-1",
            Records(),  # type: ignore[arg-type]
            windows_so_far=windows_so_far,
        )
        assert {run.run_id for run in request.runs}.isdisjoint(run.run_id for run in request.failed_runs)
        assert not any(flag for run in request.runs for flag in run.flags if flag[2])
        return {run.run_id: run.launches for run in request.runs}

    assert asked() == {}
    store.publish(store.detailed, 1)
    assert asked() == {}, "the first launches are missing"
    store.publish(store.detailed, 0)
    assert asked() == {store.detailed: 200}
    assert asked(windows_so_far=False) == {}
    store.publish(store.light, 0, 900)
    assert asked() == {store.detailed: 200, store.light: 900}
    assert asked(windows_so_far=False) == {store.light: 900}
