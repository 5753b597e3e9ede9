from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.counters.definitions import counter_of_metric
from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import Condition, counter_columns
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.ncu import cells
from assay_sampling.readers.ncu import raw_page as ncu_csv
from assay_sampling.readers.numbers import parse_numbers
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    RAW_FIELDS,
    RAW_UNITS,
    kernel_names,
    raw_line,
    raw_page,
    raw_row,
    sentences,
    texts,
    write,
    write_gzip,
)

# --- real files -----------------------------------------------------------------------------------


def _simply_read(path: Path) -> list[dict[str, str]]:
    """The launch rows of a raw page, by the csv module and nothing of ours."""
    content = path.read_bytes()
    lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith('"ID",'))
    rows = csv.DictReader(io.StringIO("\n".join(lines[header:])))
    return [row for row in rows if row["ID"].isdigit()]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "launches", "counters"),
    [
        ("ncu/synthetic_v100_5000_raw_page.csv.gz", 5000, 19),
        ("ncu/synthetic_v100_1000_modern_layout.csv.gz", 1000, 19),
        ("ncu/edge_launch_skip.csv", 40, 19),
        ("ncu/edge_no_units_row.csv", 50, 19),
        ("ncu/edge_no_units_row_trailing_text.csv", 50, 19),
        ("ncu/edge_trailing_text.csv", 50, 19),
        ("sieve/syn5000_raw.csv", 5000, 5),
    ],
)
def test_every_value_of_real_layouts_is_what_the_csv_module_reads(
    shared_data: Path, name: str, launches: int, counters: int
) -> None:
    rows = _simply_read(shared_data / name)
    read = read_launches(shared_data / name)
    assert len(read) == len(rows) == launches
    assert read.column("launch").tolist() == [int(row["ID"]) for row in rows]
    assert read.column("report_id").tolist() == [int(row["ID"]) for row in rows]
    assert set(read.column("process").tolist()) == {0}
    assert kernel_names(read) == [row["Kernel Name"] for row in rows]
    assert len(read.counters) == counters
    for column in counter_columns(read.table.schema):
        np.testing.assert_array_equal(
            read.column(column.name), [_number(row[column.metric]) for row in rows], err_msg=column.name
        )
    product = read.column("grid_x").astype(np.float64)
    for axis in "yz":
        product *= np.maximum(read.column(f"grid_{axis}"), 1)
    np.testing.assert_array_equal(product, [_number(row["launch__grid_size"]) for row in rows])
    for column_name, field in (
        ("stream", "Stream"),
        ("registers_per_thread", "launch__registers_per_thread"),
        ("shared_memory_bytes", "launch__shared_mem_per_block_static"),
    ):
        np.testing.assert_array_equal(read.column(column_name), [_number(row[field]) for row in rows])
    assert read.metadata.level == "detailed" and read.metadata.tool == "Nsight Compute"
    assert read.table["duration_ns"].null_count == launches


@pytest.mark.shared_data
def test_the_total_of_the_synthetic_page_is_the_published_one(shared_data: Path) -> None:
    launches = read_launches(shared_data / "ncu/synthetic_v100_5000_raw_page.csv.gz")
    assert f"{launches.column('cycles_gpc_avg').sum():.2f}" == "377754880.56"
    assert launches.kernels() == 41
    assert launches.device_labels() == ["compute capability 7.0"]
    assert launches.metadata.devices[0].sm_count == 80


@pytest.mark.shared_data
def test_layouts_of_the_same_launches_hold_the_same_values(shared_data: Path) -> None:
    folder = shared_data / "ncu"
    with_units = read_launches(folder / "edge_trailing_text.csv")
    for other in ("edge_no_units_row.csv", "edge_no_units_row_trailing_text.csv"):
        without = read_launches(folder / other)
        assert without.table.replace_schema_metadata(None).equals(
            with_units.table.replace_schema_metadata(None)
        )
        assert without.metadata.units_assumed and not with_units.metadata.units_assumed
        assert "the file has no units row: base units are assumed" in sentences(without)
    skipped = read_launches(folder / "edge_launch_skip.csv")
    assert skipped.column("launch").tolist() == list(range(10, 50))
    assert skipped.table.replace_schema_metadata(None).equals(
        with_units.table.slice(10).replace_schema_metadata(None)
    )


