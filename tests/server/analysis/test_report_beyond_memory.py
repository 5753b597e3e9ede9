"""A report of runs that do not fit the memory limit has the numbers of one that does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay_sampling.counters.definitions import features_of
from assay_sampling.gathering import from_batches
from assay_server.analysis.pipeline import analyse
from assay_server.analysis.runs.request import AnalysisRequest, RunData

pytest.importorskip("duckdb", reason="the extra 'engine' is not installed")

StoreRun = Callable[..., RunData]
_KERNELS = ["a", "b", "a", "c"] * 100


def _run(store_run: StoreRun) -> RunData:
    kernel = np.array([ord(name) for name in _KERNELS], float)
    counted = {name: kernel * (1 + place) for place, name in enumerate(features_of("table2"))}
    counted["threads_per_instruction"] = kernel / 4
    cycles = kernel * 10 + np.arange(len(kernel)) % 7
    return store_run(
        "V100", "detailed", _KERNELS, slices=3, **counted,
        start_ns=np.arange(400) * 100, duration_ns=np.arange(400) % 150, cycles_gpc_avg=cycles,
    )  # fmt: skip


def _report(store_run: StoreRun, monkeypatch: pytest.MonkeyPatch, *methods: str) -> tuple[dict, dict]:
    asked = replace(
        AnalysisRequest("c-1", "c", runs=(_run(store_run),)), methods=tuple((name, {}) for name in methods)
    )
    within = analyse(asked).to_document()
    monkeypatch.setattr(from_batches, "LEAST_BEYOND_MEMORY_BYTES", 1000)
    beyond = analyse(replace(asked, memory_limit_bytes=100_000)).to_document()
    return within, beyond


def test_a_report_has_the_same_numbers_and_no_pictures_of_launches(
    store_run: StoreRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, beyond = _report(store_run, monkeypatch, "sieve", "stem")
    assert [row["error"] for row in beyond["rows"]] == [None, None]
    assert [row["status"] for row in beyond["rows"]] == ["ok", "ok"]
    drawn: dict[str, Any] = beyond.pop("drawn")
    assert {each["composition"] for each in drawn.values()} == {None}
    del within["drawn"]
    assert beyond == within


def test_a_method_that_needs_memory_says_so_in_its_row(
    store_run: StoreRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, beyond = _report(store_run, monkeypatch, "pks", "tbpoint")
    pks, tbpoint = beyond["rows"]
    assert pks["status"] == "ok"
    assert pks["error_percent"] == within["rows"][0]["error_percent"]
    assert tbpoint["status"] != "ok"
    assert "memory limit" in tbpoint["error"]["cause"]
