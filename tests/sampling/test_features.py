"""The counters that launches are compared by: those of PKA, those that are there, those that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.counters.definitions import FEATURE_SETS, registry
from assay_sampling.counters.features import (
    fitted_features,
    missing_of_published,
    named_features,
    own_metrics,
)
from assay_sampling.counters.own_names import column_of_metric, unit_of_metric
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.made_launches import made_launches

TABLE2 = FEATURE_SETS["table2"]
OWN = "smsp__inst_executed_pipe_fp16.sum"


def counted(names: dict[str, Any], **columns: Any) -> Launches:
    """Launches of one kernel with these counters; names that the registry lacks are metrics."""
    rows = len(next(iter(names.values())))
    counters = [
        registry()[name].column("m") if name in registry() else column_of_metric(name) for name in names
    ]
    return made_launches(["k"] * rows, counters=counters, source="made.csv", **names, **columns)


def sizes(rows: int = 24) -> np.ndarray:
    return np.repeat([1.0, 10.0, 100.0], rows // 3)


def selected(
    launches: Launches, light: Launches | None = None, method: str = "pks", **parameters: Any
) -> Any:
    return select(method, Profile(detailed=launches, light=light), parameters).document(labels=True).to_dict()


def notes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {note["code"]: note for note in document.get("warnings") or ()}


def test_all_twelve_are_the_published_set_and_nothing_else_counts() -> None:
    twelve = {name: sizes() * (1 + place) for place, name in enumerate(TABLE2)} | {"cycles_gpc_avg": sizes()}
    more = counted(twelve | {"global_load_requests": sizes()[::-1].copy(), OWN: sizes()[::-1].copy()})
    auto, table2 = selected(more), selected(more, features="table2")
    assert auto == table2 == selected(more, features="auto")
    assert auto["parameters"]["features"] == "table2" and not notes(auto)


def test_counters_that_do_not_depend_on_the_gpu_take_the_place_of_missing_ones() -> None:
    launches = counted(
        {
            "instructions": sizes(), "threads_per_instruction": np.full(24, 32.0),
            "global_load_requests": sizes(), "local_load_sectors": sizes(), "thread_blocks": sizes(),
            "occupancy_percent": np.linspace(1, 99, 24), "dram_bytes": np.linspace(1, 99, 24),
            "cycles_sm_active_avg": np.linspace(1, 99, 24), "cycles_gpc_avg": 2 * sizes(),
            OWN: sizes(), "lts__t_sectors.sum": np.linspace(1, 9, 24), "sm__inst_executed.avg": sizes(),
        }
    )  # fmt: skip
    document = selected(launches)
    used = ["instructions", "threads_per_instruction", "global_load_requests", "local_load_sectors",
            "thread_blocks", OWN]  # fmt: skip
    assert document["parameters"]["features"].split(",") == used
    assert (len(document["groups"]), document["error_percent"]) == (3, 0)
    note = notes(document)["features_chosen"]
    assert note["features"] == used
    assert note["missing_of_pka"] == list(missing_of_published(used))
    assert "global_store_sectors" in note["missing_of_pka"] and "instructions" not in note["missing_of_pka"]
    named = selected(launches, features=" dram_bytes , instructions ")
    assert named["parameters"]["features"] == "dram_bytes,instructions"
    everything = selected(launches, features="all")["parameters"]["features"].split(",")
    assert set(everything) == set(launches.counters) - {"cycles_gpc_avg", "cycles_sm_active_avg"}


def test_memory_below_the_caches_counts_where_nothing_above_was_measured() -> None:
    names = {"instructions": sizes(), "threads_per_instruction": sizes(), "dram_bytes": sizes()}
    assert fitted_features("auto", counted(names), "pks") == "instructions,threads_per_instruction,dram_bytes"
    names = {"instructions": sizes(), "thread_instructions": sizes(), "lts__t_sectors_op_read.sum": sizes()}
    assert fitted_features("auto", counted(names), "pks") == ",".join(names)
    both = {"instructions": sizes(), "thread_instructions": sizes(), "dram_bytes": sizes(),
            "global_load_instructions": sizes(), "global_load_instructions_sass": sizes()}  # fmt: skip
    kept = "instructions,thread_instructions,global_load_instructions"
    assert fitted_features("auto", counted(both), "pks") == kept


@pytest.mark.parametrize("method", ["pks", "tbpoint"])
@pytest.mark.parametrize(
    ("there", "lacking"),
    [
        (("instructions", "occupancy_percent"), "memory and divergence"),
        (("instructions", "thread_instructions"), "memory"),
        (("thread_blocks", "global_load_sectors", "threads_per_instruction"), "work"),
        (("instructions", "l2_hit_percent", "threads_per_instruction"), "memory"),
    ],
)
def test_a_kind_that_is_missing_is_named_with_what_to_collect(
    method: str, there: tuple[str, ...], lacking: str
) -> None:
    with pytest.raises(CounterUnavailableError) as caught:
        selected(counted(dict.fromkeys(there, sizes())), method=method)
    assert f"it has none of {lacking} (" in caught.value.cause
    assert "gpc__cycles_elapsed.avg" in caught.value.remedy and "features=" in caught.value.remedy


def test_a_counter_that_some_launches_lack_is_an_error_and_not_left_out() -> None:
    gaps = sizes()
    gaps[3] = np.nan
    there = {name: sizes() for name in TABLE2[:9]} | {"instructions": sizes(), "cycles_gpc_avg": sizes()}
    launches = counted(there | {"global_store_sectors": [None if np.isnan(v) else v for v in gaps]})
    with pytest.raises(CounterUnavailableError, match=r"'global_store_sectors' was not measured .* 1 of 24"):
        selected(launches)


@pytest.mark.parametrize(
    ("features", "cause"),
    [
        ("table3", "'table3' is neither a feature set nor a counter"),
        ("instructions,instrutions", "'instrutions' is neither"),
        (" , ", "features names no counter"),
        ("", "features names no counter"),
        ("grid_x", "'grid_x' is neither"),
    ],
)
@pytest.mark.parametrize("method", ["pks", "tbpoint"])
def test_names_that_are_no_counter(method: str, features: str, cause: str) -> None:
    launches = counted({name: sizes() for name in (*TABLE2, "cycles_gpc_avg")})
    with pytest.raises(ParameterError, match=cause):
        selected(launches, method=method, features=features)


def test_without_cycles_time_chooses_the_number_of_groups() -> None:
    there = {name: sizes() for name in TABLE2}
    time = (100 * sizes()).astype(int)
    timed = selected(counted(there, duration_ns=time))
    assert timed["cost"]["quantity"] == timed["parameters"]["cost"] == "duration_ns"
    assert notes(timed)["k_without_cycles"]["quantity"] == "duration_ns"
    assert len(timed["groups"]) == 3
    profiled = selected(counted(there | {"profiled_duration_ns": 2.0 * time}))
    assert profiled["cost"]["quantity"] == "profiled_duration_ns"
    assert [len(profiled["groups"]), profiled["cost"]["total"]] == [3, 2.0 * time.sum()]
    light = made_launches(["k"] * 24, duration_ns=time, source="light.sqlite")
    window = counted({name: values[:18] for name, values in there.items()})
    both = selected(window, light)
    assert both["parameters"]["cost"] == "duration_ns"
    assert both["two_level"]["window"]["cost"]["quantity"] == "duration_ns"
    assert notes(both)["k_without_cycles"]["quantity"] == "duration_ns"
    with pytest.raises(CounterUnavailableError, match="'cycles_gpc_avg' was not measured"):
        selected(counted(there))


def test_labels_rest_on_counters_under_their_own_names() -> None:
    rng = np.random.default_rng(1)
    work = rng.choice([1.0, 5.0, 25.0], 300)
    grid = work.astype(int)
    names = {"instructions": 100 * work, "threads_per_instruction": np.full(300, 32.0), OWN: 7 * work,
             "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 3 * work}  # fmt: skip
    light = made_launches(["k"] * 300, grid_x=grid, duration_ns=(1000 * work).astype(int), source="light")
    window = counted({name: values[:100] for name, values in names.items()}, grid_x=grid[:100])
    document = selected(window, light)
    assert document["parameters"]["features"] == ",".join(names)
    assert document["error_percent"] == pytest.approx(0, abs=1e-9)
    for model in ("sgd", "gaussian_nb", "mlp", "scaled_counters"):
        found = selected(window, light, model=model)
        assert found["group_error_percent"] == pytest.approx(0, abs=1e-9), model


def test_tbpoint_takes_what_is_there() -> None:
    work = sizes()
    there = {"instructions": work, "threads_per_instruction": np.full(24, 32.0), "cycles_gpc_avg": work}
    published = there | {"global_load_sectors": work, "global_store_sectors": work}
    as_before = selected(counted(published | {"global_load_requests": work}), method="tbpoint")
    assert as_before["parameters"]["features"] == "auto" and not notes(as_before)
    other = selected(counted(there | {"global_load_requests": work}), method="tbpoint")
    assert other["parameters"]["features"] == "instructions,threads_per_instruction,global_load_requests"
    assert [each["representatives"] for each in other["groups"]] == [
        each["representatives"] for each in as_before["groups"]
    ]
    [chosen] = [note for note in other["notes"] if note["code"] == "features_chosen"]
    assert "global_load_sectors" in chosen["missing_of_pka"]


RAW_PAGE = (
    '"ID","Process ID","Kernel Name","Block Size","Grid Size","smsp__inst_executed.sum",'
    '"lts__t_sectors_op_read.sum","sm__inst_executed_pipe_fma.sum","other__thing.sum"\n'
    '"","","","","","inst","sector","Kinst",""\n'
    '"0","1","k","(32, 1, 1)","(8, 1, 1)","100","50","1.5","7"\n'
    '"1","1","k","(32, 1, 1)","(8, 1, 1)","200","90","n/a","8"\n'
)


def test_a_page_gives_metrics_that_are_asked_for_under_their_own_names(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text(RAW_PAGE)
    plain = read_launches(path)
    assert set(plain.counters) == {"instructions", "thread_blocks"}
    asked = (
        "lts__t_sectors_op_read.sum",
        "sm__inst_executed_pipe_fma.sum",
        "smsp__inst_executed.sum",
        "x__y",
    )
    read = read_launches(path, ReadOptions(metrics=asked))
    assert set(read.counters) == {"instructions", "thread_blocks", *asked[:2]}
    assert read.table[asked[0]].to_pylist() == [50, 90]
    assert read.table[asked[1]].to_pylist() == [1500, None]
    assert read.table.schema.field(asked[0]).metadata[b"unit"] == b"sector"
    path.write_text(RAW_PAGE.replace('"Kinst"', '"furlong"'))
    with pytest.raises(Exception, match="its unit 'furlong' is not known"):
        read_launches(path, ReadOptions(metrics=asked))
    assert set(read_launches(path).counters) == {"instructions", "thread_blocks"}


def test_the_id_of_a_launch_can_be_kept_as_a_counter_too(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text(RAW_PAGE)
    table = read_launches(path, ReadOptions(metrics=("ID",))).table
    assert table["ID"].to_pylist() == table["report_id"].to_pylist() == [0, 1]


def test_metrics_to_read_are_those_that_are_named_and_not_ours() -> None:
    assert own_metrics(f"instructions,{OWN},lts__t_sectors.sum") == (OWN, "lts__t_sectors.sum")
    assert own_metrics(None) == own_metrics("auto") == own_metrics("table2") == ()
    assert named_features("a, b,,a") == ("a", "b")


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("dram__sectors_read.sum", "sector"),
        ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "%"),
        ("smsp__cycles_active.avg.pct_of_peak_sustained_elapsed", "%"),
        ("smsp__cycles_active.avg", "cycle"),
        ("smsp__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active", "%"),
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "request"),
        ("smsp__sass_thread_inst_executed_op_fp16_pred_on.sum", "inst"),
        ("smsp__inst_executed_pipe_xu.sum", "inst"),
        ("lts__t_bytes.sum.per_second", "1"),
        ("smsp__thread_inst_executed_per_inst_executed.pct", "%"),
        ("gpu__time_duration.avg", "ns"),
        ("l1tex__t_sector_hit_rate.pct", "%"),
        ("launch__registers", "1"),
    ],
)
def test_units_by_the_names_of_metrics(metric: str, unit: str) -> None:
    assert unit_of_metric(metric) == unit


@pytest.mark.shared_data
def test_counters_of_a_real_gpu_that_are_not_those_of_pka(shared_data: Path) -> None:
    launches = read_launches(shared_data / "silicon" / "ktt_pnpoly_rtx2080ti_counters.parquet")
    document = selected(launches, mixing="allowed", representative="first")
    assert document["cost"]["quantity"] == "profiled_duration_ns"
    assert len(document["parameters"]["features"].split(",")) == 6
    assert len(document["groups"]) == 9
    assert document["error_percent"] == pytest.approx(2.18, abs=0.01)
    assert len(notes(document)["features_chosen"]["missing_of_pka"]) == 8
    tbpoint = selected(launches, method="tbpoint")
    assert tbpoint["error_percent"] < 10