# --- layouts --------------------------------------------------------------------------------------


def _read(tmp_path: Path, text: str | bytes, options: ReadOptions | None = None) -> Launches:
    return read_launches(write(tmp_path / "page.csv", text), options or ReadOptions())


def _error(tmp_path: Path, text: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        _read(tmp_path, text)
    return caught.value


def test_a_modern_row_becomes_one_launch(tmp_path: Path) -> None:
    launches = _read(tmp_path, raw_page([raw_row(0), raw_row(1)]))
    assert launches.table.slice(1).drop_columns(["kernel_id"]).to_pylist() == [
        {
            "process": 0,
            "launch": 1,
            "report_id": 1,
            "graph_launch": None,
            "graph_node": None,
            "grid_x": 2,
            "grid_y": 2,
            "grid_z": 1,
            "block_x": 256,
            "block_y": 1,
            "block_z": 1,
            "registers_per_thread": None,
            "shared_memory_bytes": None,
            "dynamic_shared_memory_bytes": None,
            "device": 0,
            "stream": 7,
            "start_ns": None,
            "duration_ns": None,
            "nvtx_id": None,
            "operator_id": None,
            "input_shapes_id": None,
            "cycles_gpc_avg": 1001.5,
            "profiled_duration_ns": 2048.0,
            "thread_blocks": 4.0,
            "instructions": 12345.0,
        }
    ]
    assert launches.metadata.devices[0].compute_capability == "8.0"
    assert sentences(launches) == ()
    assert next(c.metric for c in counter_columns(launches.table.schema)) == "gpc__cycles_elapsed.avg"


def _with_metrics(cells: dict[str, tuple[str, str]], *, drop: tuple[str, ...] = ()) -> str:
    """A page of one launch with more metrics: (unit, value) by name."""
    fields = [f for f in RAW_FIELDS if f not in drop] + list(cells)
    units = [u for f, u in zip(RAW_FIELDS, RAW_UNITS, strict=True) if f not in drop]
    row = raw_row(0) | {name: value for name, (_, value) in cells.items()}
    return raw_page([row], fields, [*units, *(unit for unit, _ in cells.values())])


def test_grid_dimensions_stand_in_where_the_sizes_are_totals(tmp_path: Path) -> None:
    dims = {f"launch__grid_dim_{axis}": ("", str(size)) for axis, size in zip("xyz", (5, 6, 7), strict=True)}
    dims |= {
        f"launch__block_dim_{axis}": ("", str(size)) for axis, size in zip("xyz", (32, 4, 2), strict=True)
    }
    launches = _read(tmp_path, _with_metrics(dims, drop=("Grid Size", "Block Size")))
    shape = [int(launches.column(f"{what}_{axis}")[0]) for what in ("grid", "block") for axis in "xyz"]
    assert shape == [5, 6, 7, 32, 4, 2]
    assert sentences(launches) == ()


def test_totals_alone_leave_the_other_axes_null_and_say_so(tmp_path: Path) -> None:
    page = _with_metrics({"launch__block_size": ("", "1,024")}, drop=("Grid Size", "Block Size"))
    launches = _read(tmp_path, page)
    assert launches.table["block_x"].to_pylist() == [1024]
    assert launches.table["grid_x"].to_pylist() == [2]
    assert launches.table["grid_y"].to_pylist() == launches.table["block_z"].to_pylist() == [None]
    assert "only total numbers of blocks and threads are known: grid_x and block_x hold them" in sentences(
        launches
    )


def test_shared_memory_is_static_and_dynamic_in_bytes(tmp_path: Path) -> None:
    page = _with_metrics(
        {
            "launch__shared_mem_per_block_static": ("Kbyte/block", "4.096"),
            "launch__shared_mem_per_block_dynamic": ("byte/block", "1,024"),
            "launch__registers_per_thread": ("register/thread", "40"),
        }
    )
    launches = _read(tmp_path, page)
    assert launches.table["shared_memory_bytes"].to_pylist() == [5120]
    assert launches.table["dynamic_shared_memory_bytes"].to_pylist() == [1024]
    assert launches.table["registers_per_thread"].to_pylist() == [40]


@pytest.mark.parametrize(
    ("metric", "unit", "text", "counter", "value"),
    [
        ("gpu__time_duration.sum", "usecond", "84.48", "profiled_duration_ns", 84480.0),
        ("gpu__time_duration.sum", "msecond", "1.5", "profiled_duration_ns", 1.5e6),
        ("gpu__time_duration.sum", "second", "2", "profiled_duration_ns", 2e9),
        ("gpc__cycles_elapsed.avg.per_second", "Ghz", "1.5", "clock_gpc_hz", 1.5e9),
        ("gpc__cycles_elapsed.avg.per_second", "cycle/nsecond", "1.25", "clock_gpc_hz", 1.25e9),
        ("smsp__inst_executed.sum", "Kinst", "1,234.5", "instructions", 1234500.0),
        ("dram__bytes.sum", "Mbyte", "2", "dram_bytes", 2e6),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "Ksector", "3", "global_load_sectors", 3000.0),
    ],
)
def test_units_are_converted(
    tmp_path: Path, metric: str, unit: str, text: str, *, counter: str, value: float
) -> None:
    drop = (metric,) if metric in RAW_FIELDS else ()
    launches = _read(tmp_path, _with_metrics({metric: (unit, text)}, drop=drop))
    assert launches.column(counter).tolist() == [value]


