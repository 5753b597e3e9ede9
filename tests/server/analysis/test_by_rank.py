"""Ranks of a workload that are evaluated each alone, and together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.errors import CampaignError
from assay_server.analysis import pipeline
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.campaign_file.compiled import AnalysisSettings, CompiledCampaign
from assay_server.campaign_file.reading import compile_campaign
from tests.support.server.campaign_files import load_campaign

StoreRun = Callable[..., RunData]
# Rank 0 launches kernel "a" alone; rank 2 a costly "b" every other time. There is no rank 1.
KERNELS = ["a"] * 6 + ["a", "b"] * 4
PROCESS = [0] * 6 + [2] * 8
TIMES = [10, 10, 10, 10, 10, 20] + [10, 100] * 4
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("stratified", {}),
    ("systematic", {"launches": 2, "start": 0}),
)


@pytest.fixture
def stored(store_run: StoreRun) -> Callable[..., RunData]:
    """A light run of two ranks."""

    def store(gpu: str = "V100", scale: int = 1, **run: Any) -> RunData:
        launch = [PROCESS[:i].count(p) for i, p in enumerate(PROCESS)]
        return store_run(
            gpu, "light", KERNELS, process=np.array(PROCESS, np.int32), launch=np.array(launch),
            duration_ns=[scale * each for each in TIMES], start_ns=np.arange(len(TIMES)) * 1000, run=run,
        )  # fmt: skip

    return store


def analysed(*runs: RunData, ranks: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    asked = AnalysisRequest("c-1", "c", methods=METHODS, runs=runs, ranks=ranks or {})
    return pipeline.analyse(replace(asked, **changes)).to_document()


def named(report: dict[str, Any], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in report["rows"]]


def test_together_one_selection_is_over_all_ranks_and_the_row_says_so(stored: Callable[..., RunData]) -> None:
    report = analysed(stored())
    assert set(named(report, "workload", "rank", "processes", "launches")) == {("training", None, 2, 14)}
    for row in report["rows"]:
        assert "ranks_together" in [note["code"] for note in row["notes"]]


def test_each_rank_is_a_workload_with_selections_of_its_own(stored: Callable[..., RunData]) -> None:
    report = analysed(stored(), ranks={"training": "each"})
    assert named(report, "workload", "rank", "method", "processes", "launches", "kernels", "status") == [
        ("training[rank 0]", 0, "stratified", 1, 6, 1, "ok"),
        ("training[rank 0]", 0, "systematic", 1, 6, 1, "ok"),
        ("training[rank 2]", 2, "stratified", 1, 8, 2, "ok"),
        ("training[rank 2]", 2, "systematic", 1, 8, 2, "ok"),
    ]
    assert list(report["selections"]) == [
        f"training[rank {rank}]/{name}" for rank in (0, 2) for name, _ in METHODS
    ]
    for key, selection in report["selections"].items():
        chosen = {each["process"] for group in selection["groups"] for each in group["representatives"]}
        assert chosen == {0 if "rank 0" in key else 2}
    assert [entry["workload"] for entry in report["summary"]] == ["training[rank 0]", "training[rank 2]"]
    assert "ranks_together" not in str(report)


def test_a_rank_alone_gives_the_numbers_of_a_workload_of_that_process_alone(
    stored: Callable[..., RunData], store_run: StoreRun
) -> None:
    """The launches of other ranks change nothing, whatever they are."""
    by_rank = analysed(stored(), ranks={"training": [2]})
    alone = store_run(
        "V100", "light", KERNELS[6:], process=np.full(8, 2, np.int32), duration_ns=TIMES[6:],
        start_ns=np.arange(6, 14) * 1000,
    )  # fmt: skip
    names = ("method", "parameters", "launches", "groups", "error_percent", "speedup", "interval", "fair")
    assert named(by_rank, *names) == named(analysed(alone), *names)


def test_another_gpu_is_scored_rank_by_rank(stored: Callable[..., RunData]) -> None:
    report = analysed(stored(), stored("RTX 3070", 3), ranks={"training": "each"})
    for row in report["rows"]:
        assert (row["status"], row["selected_on"]["device"]) == ("ok", "V100")
        assert row["match"] is None or row["match"]["percent"] == 100.0
    assert len(report["rows"]) == 8


def test_a_rank_that_launched_nothing_is_refused_in_its_rows_alone(stored: Callable[..., RunData]) -> None:
    report = analysed(stored(), ranks={"training": [0, 1]})
    assert named(report, "workload", "status") == [
        *[("training[rank 0]", "ok")] * 2,
        *[("training[rank 1]", "refused")] * 2,
    ]
    assert "rank 1 launched no kernel" in report["rows"][2]["reason"]
    assert report["rows"][2]["launches"] is None


def test_slices_of_one_run_are_joined_before_a_rank_is_taken(store_run: StoreRun) -> None:
    launch = [PROCESS[:i].count(p) for i, p in enumerate(PROCESS)]
    run = store_run(
        "V100", "light", KERNELS, process=np.array(PROCESS, np.int32), launch=np.array(launch),
        duration_ns=TIMES, slices=3,
    )  # fmt: skip
    report = analysed(run, ranks={"training": "each"})
    assert named(report, "rank", "launches")[::2] == [(0, 6), (2, 8)]


def test_noise_and_sequences_stay_those_of_the_command(stored: Callable[..., RunData]) -> None:
    """Who repeats until the noise is small knows workloads, not ranks."""
    runs = [stored(live=True, repeat=repeat, scale=1 + repeat) for repeat in range(3)]
    whole, by_rank = (analysed(*runs, ranks=ranks) for ranks in ({}, {"training": "each"}))
    assert whole["noise"] and by_rank["noise"] == whole["noise"]


def test_records_that_cannot_be_read_give_the_reason_in_rows_of_the_workload(
    stored: Callable[..., RunData],
) -> None:
    run = stored()
    with Path(run.files[0]).open("r+b") as file:
        file.truncate(100)
    report = analysed(run, ranks={"training": "each"})
    assert set(named(report, "workload", "status")) == {("training", "failed")}


# The campaign file.


def campaign(*workloads: str) -> str:
    lines = "".join(
        f"  - {{{each}, recordings: [{{device: V100, light: a.parquet}}]}}\n" for each in workloads
    )
    return f"campaign: c\nsynthetic: true\ndetailed: none\nworkloads:\n{lines}"


def compiled(*workloads: str) -> AnalysisSettings:
    return compile_campaign(load_campaign(campaign(*workloads), "c.yaml")).analysis


def test_the_file_says_which_ranks() -> None:
    found = compiled("name: a", "name: b, ranks: each", "name: c, ranks: [3, 0]", "name: d, ranks: together")
    assert found.ranks == {"b": "each", "c": (0, 3)}
    again = CompiledCampaign.from_document(CompiledCampaign(found).to_document())
    assert again.analysis == found
    old = CompiledCampaign(found).to_document()
    del old["analysis"]["ranks"]
    assert CompiledCampaign.from_document(old).analysis.ranks == {}


@pytest.mark.parametrize(
    ("workloads", "cause"),
    [
        (["name: a, ranks: [1, 1]"], "named twice"),
        (["name: a, ranks: [-1]"], "a list is not 'together'"),
        (["name: a, ranks: []"], "ranks from 0 on"),
        (["name: a, ranks: some"], "'some' is not 'together', 'each'"),
        (["name: a, ranks: each", "name: 'a[rank 1]'"], "would have the name of the workload 'a[rank 1]'"),
    ],
)
def test_ranks_that_cannot_be_are_refused(workloads: Sequence[str], cause: str) -> None:
    with pytest.raises(CampaignError) as raised:
        compiled(*workloads)
    assert cause in raised.value.text
