"""The numbers behind the pictures of a selection: exact where they fit, and no extreme is lost where not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_report.figures import drawn as module
from assay_sampling.launches import table as lt
from assay_server.analysis import pipeline
from assay_server.analysis.runs.request import AnalysisRequest, RunData


def drawn(selection: Any, launches: Any) -> dict[str, Any]:
    return module.drawn(selection, launches).model_dump(mode="json")


def analyse(asked: AnalysisRequest) -> dict[str, Any]:
    """The report as scripts have it."""
    return pipeline.analyse(asked).to_document()


CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100.0}


class TableOfLaunches:
    """As much of launches as a picture asks for: kernels, and columns by name."""

    is_on_disk = False

    def __init__(self, kernels: list[str], counters: tuple[str, ...] = (), **columns: Any) -> None:
        self.names = lt.Names()
        identifiers = [self.names.intern(kernel) for kernel in kernels]
        columns = {"process": [0] * len(kernels), **columns}
        self.table = lt.pa.table({"kernel_id": lt.pa.array(identifiers, lt.pa.uint64()), **columns})
        self.metadata = lt.TableMetadata("light", origin="synthetic")
        self.counters = counters

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> np.ndarray:
        return self.table[name].to_numpy()


def selection(labels: Any, groups: int, rows: Any, of: Any, quantity: str = "duration_ns") -> SimpleNamespace:
    return SimpleNamespace(
        evaluation=SimpleNamespace(quantity=quantity),
        labels=None if labels is None else np.asarray(labels, np.int32),
        group_launches=np.zeros(groups, np.int64),
        representatives=SimpleNamespace(row=np.asarray(rows, np.int64), group=np.asarray(of, np.int64)),
    )


def test_a_report_holds_what_its_pictures_show(store_run: Callable[..., RunData]) -> None:
    run = store_run("V100", "light", list("aabaabaa"), duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    methods = (("systematic", {"launches": 4, "start": 0}),)
    entry = analyse(AnalysisRequest("c-1", "c", methods=methods, runs=(run,)))["drawn"]["training/systematic"]
    assert (entry["level"], entry["condition"], entry["synthetic"]) == ("light", CONDITION, False)
    assert entry["cost"] == {"quantity": "duration_ns", "unit": "ns"}
    assert entry["composition"]["kernels"] == ["a", "b"]
    (group,) = entry["composition"]["groups"]
    assert (group["id"], group["launches"], group["launches_percent"]) == (0, 8, [75.0, 25.0, 0.0])
    assert group["cost_percent"] == [75.0, 25.0, 0.0]
    by_launch = entry["by_launch"]
    assert by_launch["bin_starts"] == list(range(8))
    assert by_launch["least"] == by_launch["mean"] == by_launch["most"] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert by_launch["marks"] == {"row": [0, 2, 4, 6], "group": [0] * 4, "value": [10, 30, 50, 70]}


def test_groups_are_divided_by_kernel_and_the_cheap_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    monkeypatch.setattr(module, "KERNELS_NAMED", 1)
    launches = TableOfLaunches(list("abcabc"), duration_ns=[50, 10, 5, 20, 10, 5])
    made = selection([0, 0, 3, 1, 1, 2], 4, [0, 3, 5, 2], [0, 1, 2, 3])
    found = drawn(made, launches)["composition"]  # type: ignore[arg-type]
    assert (found["kernels"], found["other_kernels"], found["groups_together"]) == (["a"], 2, 2)
    sixth = float(f"{100 / 6:.6g}")
    assert found["groups"] == [
        {"id": 0, "launches": 2, "launches_percent": [sixth, sixth], "cost_percent": [50.0, 10.0]},
        {"id": 1, "launches": 2, "launches_percent": [sixth, sixth], "cost_percent": [20.0, 10.0]},
        {"id": None, "launches": 2, "launches_percent": [0.0, 33.3333], "cost_percent": [0.0, 10.0]},
    ]


def test_ipc_stands_where_instructions_and_cycles_were_counted() -> None:
    columns = {"cycles_gpc_avg": [10.0, 0.0, 20.0], "instructions": [5.0, 7.0, 60.0]}
    launches = TableOfLaunches(list("abc"), ("cycles_gpc_avg", "instructions"), **columns)
    found = drawn(selection([0, 0, 0], 1, [2], [0], "cycles_gpc_avg"), launches)  # type: ignore[arg-type]
    assert found["by_launch"]["quantity"] == "IPC"
    assert found["by_launch"]["unit"] == "instructions / cycles_gpc_avg"
    # A launch without cycles has no IPC; that is a gap, not a zero.
    assert found["by_launch"]["mean"] == [0.5, None, 3.0]
    assert found["by_launch"]["marks"]["value"] == [3.0]


def test_groups_that_are_not_known_are_not_drawn() -> None:
    launches = TableOfLaunches(list("ab"), duration_ns=[1, 2])
    assert drawn(selection(None, 2, [0], [0]), launches)["composition"] is None  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_bins_hold_every_launch_between_their_least_and_largest(
    durations: list[int], bins: int, marks: int
) -> None:
    launches = TableOfLaunches(["k"] * len(durations), duration_ns=durations)
    rows = list(range(len(durations)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_BINS", bins)
        patch.setattr(module, "MOST_MARKS", marks)
        made = selection([0] * len(rows), 1, rows, [0] * len(rows))
        found = drawn(made, launches)["by_launch"]  # type: ignore[arg-type]
    starts = [*found["bin_starts"], len(durations)]
    assert starts[0] == 0 and starts == sorted(set(starts)), "no bin is empty"
    assert len(found["bin_starts"]) == min(bins, len(durations))
    for position, (least, mean, most) in enumerate(
        zip(found["least"], found["mean"], found["most"], strict=True)
    ):
        inside = durations[starts[position] : starts[position + 1]]
        assert (least, most) == tuple(pytest.approx(f(inside), rel=1e-5) for f in (min, max))
        assert mean == pytest.approx(sum(inside) / len(inside), rel=1e-5)
    assert found["representatives"] == len(durations)
    assert len(found["marks"]["row"]) <= marks


def test_millions_of_launches_make_a_small_document_that_keeps_the_one_extreme() -> None:
    count = 1_000_000
    durations = np.full(count, 1000)
    durations[654_321] = 7_000_000
    launches = TableOfLaunches(["k"] * 10, duration_ns=durations[:10])
    launches.table = lt.pa.table(
        {
            "kernel_id": lt.pa.array(np.full(count, launches.table["kernel_id"][0].as_py(), np.uint64)),
            "duration_ns": durations,
            "process": np.repeat([0, 1], count // 2),
        }
    )
    made = selection(np.arange(count) % 50, 50, np.arange(0, count, 100), np.zeros(count // 100))
    found = drawn(made, launches)  # type: ignore[arg-type]
    entry = found["by_launch"]
    assert len(entry["bin_starts"]) == module.MOST_BINS
    assert max(entry["most"]) == 7_000_000 and entry["most"].count(7_000_000) == 1
    assert entry["process_starts"] == [500_000]
    assert (entry["representatives"], len(entry["marks"]["row"])) == (10_000, 400)
    assert len(str(found)) < 60_000