def test_an_unknown_unit_of_a_used_metric_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    error = _error(tmp_path, _with_metrics({"dram__bytes.sum": ("furlong", "2")}))
    assert error.field == "dram__bytes.sum" and "'furlong'" in error.cause
    assert _read(tmp_path, _with_metrics({"nobody__uses.sum": ("furlong", "2")})).counters


def test_of_two_metrics_for_one_counter_the_registry_prefers(tmp_path: Path) -> None:
    second = "smsp__average_thread_inst_executed_per_inst_executed.ratio"
    first = "smsp__thread_inst_executed_per_inst_executed.ratio"
    assert counter_of_metric(first) == counter_of_metric(second)
    launches = _read(tmp_path, _with_metrics({second: ("", "30"), first: ("", "31")}))
    assert launches.column("threads_per_instruction").tolist() == [31.0]
    assert any(second in note for note in sentences(launches))


def test_thread_blocks_follow_from_the_grid_where_nobody_collected_them(tmp_path: Path) -> None:
    fields = [name for name in RAW_FIELDS if name != "launch__grid_size"]
    launches = _read(tmp_path, raw_page([raw_row(0), raw_row(7)], fields, None))
    assert launches.column("thread_blocks").tolist() == [2.0, 16.0]


def test_variants_of_a_metric_are_two_counters(tmp_path: Path) -> None:
    cells = {"smsp__inst_executed_op_global_ld.sum": ("inst", "3"),
             "smsp__sass_inst_executed_op_global_ld.sum": ("inst", "5")}  # fmt: skip
    launches = _read(tmp_path, _with_metrics(cells))
    assert launches.column("global_load_instructions").tolist() == [3.0]
    assert launches.column("global_load_instructions_sass").tolist() == [5.0]


def test_devices_of_the_modern_layout(tmp_path: Path) -> None:
    name, count = "device__attribute_display_name", "device__attribute_multiprocessor_count"
    rows = [
        raw_row(0) | {name: "A100", count: "108"},
        raw_row(1, Device="3", CC="9.0") | {name: "H100", count: "132"},
    ]
    launches = _read(tmp_path, raw_page(rows, (*RAW_FIELDS, name, count), (*RAW_UNITS, "", "")))
    assert [(d.index, d.name, d.compute_capability, d.sm_count) for d in launches.metadata.devices] == [
        (0, "A100", "8.0", 108),
        (3, "H100", "9.0", 132),
    ]
    assert launches.device_labels() == ["A100", "H100"]


