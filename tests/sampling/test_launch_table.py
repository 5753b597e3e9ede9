"""The launch table's schema, its names, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import LaunchTableError
from assay_sampling.launches import checks
from assay_sampling.launches import table as lt
from assay_sampling.launches.table import CounterColumn, Names, TableMetadata

CYCLES = CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware")


def minimal(**columns: object) -> pa.RecordBatch:
    base = {"process": [0], "launch": [0], "kernel_id": [lt.text_id("k")], "grid_x": [1], "block_x": [32]}
    return lt.make_batch(lt.launch_schema(TableMetadata("light")), {**base, **columns})


def test_text_id_is_the_same_on_every_machine() -> None:
    # Pinned: stored tables hold these numbers.
    assert lt.text_id("") == 0xB4B2797457A0A6E4
    assert lt.text_id("saxpy(int, float)") == 0x1A81065410B85204


@pytest.mark.parametrize(
    ("origin", "written"),
    [
        ("measured", {"synthetic": False}),
        ("synthetic", {"synthetic": True}),
        ("simulated", {"synthetic": False, "origin": "simulated"}),
    ],
)
def test_the_origin_is_written_as_earlier_releases_read_it(
    origin: lt.Origin, written: dict[str, Any]
) -> None:
    metadata = TableMetadata("light", origin=origin)
    document = json.loads(metadata.to_json())
    assert {key: document[key] for key in ("synthetic", "origin") if key in document} == written
    assert TableMetadata.from_json(metadata.to_json()) == metadata
    assert (metadata.synthetic, metadata.simulated) == (origin == "synthetic", origin == "simulated")


@pytest.mark.parametrize(
    "marks", [{"origin": "guessed"}, {"synthetic": True, "origin": "simulated"}, {"origin": "synthetic"}]
)
def test_an_origin_that_contradicts_itself_is_refused(marks: dict[str, Any]) -> None:
    document = json.loads(TableMetadata("light").to_json()) | marks
    with pytest.raises(LaunchTableError, match="unknown origin"):
        TableMetadata.from_json(json.dumps(document).encode())


def test_metadata_survives_the_schema() -> None:
    metadata = TableMetadata(
        "detailed",
        origin="synthetic",
        condition=lt.Condition("all", "base", 50.0),
        devices=(lt.Device(3, "NVIDIA A100", "GPU-1", "8.0", 108),),
        tool="ncu",
        tool_version="2024.1",
    )
    schema = lt.launch_schema(metadata, [CYCLES])
    assert checks.check_schema(schema) == metadata
    assert lt.counter_columns(schema) == (CYCLES,)
    assert schema.field("duration_ns").metadata[b"unit"] == b"ns"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (b"not json", "cannot be read"),
        (b"[]", "cannot be read"),
        (json.dumps({"schema_version": 99}).encode(), "schema version 99"),
        (json.dumps({"schema_version": 1, "level": "heavy"}).encode(), "unknown level"),
    ],
)
def test_foreign_metadata_is_refused(text: bytes, cause: str) -> None:
    with pytest.raises(LaunchTableError, match=cause):
        TableMetadata.from_json(text)


def test_absent_columns_are_null_and_mandatory_ones_are_demanded() -> None:
    batch = minimal()
    assert batch.column("duration_ns").null_count == 1
    with pytest.raises(LaunchTableError, match="'kernel_id' is missing"):
        lt.make_batch(
            lt.launch_schema(TableMetadata("light")),
            {"process": [0], "launch": [0], "grid_x": [1], "block_x": [1]},
        )
    with pytest.raises(LaunchTableError, match="unknown columns"):
        minimal(colour=["red"])
    with pytest.raises(LaunchTableError, match="'launch'"):
        minimal(launch=["seven"])


def test_schema_of_another_table_is_refused() -> None:
    good = lt.launch_schema(TableMetadata("light"))
    with pytest.raises(LaunchTableError, match="no 'assay' metadata"):
        checks.check_schema(good.remove_metadata())
    with pytest.raises(LaunchTableError, match="found the column"):
        checks.check_schema(good.set(1, pa.field("launch", pa.float64())))
    with pytest.raises(LaunchTableError, match="not a counter column"):
        checks.check_schema(good.append(pa.field("extra", pa.int64())))
    twice = lt.launch_schema(TableMetadata("light"), [CYCLES, CYCLES])
    with pytest.raises(LaunchTableError, match="appears twice"):
        checks.check_schema(twice)


@pytest.mark.parametrize(
    ("column", "value", "cause"),
    [
        ("launch", -1, "'launch' holds -1"),
        ("duration_ns", -5, "'duration_ns' holds -5"),
        ("grid_x", 0, "'grid_x' holds 0"),
        ("block_z", 0, "'block_z' holds 0"),
    ],
)
def test_impossible_values_are_refused(column: str, value: int, cause: str) -> None:
    with pytest.raises(LaunchTableError, match=cause):
        checks.check_batch(minimal(**{column: [value]}))


def test_a_null_in_a_mandatory_column_is_refused() -> None:
    batch = minimal()
    position = batch.schema.get_field_index("launch")
    with_null = batch.set_column(position, batch.schema.field("launch"), pa.array([None], pa.int64()))
    with pytest.raises(LaunchTableError, match="nulls"):
        checks.check_batch(with_null)


@given(st.lists(st.text(max_size=40), max_size=60))
def test_names_intern_every_text_once(texts: list[str]) -> None:
    names = Names()
    identifiers = [names.intern(text) for text in texts]
    assert [names[i] for i in identifiers] == texts
    assert len(names) == len(set(texts))
    assert dict(Names.from_table(names.to_table()).items()) == dict(names.items())


def test_names_differing_after_four_thousand_characters_stay_apart() -> None:
    names = Names()
    first, second = "k" * 4000 + "a", "k" * 4000 + "b"
    assert names.intern(first) != names.intern(second)
    assert len(names) == 2


def test_a_name_under_a_wrong_id_is_refused() -> None:
    with pytest.raises(LaunchTableError, match="is not the hash"):
        Names({7: "saxpy"})


def test_two_names_with_one_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lt, "text_id", lambda text: 1)
    names = Names()
    names.intern("a")
    with pytest.raises(LaunchTableError, match="same 64-bit hash"):
        names.intern("b")


def test_every_id_in_use_must_have_its_name() -> None:
    batch = minimal(operator_id=[lt.text_id("aten::mm")])
    assert set(checks.referenced_ids(batch).tolist()) == {lt.text_id("k"), lt.text_id("aten::mm")}
    names = Names()
    names.intern("k")
    with pytest.raises(LaunchTableError, match="no name was given"):
        checks.check_names([batch], names)
    names.intern("aten::mm")
    checks.check_names([batch], names)


def test_ids_use_all_64_bits() -> None:
    identifiers = np.array([lt.text_id(str(i)) for i in range(2000)], np.uint64)
    assert (identifiers >> np.uint64(63)).any()
    assert len(np.unique(identifiers)) == 2000
