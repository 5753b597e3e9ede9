"""A workload whose unit is the operation, on GPUs whose libraries launch other kernels."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.files.launch_file import new_launch_file
from assay_report.model.report import Report
from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches
from assay_server.analysis import pipeline
from assay_server.analysis import run_memory as memory
from assay_server.analysis.runs.loading import load_run
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.analysis.workload import analyse_workload
from tests.support.sampling.made_operations import Call, made_calls
from tests.support.server.report_forms import render_html, render_markdown

HERE: list[Call] = [("aten::mm", "[[2]]", [10, 20]), ("aten::relu", "[[2]]", [10])] * 4
THERE: list[Call] = [("aten::mm", "[[2]]", [15]), ("aten::relu", "[[2]]", [4, 5])] * 4
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (("stratified", {"launches": 2, "launches_per_group": 1}),)


def stored(
    folder: Path, device_kind: str, calls: Sequence[Call], prefix: str, sm_percent: float = 100.0
) -> RunData:
    """A light run in Parquet, as the store writes it."""
    condition = replace(lt.BASELINE, sm_percent=sm_percent)
    launches = made_calls(calls, prefix=prefix, metadata=lt.TableMetadata("light", condition=condition))
    return stored_launches(folder / f"{device_kind}-{sm_percent:g}.parquet", device_kind, launches)


def stored_launches(path: Path, device_kind: str, launches: Launches, repeat: int = 0) -> RunData:
    with new_launch_file(path, launches.table.schema) as writer:
        (batch,) = launches.table.to_batches()
        writer.write(lt.LaunchBatch(batch, dict(launches.names.items())))
    return RunData(
        f"c-1.{path.stem}", "decoder", device_kind, "light", files=(str(path),), launches=len(launches),
        content_hash=path.stem, condition=launches.metadata.condition, repeat=repeat,
    )  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path) -> AnalysisRequest:
    runs = stored(tmp_path, "V100", HERE, "volta"), stored(tmp_path, "A100", THERE, "ampere")
    return AnalysisRequest("c-1", "c", methods=METHODS, runs=runs, by_operation=("decoder",))


def row_of(report: Report, device: str) -> dict[str, Any]:
    return next(row for row in report.to_document()["rows"] if row["device"] == device)


def test_operations_are_scored_where_launches_are_refused(asked: AnalysisRequest) -> None:
    by_launch = row_of(pipeline.analyse(replace(asked, by_operation=())), "A100")
    assert by_launch["status"] == "refused"
    report = pipeline.analyse(asked)
    row = row_of(report, "A100")
    assert (row["status"], row["unit"]) == ("ok", "operation")
    # Every call of an operator costs the same, so the projection is the truth: 4 x (15 + 9).
    assert (row["cost"]["total"], row["cost"]["projected"]) == (96.0, pytest.approx(96.0))
    assert row["operations"]["calls_matched"] == 8
    assert row["operations"]["recording_time_percent"] == 100
    (entry,) = [each for each in report.to_document()["summary"] if each["device"] == "A100"]
    assert entry["match_percent"] == 100
    selection = report.to_document()["selections"][row["selection"]]
    assert selection["unit"] == "operation"
    sizes = [len(each["operation"]["launches"]) for g in selection["groups"] for each in g["representatives"]]
    assert sorted(sizes) == [1, 2]


def test_the_forms_of_the_report_name_the_unit(asked: AnalysisRequest) -> None:
    report = pipeline.analyse(asked).to_document()
    assert "calls 100, time 100 (GPUs: operation)" in render_html(report)
    assert "100" in render_markdown(report)


def test_a_run_without_operators_is_refused_with_the_way_to_record_them(
    asked: AnalysisRequest, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    bare = stored(tmp_path / "bare", "T4", [("aten::mm", "[[2]]", [1])], "turing")
    launches = made_calls([], outside=["k"] * 3, metadata=lt.TableMetadata("light", condition=lt.BASELINE))
    path = tmp_path / "bare" / "without.parquet"
    with new_launch_file(path, launches.table.schema) as writer:
        (batch,) = launches.table.to_batches()
        writer.write(lt.LaunchBatch(batch, dict(launches.names.items())))
    bare = replace(bare, files=(str(path),), launches=3)
    row = row_of(pipeline.analyse(replace(asked, runs=(*asked.runs, bare))), "T4")
    assert row["status"] == "refused"
    assert "its operations are unknown" in row["reason"]


def test_shares_of_the_sms_are_predicted_by_operation_on_other_gpus(
    asked: AnalysisRequest, tmp_path: Path
) -> None:
    slower = [(name, shapes, [2 * ns for ns in times]) for name, shapes, times in THERE]
    share = stored(tmp_path, "A100", slower, "ampere", sm_percent=50.0)
    report = pipeline.analyse(replace(asked, runs=(*asked.runs, share)))
    [entry] = [each for each in report.to_document()["sm_share"] if each["device"] == "A100"]
    assert entry["speedup_true"] == 2.0
    [prediction] = entry["predictions"]
    assert prediction["status"] == "ok"
    assert prediction["speedup_predicted"] == pytest.approx(2.0)
    assert prediction["error_percent"] == pytest.approx(0.0)


def test_the_launches_of_a_selection_are_freed_before_other_gpus_are_scored(
    asked: AnalysisRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[str, weakref.ref[Launches]]] = []
    held: list[list[str]] = []

    def load(run: RunData, limit: int) -> Launches:
        gc.collect()
        held.append([device for device, launches in loaded if launches() is not None])
        launches = load_run(run, limit)
        loaded.append((run.device_kind, weakref.ref(launches)))
        return launches

    monkeypatch.setattr(memory, "load_run", load)
    found = analyse_workload(asked, asked.runs)
    assert [row.status for row in found.rows] == ["ok", "ok"]
    assert [device for device, _ in loaded] == ["V100", "A100"]
    assert held == [[], []]


def test_a_repeat_without_operations_is_left_out_with_a_note(asked: AnalysisRequest, tmp_path: Path) -> None:
    kernels = ["volta_aten::mm_0", "volta_aten::mm_1", "volta_aten::relu_0"] * 4
    metadata = lt.TableMetadata("light", condition=lt.BASELINE)
    bare = stored_launches(
        tmp_path / "again.parquet", "V100", made_calls([], outside=kernels, metadata=metadata), repeat=1
    )
    alone = row_of(pipeline.analyse(asked), "V100")
    row = row_of(pipeline.analyse(replace(asked, runs=(*asked.runs, bare))), "V100")
    assert (alone["status"], row["status"]) == ("ok", "ok")
    assert row["cost"] == alone["cost"]
    [note] = [note for note in row["notes"] if note["code"] == "light_repeat_unused"]
    assert note["run"] == "c-1.again"
    assert "it has no operators, so its operations are unknown" in note["cause"]