def test_the_attributes_of_a_device_may_be_floating_point_numbers(tmp_path: Path) -> None:
    """As ncu 2022.3 prints them with --print-fp, and has no field "CC"."""
    attributes = {
        "device__attribute_compute_capability_major": ("", "8.00"),
        "device__attribute_compute_capability_minor": ("", "6.00"),
        "device__attribute_multiprocessor_count": ("", "46.00"),
    }
    device = _read(tmp_path, _with_metrics(attributes, drop=("CC",))).metadata.devices[0]
    assert (device.compute_capability, device.sm_count) == ("8.6", 46)


def test_several_gpus_in_the_classic_layout_are_refused(tmp_path: Path) -> None:
    fields = (*(f for f in RAW_FIELDS if f not in ("Device", "CC")), "device__attribute_multiprocessor_count")
    rows = [raw_row(i) | {fields[-1]: sms} for i, sms in enumerate(("80", "80", "72"))]
    error = _error(tmp_path, raw_page(rows, fields, None))
    assert (error.line, error.field) == (4, "device__attribute_multiprocessor_count")


def test_nvtx_ranges_become_a_path(tmp_path: Path) -> None:
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    stack = (
        '4242  "<default domain>:step:none:none:none:none:none:none" "lib:a:b:none:none:none:none:none:none" '
    )
    rows = [raw_row(0) | {column: stack}, raw_row(1) | {column: ""}, raw_row(2) | {column: "what is this"}]
    launches = _read(tmp_path, raw_page(rows, (*RAW_FIELDS, column), (*RAW_UNITS, "")))
    assert texts(launches, "nvtx_id") == ["step/a:b", None, None]
    assert "the NVTX ranges of 1 launch have an unknown form" in sentences(launches)


def test_a_column_of_ranges_may_hold_line_ends(tmp_path: Path) -> None:
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    stack = '1 "<default domain>:first\nsecond:none:none:none:none:none:none"\n'
    rows = [raw_row(i) | {column: stack} for i in range(4)]
    page = raw_page(rows, (*RAW_FIELDS, column), (*RAW_UNITS, ""))
    launches = _read(tmp_path, page)
    assert texts(launches, "nvtx_id") == ["first\nsecond"] * 4
    bad = page.replace('"1003.5"', '"many"')
    assert _error(tmp_path, bad).line == 12


# --- identity -------------------------------------------------------------------------------------


def test_processes_are_ordinals_and_an_offset_numbers_within_each(tmp_path: Path) -> None:
    order = ["900", "77", "900", "900", "77"]
    page = raw_page([raw_row(i, Process_ID=pid) for i, pid in enumerate(order)])
    launches = _read(tmp_path, page)
    assert launches.column("process").tolist() == [0, 0, 0, 1, 1]
    assert launches.column("launch").tolist() == [0, 2, 3, 1, 4]
    shifted = _read(tmp_path, page, ReadOptions(launch_offset=100))
    assert shifted.column("launch").tolist() == [100, 101, 102, 100, 101]
    assert shifted.column("report_id").tolist() == [0, 2, 3, 1, 4]


def test_options_are_kept_in_the_metadata(tmp_path: Path) -> None:
    condition = Condition(cache="all", clock="base", sm_percent=100.0)
    launches = _read(tmp_path, raw_page([raw_row(0)]), ReadOptions(synthetic=True, condition=condition))
    assert launches.metadata.synthetic and launches.metadata.condition == condition


@pytest.mark.parametrize("second", [3, 2])
def test_ids_that_do_not_grow_are_refused(tmp_path: Path, second: int) -> None:
    error = _error(tmp_path, raw_page([raw_row(3), raw_row(second)]))
    assert (error.line, error.field) == (4, "ID")


def test_a_negative_offset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="negative"):
        _read(tmp_path, raw_page([raw_row(0)]), ReadOptions(launch_offset=-1))


# --- values ---------------------------------------------------------------------------------------


