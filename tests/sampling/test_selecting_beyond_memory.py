"""Selections of launches on disk are those of launches in memory, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_sampling.counters.definitions import features_of, registry
from assay_sampling.engines import blockwise, columns
from assay_sampling.engines.columns import Column, Place
from assay_sampling.engines.scratch import Scratch
from assay_sampling.errors import (
    AssayError,
    CounterUnavailableError,
    LaunchTableError,
    MisalignedError,
    RefusedError,
)
from assay_sampling.gathering import from_batches as gathering
from assay_sampling.gathering.from_batches import gather
from assay_sampling.gathering.on_disk import gather_on_disk
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.overlap import overlap_of
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import LaunchBatch, Names, TableMetadata, launch_schema, make_batch
from assay_sampling.methods.registry import select, select_and_try
from assay_sampling.scoring.elsewhere import score_saved_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection

pytest.importorskip("duckdb", reason="the extra 'engine' is not installed")

_N = 6000


def _columns(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kernel = rng.integers(0, 12, rows)
    shape = rng.integers(0, 4, rows)
    instructions = np.where(kernel % 3 == 0, np.round(np.exp(rng.normal(9, 1, rows))), 1000.0 * (kernel + 1))
    counted = {
        name: np.round(instructions * (1 + place) / 7 + shape * 10.0 * place)
        for place, name in enumerate(features_of("table2"))
    }
    cycles = np.round(instructions * 1.3 + 50 * shape + rng.integers(0, 40, rows))
    return {
        "process": np.zeros(rows, np.int32),
        "launch": np.arange(rows),
        "grid_x": 64 + 32 * shape,
        "grid_y": pa.array([None if each % 7 == 0 else 1 for each in range(rows)], pa.int32()),
        "grid_z": np.ones(rows, np.int32),
        "block_x": np.where(shape == 3, 128, 256).astype(np.int32),
        "block_y": np.ones(rows, np.int32),
        "block_z": np.ones(rows, np.int32),
        "device": np.zeros(rows, np.int32),
        "start_ns": np.arange(rows) * 10_000,
        "duration_ns": cycles.astype(np.int64),
        **counted,
        "instructions": instructions,
        "cycles_gpc_avg": cycles / 3,
        "kernel": kernel,
    }


def _table(level: str = "detailed", rows: int = _N, seed: int = 0) -> tuple[pa.Table, Names]:
    names = Names()
    ids = np.array(
        [names.intern(f"void <script>k{i}</script>(float*)" if i else "") for i in range(12)], np.uint64
    )
    values = _columns(rows, seed)
    values["kernel_id"] = ids[values.pop("kernel")]
    wanted = (*features_of("table2"), "instructions", "cycles_gpc_avg") if level == "detailed" else ()
    counters = [registry()[n].column(registry()[n].metrics[0].name) for n in dict.fromkeys(wanted)]
    schema = launch_schema(TableMetadata(level, origin="synthetic"), counters)  # type: ignore[arg-type]
    batch = make_batch(schema, {name: values[name] for name in values if name in schema.names})
    return pa.Table.from_batches([batch]), names


def in_memory(table: pa.Table, names: Names) -> Launches:
    return Launches(sort_launches(table), names, ("made",))


def batches(table: pa.Table, names: Names) -> Iterator[LaunchBatch]:
    new = dict(names.items())
    for batch in table.to_batches(max_chunksize=997):
        yield LaunchBatch(batch, new)
        new = {}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for module in (columns, blockwise):
        monkeypatch.setattr(module, "BLOCK_ROWS", 512)
    scratch = Scratch(tmp_path)
    yield Place(scratch, 512 << 20)
    scratch.close()


def on_disk(place: Place, table: pa.Table, names: Names) -> Launches:
    return gather_on_disk(batches(table, names), table.schema, Names(), place, sources=("made",))


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("pks", {}),
        ("pks", {"k": 3, "representative": "centre"}),
        ("pks", {"representative": "random", "features": "table2"}),
        ("sieve", {}),
        ("sieve", {"stratification": "script"}),
        ("sieve", {"stratification": "dp", "representative": "nearest_mean", "theta_sweep": True}),
        ("sieve", {"theta": 0.9, "representative": "median", "dominant_key": "thread_count"}),
        ("stem", {}),
        ("stem", {"cost": "duration_ns", "epsilon_percent": 0.5, "weights": "launches"}),
        ("stem", {"variant": "artifact", "epsilon_percent": 0.5}),
        ("balanced", {}),
        ("balanced", {"launches": 900}),
        ("balanced", {"speedup": 50}),
    ],
)
def test_a_selection_is_the_same_to_the_last_bit(
    place: Place, method: str, parameters: dict[str, Any]
) -> None:
    table, names = _table()
    wanted = select(method, Profile(detailed=in_memory(table, names)), parameters, seed=3)
    found = select(method, Profile(detailed=on_disk(place, table, names)), parameters, seed=3)
    assert isinstance(found.labels, Column)
    assert found.document(labels=True).model_dump_json() == wanted.document(labels=True).model_dump_json()


@pytest.mark.parametrize("method", ["pks", "sieve", "stem"])
def test_a_selection_keeps_only_the_columns_that_it_computes_with(place: Place, method: str) -> None:
    table, names = _table()
    launches = on_disk(place, table, names)
    written = place.scratch.used_bytes
    select(method, Profile(detailed=launches), {}).document()
    # Shapes, numbers and processes of launches, 36 bytes each, are read from the file where they are used.
    # The verdict counts blocks and light time, 16 bytes.
    assert 0 < place.scratch.peak_bytes - written <= 64 * _N


def test_rows_are_taken_in_their_order_from_any_row_groups(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_sampling.launches.parquet.ROW_GROUP_ROWS", 1000)
    table, names = _table()
    launches = on_disk(place, table, names)
    rows = np.array([5999, 0, 2999, 3000, 0, 17, 1000])
    found = launches.take(rows)
    assert found.table.equals(in_memory(table, names).take(rows).table.select(found.table.column_names))
    none = launches.take(np.array([], np.int64))
    assert len(none) == 0 and none.table.schema == found.table.schema


def test_a_selection_of_a_light_run_is_the_same(place: Place) -> None:
    table, names = _table("light")
    wanted, found = (
        select("stem", Profile(light=each), {}, seed=1)
        for each in (in_memory(table, names), on_disk(place, table, names))
    )
    assert found.document(labels=True).model_dump_json() == wanted.document(labels=True).model_dump_json()
    assert found.light_time_weights is not None


def test_balanced_draws_a_light_run_on_disk_as_one_in_memory(place: Place) -> None:
    """Four launches hold nearly all of the time, so some are taken whole, of many blocks of rows."""
    table, names = _table("light")
    column = table.schema.get_field_index("duration_ns")
    durations = table["duration_ns"].to_numpy().copy()
    durations[::1500] = 5 * durations.sum()
    table = table.set_column(column, table.schema.field(column), pa.array(durations))
    wanted, found = (
        select("balanced", Profile(light=each), {"launches": 120}, seed=2)
        for each in (in_memory(table, names), on_disk(place, table, names))
    )
    assert isinstance(found.labels, Column)
    assert found.document(labels=True).model_dump_json() == wanted.document(labels=True).model_dump_json()
    assert found.representatives.draws is not None
    assert (found.representatives.draws == 0).sum() == 4


def test_fair_scores_of_draws_are_the_same_and_halves_are_not_tried(place: Place) -> None:
    table, names = _table()
    for method in ("stem", "sieve"):
        wanted, found = (
            select_and_try(method, Profile(detailed=each), {}, count=3).fair
            for each in (in_memory(table, names), on_disk(place, table, names))
        )
        assert found == wanted
    assert (
        select_and_try("pks", Profile(detailed=on_disk(place, table, names)), {}, count=3).fair.basis
        == "in_sample"
    )


def test_launches_that_arrive_in_any_order_are_sorted(place: Place) -> None:
    table, names = _table(rows=3000)
    shuffled = table.take(pa.array(np.random.default_rng(5).permutation(3000)))
    wanted = select("sieve", Profile(detailed=in_memory(table, names)), {})
    found = select("sieve", Profile(detailed=on_disk(place, shuffled, names)), {})
    assert found.document(labels=True).model_dump_json() == wanted.document(labels=True).model_dump_json()


@pytest.mark.parametrize("order", [(0, 1, 2, 2, 3), (3, 2, 0, 2, 1)])
def test_a_launch_that_appears_twice_is_an_error(place: Place, order: tuple[int, ...]) -> None:
    table, names = _table(rows=4)
    with pytest.raises(LaunchTableError, match="launch 2 of process 0 appears twice"):
        on_disk(place, table.take(pa.array(order)), names)


def _broken(table: pa.Table, name: str, row: int, value: float | None) -> pa.Table:
    values = table[name].to_pylist()
    values[row] = value
    position = table.schema.get_field_index(name)
    return table.set_column(
        position, table.schema.field(position), pa.array(values, table.schema.field(name).type)
    )


@pytest.mark.parametrize("row", [0, 511, 512, 2999])
@pytest.mark.parametrize(
    ("value", "method"), [(None, "pks"), (float("nan"), "pks"), (-5.0, "sieve"), (float("inf"), "sieve")]
)
def test_a_bad_value_is_refused_in_the_same_words(
    place: Place, row: int, value: float | None, method: str
) -> None:
    table, names = _table(rows=3000)
    broken = _broken(table, "cycles_gpc_avg" if value != -5.0 else "instructions", row, value)
    said = []
    for each in (in_memory(broken, names), on_disk(place, broken, names)):
        with pytest.raises(AssayError) as refused:
            select(method, Profile(detailed=each), {"cost": "cycles_gpc_avg"} if method == "pks" else {})
        said.append((type(refused.value), str(refused.value)))
    assert said[0] == said[1]


def test_a_counter_that_is_not_a_number_is_refused_in_the_same_words(place: Place) -> None:
    table, names = _table(rows=3000)
    broken = _broken(table, features_of("table2")[0], 2000, float("nan"))
    said = []
    for each in (in_memory(broken, names), on_disk(place, broken, names)):
        with pytest.raises(CounterUnavailableError) as refused:
            select("pks", Profile(detailed=each), {})
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_what_needs_all_launches_in_memory_is_refused(place: Place) -> None:
    table, names = _table(rows=500)
    kept = on_disk(place, table, names)
    for method, parameters in (("tbpoint", {}), ("sieve", {"launches_per_group": 3})):
        with pytest.raises(RefusedError, match="memory limit"):
            select(method, Profile(detailed=kept), parameters)
    with pytest.raises(RefusedError, match="memory limit"):
        kept.column("launch")
    with pytest.raises(RefusedError, match="memory limit"):
        _ = kept.table.column_names


def test_only_a_limit_that_leaves_room_for_an_engine_goes_to_disk(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, names = _table("light", rows=3000)

    def gathered(limit: int, **options: Any) -> Launches:
        return gather(
            batches(table, names), table.schema, memory_limit_bytes=limit, scratch=tmp_path, **options
        )

    assert not gathered(1 << 30).is_on_disk
    with pytest.raises(RefusedError, match="memory limit of 1,000 bytes"):
        gathered(1000)
    monkeypatch.setattr(gathering, "LEAST_BEYOND_MEMORY_BYTES", 1000)
    assert gathered(1000).is_on_disk
    assert gathered(200_000).is_on_disk
    assert gathered(1 << 30, expected_launches=1 << 30).is_on_disk
    assert gathered(1 << 30, spill_beyond_bytes=1000).is_on_disk
    monkeypatch.setattr(gathering, "is_installed", lambda: False)
    with pytest.raises(RefusedError, match=r"engine"):
        gathered(1000)
    assert not gathered(1 << 30, spill_beyond_bytes=1000).is_on_disk


@pytest.mark.parametrize("method", ["pks", "sieve", "stem"])
def test_a_saved_selection_is_scored_on_disk_as_in_memory(place: Place, method: str) -> None:
    table, names = _table()
    here = in_memory(table, names)
    document = json.loads(select(method, Profile(detailed=here), {}).document(labels=True).model_dump_json())
    saved = SavedSelection.read(document, "made")
    wanted, found = (
        {kind: scores.to_dict() for kind, scores in score_saved_by_weights(saved, each, None).items()}
        for each in (here, on_disk(place, table, names))
    )
    assert found == wanted


def test_another_recording_is_told_apart_on_disk_as_in_memory(place: Place) -> None:
    table, names = _table(rows=2000)
    document = json.loads(
        select("stem", Profile(detailed=in_memory(table, names)), {}).document().model_dump_json()
    )
    saved = SavedSelection.read(document, "made")
    other, other_names = _table(rows=2000, seed=1)
    said = []
    for each in (in_memory(other, other_names), on_disk(place, other, other_names)):
        with pytest.raises(MisalignedError) as refused:
            score_saved_by_weights(saved, each, None)
        said.append((refused.value.cause, refused.value.differences))
    assert said[0] == said[1]


@given(
    times=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 300), st.integers(0, 80)), min_size=1
    )
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_launches_overlap_alike_on_disk_and_in_memory(
    place: Place, times: list[tuple[int, int, int, int]]
) -> None:
    table, names = _table("light", rows=len(times))
    process, device, start, duration = (np.array(values) for values in zip(*sorted(times), strict=True))
    for name, values in (
        ("process", process), ("device", device), ("start_ns", start), ("duration_ns", duration),
    ):  # fmt: skip
        position = table.schema.get_field_index(name)
        field = table.schema.field(position)
        table = table.set_column(position, field, pa.array(values, field.type))
    kept = on_disk(place, table, names)
    assert overlap_of(kept) == overlap_of(in_memory(table, names))
    assert kept.processes() == len(set(process.tolist()))
