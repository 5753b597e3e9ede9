"""One contract over all engines: the same groups and the same order, to the last bit, of ugly rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_sampling.engines.beyond_memory import DuckEngine
from assay_sampling.engines.in_memory import ArrowEngine
from assay_sampling.engines.seam import ArrayRows, Engine, FileRows, Groups, Rows
from assay_sampling.errors import RefusedError

pytest.importorskip("duckdb", reason="the extra 'engine' is not installed")

_SEVERAL = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_UGLY_FLOATS = st.sampled_from(
    [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.0, -1.5, 1e308]
)
_UGLY_TEXTS = st.one_of(
    st.sampled_from(
        ["", "void k<int>(float*)", "'; DROP TABLE launches; --", "\x00", "ä", "Z", "a", "é" * 50]
    ),
    st.text(max_size=5),
)


def _rows() -> st.SearchStrategy[list[tuple[object, ...]]]:
    row = st.tuples(
        st.none() | _UGLY_FLOATS, st.none() | _UGLY_TEXTS, st.integers(0, 3), st.none() | st.integers(-9, 9)
    )
    return st.lists(row, max_size=40)


_SCHEMA = pa.schema(
    [("x", pa.float64()), ("text", pa.large_string()), ("id", pa.uint64()), ("n", pa.int64())]
)


def _table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = [list(values) for values in zip(*rows, strict=True)] or [[], [], [], []]
    return pa.table([pa.array(v, f.type) for v, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


@pytest.fixture
def beyond(tmp_path: Path) -> DuckEngine:
    return DuckEngine(tmp_path, memory_bytes=256 << 20, spill_bytes=1 << 30)


@pytest.fixture(params=["arrow", "duckdb"])
def engine(request: pytest.FixtureRequest, beyond: DuckEngine) -> Engine:
    return ArrowEngine() if request.param == "arrow" else beyond


def _as_rows(table: pa.Table) -> ArrayRows:
    return ArrayRows(dict(zip(table.schema.names, table.columns, strict=True)))


def _bits(table: pa.Table) -> list[tuple[object, ...]]:
    """Values that can be compared: floating-point numbers by their bits."""
    columns = [
        [None if v is None else np.float64(v).tobytes() if isinstance(v, float) else v for v in c.to_pylist()]
        for c in table.columns
    ]
    return list(zip(*columns, strict=True))


def _same(one: Groups, other: Groups) -> None:
    assert _bits(one.keys) == _bits(other.keys)
    assert one.keys.schema.types == other.keys.schema.types
    for ours, theirs in ((one.first_row, other.first_row), (one.count, other.count)):
        assert ours.dtype == theirs.dtype == np.int64
        assert ours.tolist() == theirs.tolist()
    assert {n: v.tolist() for n, v in one.sums.items()} == {n: v.tolist() for n, v in other.sums.items()}


@given(rows=_rows())
@_SEVERAL
def test_both_engines_group_alike(rows: list[tuple[object, ...]], beyond: DuckEngine) -> None:
    table = _table(rows)
    for keys in (("text",), ("id", "x", "text")):
        _same(
            ArrowEngine().groups(_as_rows(table), keys, sums=("n",)),
            beyond.groups(_as_rows(table), keys, sums=("n",)),
        )


@given(rows=_rows())
@_SEVERAL
def test_groups_are_those_of_plain_python(rows: list[tuple[object, ...]], beyond: DuckEngine) -> None:
    def key(row: tuple[object, ...]) -> tuple[object, ...]:
        x = row[0]
        if isinstance(x, float):
            x = "nan" if math.isnan(x) else x + 0.0
        return x, row[1]

    wanted: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        wanted.setdefault(key(row), []).append(place)
    found = beyond.groups(_as_rows(_table(rows)), ("x", "text"), sums=("n",))
    assert found.first_row.tolist() == [places[0] for places in wanted.values()]
    assert found.count.tolist() == [len(places) for places in wanted.values()]
    assert found.sums["n"].tolist() == [sum(rows[p][3] or 0 for p in places) for places in wanted.values()]


@given(rows=_rows())
@_SEVERAL
def test_both_engines_sort_alike(rows: list[tuple[object, ...]], beyond: DuckEngine) -> None:
    table = _table(rows)
    for by in (("x",), ("text", "n")):
        ours, theirs = (
            pa.Table.from_batches(list(each.sorted(_as_rows(table), by)), schema=table.schema)
            for each in (ArrowEngine(), beyond)
        )
        assert _bits(ours) == _bits(theirs)


@given(values=st.lists(_INT64, min_size=1, max_size=6))
@_SEVERAL
def test_a_sum_is_exact_or_refused(values: list[int], beyond: DuckEngine) -> None:
    rows = ArrayRows({"k": np.zeros(len(values), np.int64), "v": np.array(values, np.int64)})
    exact = sum(values)
    for each in (ArrowEngine(), beyond):
        if -(2**63) <= exact < 2**63:
            assert each.groups(rows, ["k"], ["v"]).sums["v"].tolist() == [exact]
        else:
            with pytest.raises(RefusedError, match="too large"):
                each.groups(rows, ["k"], ["v"])


def test_identifiers_of_all_64_bits_are_kept(engine: Engine) -> None:
    ids = np.array([2**64 - 1, 0, 2**63, 2**64 - 1], np.uint64)
    found = engine.groups(ArrayRows({"id": ids}), ["id"])
    assert found.key("id").tolist() == [2**64 - 1, 0, 2**63]
    assert found.count.tolist() == [2, 1, 1]


def test_no_rows_and_one_row(engine: Engine) -> None:
    empty = engine.groups(_as_rows(_table([])), ("x", "text"), sums=("n",))
    assert len(empty) == 0
    assert [b for b in engine.sorted(_as_rows(_table([])), ("x",)) if b.num_rows] == []
    one = engine.groups(_as_rows(_table([(math.nan, None, 1, None)])), ("x", "text"), sums=("n",))
    assert (one.first_row.tolist(), one.count.tolist(), one.sums["n"].tolist()) == ([0], [1], [0])


def test_a_kernel_name_of_a_megabyte_is_a_key_like_any_other(engine: Engine) -> None:
    huge = "void " + "t<" * 500_000 + ">"
    rows = ArrayRows({"name": pa.array([huge, "a", huge + "x", huge], pa.large_string())})
    found = engine.groups(rows, ["name"])
    assert found.keys["name"].to_pylist() == [huge, "a", huge + "x"]
    assert found.count.tolist() == [2, 1, 1]


def test_equal_keys_keep_their_order_however_the_rows_arrive(engine: Engine, tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(1000) % 3, "place": np.arange(1000)})
    files = []
    for number, part in enumerate((table.slice(0, 400), table.slice(400, 1), table.slice(401))):
        files.append(
            tmp_path / f"part '{number}' [a].parquet" if number == 1 else tmp_path / f"{number}.parquet"
        )
        pq.write_table(part, files[-1], row_group_size=97)
    for rows in (
        _as_rows(table),
        FileRows(tuple(files), ("k", "place")),
        FileRows(tuple(files[::2]), ("k", "place")),
    ):
        found = pa.Table.from_batches(list(engine.sorted(rows, ["k"])))
        places = found["place"].to_numpy()
        for k in range(3):
            mine = places[found["k"].to_numpy() == k]
            assert (np.diff(mine) > 0).all()
        assert engine.groups(rows, ["k"]).first_row.tolist() == [0, 1, 2]


def test_files_are_numbered_one_after_the_other(engine: Engine, tmp_path: Path) -> None:
    for number, values in enumerate(([5, 5], [6], [5, 7])):
        pq.write_table(pa.table({"k": values, "v": values}), tmp_path / f"{number}.parquet")
    rows: Rows = FileRows(tuple(tmp_path / f"{n}.parquet" for n in range(3)), ("k", "v"))
    found = engine.groups(rows, ["k"], ["v"])
    assert found.first_row.tolist() == [0, 2, 4]
    assert found.count.tolist() == [3, 1, 1]
    assert found.sums["v"].tolist() == [15, 6, 7]


def test_a_sum_of_floating_point_numbers_is_refused(engine: Engine) -> None:
    rows = ArrayRows({"k": np.zeros(2, np.int64), "v": np.array([0.1, 0.2])})
    with pytest.raises(ValueError, match="integers"):
        engine.groups(rows, ["k"], ["v"])


def test_an_engine_beyond_memory_reads_only_its_own_files(beyond: DuckEngine, tmp_path: Path) -> None:
    import duckdb  # noqa: PLC0415

    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"k": [1]}), outside)
    # The database that a question gets, as a hostile statement would see it.
    with beyond._database([]) as database:
        for statement in (
            f"SELECT * FROM read_parquet('{outside}')",
            "SELECT * FROM read_csv('/etc/passwd')",
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            f"ATTACH '{tmp_path / 'other.db'}'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SET memory_limit = '1TB'",
            "SET temp_directory = '/tmp'",
        ):
            with pytest.raises(duckdb.Error):
                database.sql(statement).fetchall()


def test_a_sort_beyond_its_memory_spills_and_leaves_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1_500_000
    rows = ArrayRows(
        {
            "k": rng.integers(0, 2**60, n),
            "a": rng.integers(0, 2**60, n),
            "b": rng.integers(0, 2**60, n),
            "c": rng.integers(0, 2**60, n),
        }
    )
    little = DuckEngine(tmp_path, memory_bytes=64 << 20, spill_bytes=1 << 30)
    before = None
    seen = 0
    for batch in little.sorted(rows, ["k"]):
        keys = batch["k"].to_numpy()
        assert (np.diff(keys) >= 0).all()
        assert before is None or before <= keys[0]
        before, seen = keys[-1], seen + len(keys)
    assert seen == n
    assert list(tmp_path.iterdir()) == []


def test_a_spill_beyond_its_bound_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ArrayRows({name: rng.integers(0, 2**60, 2_000_000) for name in "kabc"})
    with pytest.raises(RefusedError, match="scratch space"):
        list(DuckEngine(tmp_path, memory_bytes=64 << 20, spill_bytes=1 << 20).sorted(rows, ["k"]))
    assert list(tmp_path.iterdir()) == []