def test_unmeasured_values_are_nulls_with_a_count_and_the_first_line(tmp_path: Path) -> None:
    name = "smsp__inst_executed.sum"
    values = ["5", "n/a", "nan", "", "7"]
    launches = _read(tmp_path, raw_page([raw_row(i) | {name: v} for i, v in enumerate(values)]))
    assert launches.table["instructions"].to_pylist() == [5.0, None, None, None, 7.0]
    assert "instructions was not measured for 3 launches, the first is line 4" in sentences(launches)


@pytest.mark.parametrize("text", ["1,5", "268.892,48", "four", "1 000"])
def test_a_number_that_cannot_be_read_names_file_line_and_field(tmp_path: Path, text: str) -> None:
    page = raw_page([raw_row(0), raw_row(1) | {"gpc__cycles_elapsed.avg": text}, raw_row(2)])
    error = _error(tmp_path, page)
    assert (error.line, error.field) == (4, "gpc__cycles_elapsed.avg")
    assert text in error.cause and str(tmp_path / "page.csv") in str(error)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("Grid Size", "n/a"), ("Grid Size", "(1, 2)"), ("Grid Size", "(0, 1, 1)"), ("Block Size", "256"),
        ("Grid Size", "(99999999999999999999, 1, 1)"), ("Stream", "nan"), ("Device", ""), ("Kernel Name", ""),
        ("Process ID", "n/a"), ("Device", "3000000000"),
    ],
)  # fmt: skip
def test_identity_and_shape_must_be_there(tmp_path: Path, field: str, text: str) -> None:
    error = _error(tmp_path, raw_page([raw_row(0), raw_row(1) | {field: text}]))
    assert (error.line, error.field) == (4, field)


def test_a_page_that_tells_no_grid_is_refused(tmp_path: Path) -> None:
    error = _error(tmp_path, _with_metrics({}, drop=("Grid Size", "launch__grid_size")))
    assert error.field == "launch__grid_size" and error.line == 1


# --- lines ----------------------------------------------------------------------------------------


def test_any_preamble_is_skipped(tmp_path: Path) -> None:
    preamble = '==PROF== Profiling "k" - 0: 0%....100% - 3 passes\n' * 5000 + "Epoch 1, loss 0.5\n\n"
    launches = _read(tmp_path, raw_page([raw_row(0)], preamble=preamble))
    assert len(launches) == 1
    assert sentences(launches) == (
        "the profiler announced 5,000 launches, but the file holds 1: it may be cut",
    )  # fmt: skip


def test_messages_after_the_rows_are_passed_on(tmp_path: Path) -> None:
    page = raw_page([raw_row(0)]) + "==ERROR== The application returned an error code (9).\n\ndone\n"
    launches = _read(tmp_path, page)
    assert "2 lines that are not launches were skipped, the first is line 4" in sentences(launches)
    assert "the profiler says: ==ERROR== The application returned an error code (9)." in sentences(launches)


