"""Finished workloads of an analysis outlive the server that computed them, and never meet other inputs."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay_core.records.campaign import CampaignState, RunState
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition
from assay_sampling.methods import registry
from assay_server.analysis.part_document import packed, unpacked
from assay_server.analysis.pipeline import analyse_part, joined_report
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData, RunFacts
from assay_server.analysis.versions import versions
from assay_server.campaign_file.slices.chosen import SlicePlan
from assay_server.campaigns.analysing import kept_parts, part_key, parts
from assay_server.campaigns.analysing.analyses import LEASE_MS, Analyses
from assay_server.campaigns.analysing.executors import on_worker
from assay_server.campaigns.analysing.job import Pages, analyse_campaign
from assay_server.campaigns.analysing.kept_parts import KeptParts
from assay_server.campaigns.analysing.parts import submit_analysis
from assay_server.record_place import RecordsPlace
from assay_server.store.parts.analyses import AnalysisRows
from tests.support.server.analysis_lab import HandExecutor
from tests.support.server.campaign_to_analyse import ID, Ended, Inline, analysed
from tests.support.server.workloads_to_analyse import made_request

_ROOT = Path(__file__).parents[2]
NAMES = ["w0", "w1", "w2"]
SECONDS = 20.0


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


def counting() -> Inline:
    return Inline(really=False)


def stopped_after(count: int) -> Inline:
    """A server whose workers go away after so many workloads."""

    def before(workload: str) -> None:
        if len(executor.computed) == count:
            executor.broken = True
            raise BrokenExecutor

    executor = Inline(before, really=False)
    return executor


def left_with(ended: Ended, count: int, *, really: bool = True) -> None:
    """A server computed so many workloads, and is gone."""
    executor = HandExecutor()
    analyses = Analyses(ended.beside(), lambda: executor)
    analyses.resume()
    for future, function, arguments in zip(
        executor.futures[:count], executor.functions, executor.calls, strict=False
    ):
        future.set_result(function(*arguments) if really else zlib.compress(b"made up"))
    assert [part.workload for part in ended.parts()] == NAMES[:count]
    ended.clock.ms += LEASE_MS


@pytest.mark.processes
def test_after_a_kill_between_two_workloads_none_that_was_finished_is_computed_again(
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
    assert [part.workload for part in after.parts()] == ["w0", "w1"]
    executor = Inline()
    analysed(after, executor)
    assert executor.computed == ["w2"]
    assert (after.campaign_state(), after.report()) == (CampaignState.DONE, expected)
    assert after.parts() == []
    after.close()


@pytest.mark.parametrize("finished", [1, 3])
def test_another_server_computes_what_is_missing_and_the_report_has_the_same_bytes(
    ended: Ended, expected: Pages, finished: int
) -> None:
    left_with(ended, finished)
    executor = Inline()
    analysed(ended, executor)
    assert executor.computed == NAMES[finished:]
    assert (ended.campaign_state(), ended.report(), ended.parts()) == (CampaignState.DONE, expected, [])


def test_workers_that_died_cost_only_what_they_had_not_finished(ended: Ended) -> None:
    executors: list[Inline] = []

    def make() -> Inline:
        executors.append(stopped_after(2) if not executors else counting())
        return executors[-1]

    Analyses(ended.coordinator, make).resume()
    assert [each.computed for each in executors] == [NAMES[:2], NAMES[2:]]
    assert ended.campaign_state() is CampaignState.DONE


def test_a_workload_that_was_measured_again_does_not_meet_its_old_part(ended: Ended) -> None:
    left_with(ended, 3)
    ended.measured_again(1)
    expected = analyse_campaign(ended.request())
    executor = Inline()
    analysed(ended, executor)
    assert (executor.computed, ended.report()) == (["w1"], expected)


def test_a_server_of_other_releases_computes_everything_itself(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_with(ended, 2, really=False)
    ours = part_key.releases(ended.request())
    monkeypatch.setattr(parts, "releases", lambda request: {**ours, "numpy": "99.0"})
    executor = counting()
    analysed(ended, executor)
    assert executor.computed == NAMES


def test_workers_elsewhere_are_compared_by_all_releases_that_count_for_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {"made": ("made-methods", "1.0"), "other": ("other-methods", "2.0")}
    monkeypatch.setattr(registry, "package_of", theirs.get)
    monkeypatch.setattr(registry, "methods_of_others", lambda: tuple(theirs))
    ours = part_key.releases(replace(REQUEST, methods=(("made", {}), ("stem", {}))))
    assert {"scipy", "pydantic", "duckdb", "made-methods"} | {"assay-gpu", *versions()} - {"assay"} == set(
        ours
    )
    dask = SimpleNamespace(get_versions=_as_dask_says)
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(versions=dask))  # it takes long to load
    monkeypatch.setitem(sys.modules, "distributed.versions", dask)
    compared = on_worker.releases_here.__wrapped__()
    assert set(compared) == {*ours, "other-methods"}
    assert all(compared[name] == (release or None) for name, release in ours.items())


def _as_dask_says(packages: Iterable[str]) -> dict[str, dict[str, str | None]]:
    found = {name: None if name.endswith("-methods") else metadata.version(name) for name in packages}
    return {"packages": {"python": platform.python_version(), **found}}


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: b""])
def test_a_part_that_is_damaged_is_computed_again(ended: Ended, expected: Pages, damage: Any) -> None:
    left_with(ended, 3)
    with ended.metadata.transaction() as store:
        part = store.analysis_parts(ID)[2]
        store.keep_analysis_part(replace(part, content=damage(part.content)))
    executor = Inline()
    analysed(ended, executor)
    assert (executor.computed, ended.report()) == (["w2"], expected)


def test_parts_that_cannot_be_joined_do_not_meet_the_next_try(ended: Ended) -> None:
    left_with(ended, 3)
    with ended.metadata.transaction() as store:
        part = store.analysis_parts(ID)[2]
        store.keep_analysis_part(replace(part, content=zlib.compress(b'{"rows": 3}')))
    analysed(ended, Inline())
    assert (ended.campaign_state(), ended.parts()) == (CampaignState.FAILED, [])


@pytest.mark.parametrize(
    ("error", "then"),
    [
        (StorageError("bucket", "it is away", "wait"), CampaignState.ANALYSING),  # it waits, and tries again
        (MemoryError(), CampaignState.FAILED),
        (OSError(28, "full"), CampaignState.FAILED),
    ],
)
def test_parts_that_were_not_the_fault_are_there_for_the_next_try(
    ended: Ended, error: Exception, then: CampaignState
) -> None:
    left_with(ended, 3, really=False)
    executor = HandExecutor()
    analysed(ended, executor)
    executor.futures[0].set_exception(error)
    assert ended.campaign_state() is then
    assert [part.workload for part in ended.parts()] == NAMES


def test_a_server_that_lost_the_analysis_keeps_nothing_more(ended: Ended) -> None:
    late = HandExecutor()
    first = Analyses(ended.beside(), lambda: late)
    first.resume()
    ended.clock.ms += LEASE_MS
    executor = HandExecutor()
    Analyses(ended.beside(), lambda: executor).look()
    late.futures[0].set_result(zlib.compress(b"late"))
    assert ended.parts() == []
    executor.futures[1].set_result(zlib.compress(b"newer"))
    assert [part.workload for part in ended.parts()] == ["w1"]


def test_a_disk_that_refuses_the_parts_does_not_hold_up_the_report(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_asked: object) -> None:
        raise StorageError("metadata", "the disk is full", "free space")

    monkeypatch.setattr(AnalysisRows, "keep_analysis_part", refuse)
    analysed(ended, counting())
    assert ended.campaign_state() is CampaignState.DONE


def test_a_database_that_refused_a_part_is_left_alone_for_a_while(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_of(ended)
    asked: list[object] = []

    def refuse(_rows: object, part: object) -> None:
        asked.append(part)
        raise StorageError("metadata", "the disk is full", "free space")

    with monkeypatch.context() as away:
        away.setattr(AnalysisRows, "keep_analysis_part", refuse)
        for name in NAMES:
            kept.keep(name, "key", b"")
    assert len(asked) == 1
    monkeypatch.setattr(kept_parts, "PAUSE_SECONDS", 0)
    kept.keep("w2", "key", b"")
    assert [part.workload for part in ended.parts()] == ["w2"]


def kept_of(ended: Ended) -> KeptParts:
    with ended.coordinator.schedule() as schedule:
        lease = schedule.lease_analysis(ID, "made", LEASE_MS)
    assert lease is not None
    return KeptParts(ended.coordinator, lease)


def test_what_is_too_long_for_a_row_is_not_kept(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_parts, "MOST_BYTES", 5)
    executor = HandExecutor()
    Analyses(ended.beside(), lambda: executor).resume()
    executor.futures[0].set_result(b"123456")
    executor.futures[1].set_result(b"12345")
    assert [part.workload for part in ended.parts()] == ["w1"]


def test_after_a_failed_analysis_parts_wait_for_a_day_for_somebody_who_tries_again(ended: Ended) -> None:
    executor = Inline(lambda workload: 1 // (workload != "w2"), really=False)
    analysed(ended, executor)
    assert ended.campaign_state() is CampaignState.FAILED
    kept = ended.parts()
    assert [part.workload for part in kept] == NAMES[:2]
    with ended.metadata.transaction() as store:
        store.forget_old_analysis_parts(ended.clock.ms)
        assert store.analysis_parts(ID) == kept
        store.forget_old_analysis_parts(ended.clock.ms + 1)
        assert store.analysis_parts(ID) == []


def test_workloads_that_do_not_fit_together_go_one_after_the_other_and_each_is_kept(
    ended: Ended, expected: Pages
) -> None:
    request = replace(ended.request(), memory_limit_bytes=400 * 60 * len(NAMES) - 1)
    executor, kept = HandExecutor(), _Noted()
    report = submit_analysis(executor, request, kept)
    for done in range(len(NAMES)):
        assert len(executor.futures) == done + 1
        executor.futures[done].set_result(executor.functions[done](*executor.calls[done]))
        assert list(kept.kept) == NAMES[: done + 1]
    executor.futures[-1].set_result(executor.functions[-1](*executor.calls[-1]))
    assert report.result(0) == expected


def test_while_the_database_does_not_answer_workers_get_their_next_workloads(tmp_path: Path) -> None:
    request = made_request(tmp_path, len(NAMES), 2, memory_limit_bytes=1)
    answers = threading.Event()
    executor, kept = HandExecutor(), _Noted(answers)
    with ThreadPoolExecutor(1) as keeper:
        report = submit_analysis(executor, request, kept, keeper)
        for done in range(len(NAMES)):
            executor.futures[done].set_result(b"")
            assert len(executor.futures) == done + 2
        executor.futures[-1].set_result((b"json", b"html"))
        assert (kept.kept, report.done()) == ({}, False)
        answers.set()
        assert report.result(SECONDS) == (b"json", b"html")
        assert list(kept.kept) == NAMES


def test_a_report_that_fails_ends_after_what_is_kept_and_nothing_more_is_begun(tmp_path: Path) -> None:
    request = made_request(tmp_path, len(NAMES), 2)
    answers = threading.Event()
    executor, kept = HandExecutor(), _Noted(answers)
    with ThreadPoolExecutor(1) as keeper:
        report = submit_analysis(executor, request, kept, keeper)
        executor.futures[0].set_result(b"")
        executor.futures[1].set_exception(BrokenExecutor())
        assert (executor.futures[2].cancelled(), kept.kept, report.done()) == (True, {}, False)
        answers.set()
        assert isinstance(report.exception(SECONDS), BrokenExecutor)
        assert list(kept.kept) == ["w0"]


def test_workers_that_died_cost_no_more_where_a_thread_keeps_the_workloads(ended: Ended) -> None:
    executors = [counting(), stopped_after(2)]
    used: list[Inline] = []
    ends: Future[bool] = Future()

    def make() -> Inline:
        used.append(executors.pop())
        return used[-1]

    with ThreadPoolExecutor(1) as keeper:
        Analyses(ended.coordinator, make, ends.set_result, keeper=keeper).resume()
        assert ends.result(SECONDS)
    assert [each.computed for each in used] == [NAMES[:2], NAMES[2:]]


class _Noted:
    """``Parts`` that notes what it keeps, once the database answers."""

    def __init__(self, answers: threading.Event | None = None) -> None:
        self.kept: dict[str, bytes] = {}
        self._answers = answers

    def known(self, keys: Any) -> dict[str, bytes]:
        return {}

    def keep(self, workload: str, key: str, content: bytes) -> None:
        if self._answers is not None:
            assert self._answers.wait(SECONDS)
        self.kept[workload] = content

    def forget(self) -> None:
        self.kept.clear()


def test_a_packed_part_gives_back_every_bit(tmp_path: Path) -> None:
    request = made_request(
        tmp_path, 2, 60, methods=(("stem", {}), ("random", {"launches": 7}), ("nonsense", {}))
    )
    made = [analyse_part(request, name) for name in ("w0", "w1")]
    contents = [packed(part) for part in made]
    again = [unpacked(content) for content in contents]
    assert [packed(part) for part in again] == contents
    assert joined_report(request, again).to_document() == joined_report(request, made).to_document()


RUN = RunData("c.0", "w", "V100", "detailed", files=("/a/x",), file_hashes=("h",), content_hash="h")
REQUEST = AnalysisRequest("c", "n", runs=(RUN,), failed_runs=(FailedRun("c.1", workload="w"),))
OF_RUN: dict[str, Any] = {
    "run_id": "c.9", "workload": "v", "device_kind": "A100", "level": "light", "repeat": 1,
    "condition": Condition("all", None, 50.0), "file_hashes": ("i",), "flags": (("f", "d", True),),
    "synthetic": True, "launches": 1, "content_hash": "i", "live": True, "under_mps": True,
    "slice_launches": (1,), "launches_asked": 1, "costs_only": True, "cycles": RUN, "executions": 1,
    "wall_seconds": 0.1, "busy_seconds": 0.1, "facts": RunFacts(days=("2026-01-01",)), "rank": 0,
    "plan": SlicePlan("c.2", 5, 1.0, "unseen", 1.0, 1.0, 1.0, ()),
}  # fmt: skip
OF_REQUEST: dict[str, Any] = {
    "campaign_id": "d", "campaign_name": "m", "synthetic": True, "seed": 1, "methods": (("pks", {"k": 1}),),
    "reference": "V100", "memory_limit_bytes": 5, "runs": (RUN, RUN),
    "failed_runs": (FailedRun("c.1", RunState.CANCELLED, workload="w"),), "accept_invalid": True,
    "owner_name": "vera", "project": "p", "ranks": {"w": "each"}, "by_operation": ("w",),
}  # fmt: skip


def key_of(request: AnalysisRequest, release: str = "1") -> str:
    return part_key.part_key(request, {"assay": release})


def test_every_input_counts_for_the_key_except_where_files_lie() -> None:
    places = {"files", "records"}
    assert set(OF_RUN) == {field.name for field in dataclasses.fields(RunData)} - places
    assert set(OF_REQUEST) == {field.name for field in dataclasses.fields(AnalysisRequest)} - places
    changed = [replace(REQUEST, runs=(replace(RUN, **{name: value}),)) for name, value in OF_RUN.items()]
    changed += [replace(REQUEST, **{name: value}) for name, value in OF_REQUEST.items()]
    keys = [key_of(each) for each in (REQUEST, *changed)]
    assert len({*keys, key_of(REQUEST, "2")}) == len(keys) + 1


def test_where_the_files_lie_does_not_count_unless_their_hashes_are_missing() -> None:
    elsewhere = replace(RUN, files=("s3://b/x",), cycles=replace(RUN, files=("/c",)))
    there = replace(elsewhere, files=("/b/x",), cycles=replace(RUN, files=("/d",)))
    bucket = RecordsPlace("b", "", Path("/cache"))
    first, second = (replace(REQUEST, runs=(each,)) for each in (elsewhere, there))
    assert key_of(replace(first, records=bucket)) == key_of(second)
    bare = [replace(REQUEST, runs=(replace(RUN, file_hashes=(), files=(name,)),)) for name in ("/a", "/b")]
    assert key_of(bare[0]) != key_of(bare[1])


def test_other_workloads_do_not_count() -> None:
    other = replace(RUN, run_id="c.7", workload="v")
    failed = (*REQUEST.failed_runs, FailedRun("c.8", workload="v"))
    both = replace(REQUEST, runs=(RUN, other), failed_runs=failed, ranks={"v": "each"})
    assert part_key.request_for(both, "w") == REQUEST