_TEXT = st.one_of(
    st.sampled_from(
        [
            "",
            "PASSED",
            "loss: 0.25, accuracy: 93%",
            "==PROF== Disconnected from process 1",
            '"quoted" remark',
            "12, 13, 14",
            '{"step": 3, "loss": 1.5}',
            "a,b,c",
            "\x1b[32mok\x1b[0m",
            "é",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters='"\r\n'), max_size=30),
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.lists(_TEXT, max_size=3)), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([64, 300, 1000, 1 << 20]),
)
def test_text_between_rows_is_skipped_and_counted_wherever_it_stands(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, list[str]]],
    units: bool,
    block_bytes: int,
) -> None:
    lines, identifier, skipped, expected = [], 0, 0, []
    for step, remarks in rows:
        lines += [remark + "\n" for remark in remarks]
        skipped += sum(bool(remark.encode().strip()) for remark in remarks)
        identifier += step
        expected.append(identifier)
        lines.append(raw_line(raw_row(identifier)[name] for name in RAW_FIELDS))
    page = raw_page([], units=RAW_UNITS if units else None) + "".join(lines)
    path = write(tmp_path_factory.mktemp("interleaved") / "page.csv", page)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ncu_csv, "BLOCK_BYTES", block_bytes)
        launches = read_launches(path)
    assert launches.column("launch").tolist() == expected
    assert launches.column("instructions").tolist() == [12345.0 * i for i in expected]
    counted = [int(note.split()[0]) for note in sentences(launches) if "skipped" in note]
    assert sum(counted) == skipped


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 40), st.integers(40, 900), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_blocks_do_not_show(
    tmp_path_factory: pytest.TempPathFactory, rows: int, block_bytes: int, grouped: bool, line_end: str
) -> None:
    values = [f"{1000 * i:,}" if grouped else str(1000 * i) for i in range(rows)]
    page = raw_page([raw_row(i) | {"smsp__inst_executed.sum": v} for i, v in enumerate(values)])
    path = write(tmp_path_factory.mktemp("blocks") / "page.csv", page.replace("\n", line_end))
    whole = read_launches(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ncu_csv, "BLOCK_BYTES", block_bytes)
        patch.setattr(ncu_csv, "_FIRST_BLOCK_BYTES", block_bytes)
        patch.setattr(cells, "_PIECE_BYTES", block_bytes // 3)  # of rows, or less than half of one
        assert read_launches(path).table.equals(whole.table)
        with open_recording(path) as recording:
            sizes = [batch.records.num_rows for batch in recording.batches(max_launches=3)]
    assert sum(sizes) == rows and max(sizes) <= 3
    assert whole.column("instructions").tolist() == [1000.0 * i for i in range(rows)]


_ROW = raw_line(raw_row(1)[name] for name in RAW_FIELDS).rstrip("\n")


@pytest.mark.parametrize(
    "damaged",
    [
        "Epoch 3 done" + _ROW,
        _ROW + "Epoch 3 done",
        _ROW[:-20],
        _ROW[:60],
        _ROW.replace('"7",', ""),
        _ROW.replace('"7",', '"7","8",'),
        '"1"',
        '"1","4242"',
        'Epoch 3"1","4242","app"',
        _ROW[:40] + "Epoch 3 done\n" + _ROW[40:] + '"',
        raw_line(RAW_UNITS).rstrip("\n"),
        _ROW.replace("void kernel_1", "void\nkernel_1"),
    ],
)
@pytest.mark.parametrize("after", ["", "\n" + raw_line(raw_row(2)[name] for name in RAW_FIELDS)])
def test_a_damaged_row_is_an_error_and_never_dropped(tmp_path: Path, damaged: str, after: str) -> None:
    error = _error(tmp_path, raw_page([raw_row(0)]) + damaged + (after or "\n"))
    assert error.line == 4


@pytest.mark.parametrize("cut", ["", '"', '"1', '"1"', '"1",', '"1","42', _ROW[:-1], _ROW[:-3]])
def test_a_row_cut_at_the_end_of_the_file(tmp_path: Path, cut: str) -> None:
    page = raw_page([raw_row(0)])
    if not cut:
        assert len(_read(tmp_path, page)) == 1
        return
    assert _error(tmp_path, page + cut).line == 4
    assert len(_read(tmp_path, page + _ROW)) == 2


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    page = raw_page([raw_row(0)])
    error = _error(tmp_path, page + page)
    assert error.line == 4 and "second report" in error.cause


def test_an_unquoted_page_as_tables_are_saved_again(tmp_path: Path) -> None:
    rows = [raw_row(i) for i in range(3)]
    text = io.StringIO()
    writer = csv.DictWriter(text, RAW_FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    launches = _read(tmp_path, text.getvalue())
    assert launches.table.replace_schema_metadata(None).equals(
        _read(tmp_path, raw_page(rows)).table.replace_schema_metadata(None)
    )
    # Without quotes and line end nobody can tell whether the last number is whole.
    assert _error(tmp_path, text.getvalue().rstrip("\n")).line == 4
    assert _error(tmp_path, text.getvalue() + "3,4242,app\n").line == 5


def test_a_byte_order_mark_and_compression_make_no_difference(tmp_path: Path) -> None:
    page = raw_page([raw_row(0), raw_row(1)])
    plain = _read(tmp_path, page)
    assert _read(tmp_path, b"\xef\xbb\xbf" + page.encode()).table.equals(plain.table)
    assert read_launches(write_gzip(tmp_path / "page.xyz", page)).table.equals(plain.table)


def test_a_batch_brings_the_names_it_is_the_first_to_use(tmp_path: Path) -> None:
    path = write(tmp_path / "page.csv", raw_page([raw_row(i) for i in range(5)]))
    with open_recording(path) as recording:
        for _ in range(2):  # and again from the start
            new = [sorted(b.new_names.values()) for b in recording.batches(max_launches=2)]
            kernels = [f"void kernel_{i}<float>(float*, int)" for i in range(3)]
            assert new == [kernels[:2], kernels[2:], []]


# --- nothing to read ------------------------------------------------------------------------------


def test_an_error_of_the_profiler_is_quoted(tmp_path: Path) -> None:
    said = "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    error = _error(tmp_path, f"==PROF== Connected to process 1\n==ERROR== {said} on the target device 0.\n")
    assert said in error.cause and "NVreg_RestrictProfilingToAdminUsers=0" in error.remedy


def test_a_header_without_launches_is_an_error(tmp_path: Path) -> None:
    for page in (raw_page([]), raw_page([], units=None), raw_page([]) + "PASSED\n"):
        error = _error(tmp_path, page)
        assert "holds no launches" in error.cause and "No kernels were profiled" in error.remedy


def test_preamble_without_header(tmp_path: Path) -> None:
    error = _error(tmp_path, "==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n")
    assert '"Kernel Name"' in error.cause


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    page = raw_page([raw_row(0, Kernel_Name="k")]).encode().replace(b'"k"', b'"\xff\xfe"')
    assert _error(tmp_path, page).line == 3
    # In text of the application it does not matter.
    assert len(_read(tmp_path, raw_page([raw_row(0)]).encode() + b"\xff\xfe\n")) == 1


@pytest.mark.parametrize(
    "cell",
    ["0x10", "inf", "-inf", "nan", "NaN", "nan(7)", "1e999", " 5", "5 ", "+5", "1e3", "1.", ".5", "1_0",
     "1,5", "1,234.5", "9007199254740993", "", "N/A", "n/a", "-", "1e", "\u0665"],
)  # fmt: skip
def test_a_counter_among_plain_numbers_reads_as_it_does_alone(tmp_path: Path, cell: str) -> None:
    metric, rows = "smsp__inst_executed.sum", [raw_row(i) for i in range(3)]
    rows[1][metric] = cell
    path = write(tmp_path / "page.csv", raw_page(rows))
    alone = parse_numbers(pa.array([cell]))
    if alone.bad_row is None:
        assert read_launches(path).table["instructions"].to_pylist() == [
            0.0,
            alone.values[0].as_py(),
            24690.0,
        ]
    else:
        with pytest.raises(InputError) as failure:
            read_launches(path)
        assert (failure.value.line, failure.value.field) == (4, metric)


def test_plain_numbers_before_and_after_others_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [raw_row(i, Stream="7") for i in range(60)]
    rows[30] |= {"smsp__inst_executed.sum": "12,345", "gpu__time_duration.sum": "n/a", "Stream": "007"}
    rows[40] |= {"gpc__cycles_elapsed.avg": "1,040.5"}
    path = write(tmp_path / "page.csv", raw_page(rows))
    monkeypatch.setattr(ncu_csv, "BLOCK_BYTES", 900)
    launches = read_launches(path)
    assert launches.column("stream").tolist() == [7] * 60
    expected = [12345.0 * i if i != 30 else 12345.0 for i in range(60)]
    assert launches.column("instructions").tolist() == expected
    assert launches.column("cycles_gpc_avg").tolist() == [1000.5 + i for i in range(60)]
    assert launches.table["profiled_duration_ns"].null_count == 1
