"""``assay import table``: tables of other tools by the mappings of the page, and the ugliest honest input.

The small tables are made up in the layouts of the tools, and marked synthetic; that of ``shared_data`` is
real.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import assay as notebook
from assay_sampling.errors import InputError
from assay_sampling.readers.foreign_table.conversion import read_foreign_table
from assay_sampling.readers.foreign_table.mapping import read_mapping

Assay = Callable[..., Any]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "foreign-tables.md").read_text()
MAPPINGS = dict(re.findall(r"```toml\n# ([\w-]+\.toml)\n(.*?)```", PAGE, re.DOTALL))


def of_page(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(MAPPINGS[name])
    return path


def imported(assay: Assay, *arguments: object) -> dict[str, Any]:
    ended = assay("import", "table", *arguments, "--json")
    assert ended.code == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_the_page_has_a_mapping_for_each_tool() -> None:
    assert list(MAPPINGS) == ["ktt.toml", "t4.toml", "kernel-tuner.toml", "aiconfigurator.toml"]


# ---- the mappings of the page


KTT = (
    "launch,kernel,duration_ns,registers_per_thread,grid_x,grid_y,grid_z,block_x,block_y,block_z,"
    "smsp__inst_executed.sum,lts__t_sectors_op_read.sum,note\n"
    '4,"k<1, 2>",1000,22,8,1,1,32,1,1,100.0,7,"two\nlines"\n'
    "3,k,2500,24,16,2,1,64,1,1,n/a,9,\n"
)


@pytest.mark.parametrize("packed", [False, True])
def test_ktt_with_counters(assay: Assay, tmp_path: Path, packed: bool) -> None:
    table = tmp_path / ("t.csv.gz" if packed else "t.csv")
    table.write_bytes(gzip.compress(KTT.encode()) if packed else KTT.encode())
    out = tmp_path / "o.parquet"
    document = imported(assay, table, "--map", of_page(tmp_path, "ktt.toml"), "-o", out, "--synthetic")
    assert (document["rows"], document["launches"], document["level"]) == (2, 2, "detailed")
    assert document["columns_left_out"] == ["note"]
    found = notebook.Profile.read(out)
    assert found.origin == "synthetic" and found.devices == ("NVIDIA GeForce RTX 2080 Ti",)
    rows = found.to_arrow()
    assert rows["launch"].to_pylist() == [3, 4]
    assert rows["kernel"].to_pylist() == ["k", "k<1, 2>"]
    assert rows["instructions"].to_pylist() == [None, 100.0]
    assert rows["lts__t_sectors_op_read.sum"].to_pylist() == [9.0, 7.0]
    assert rows["profiled_duration_ns"].to_pylist() == [2500.0, 1000.0]
    assert rows["grid_y"].to_pylist() == [2, 1]
    again = notebook.Profile.from_pandas(found.to_pandas())
    assert again.to_arrow().equals(rows, check_metadata=True)


def test_t4_records_and_what_stands_around_them(assay: Assay, tmp_path: Path) -> None:
    def result(block: int, time: float, invalidity: str = "correct") -> dict[str, Any]:
        return {
            "configuration": {"BLOCK_SIZE_X": block}, "invalidity": invalidity, "objectives": ["time"],
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
        }  # fmt: skip

    results = [result(32, 0.5), result(64, 1e20, "runtime"), result(128, 0.0012345)]
    table = tmp_path / "t.json"
    table.write_text(json.dumps({"schema_version": "1.0.0", "results": results}))
    out = tmp_path / "o.parquet"
    document = imported(assay, table, "--map", of_page(tmp_path, "t4.toml"), "-o", out, "--synthetic")
    assert (document["rows"], document["launches"], document["level"]) == (3, 2, "light")
    rows = notebook.Profile.read(out).to_arrow()
    assert rows["kernel"].to_pylist() == ["pnpoly BLOCK_SIZE_X=32", "pnpoly BLOCK_SIZE_X=128"]
    assert rows["duration_ns"].to_pylist() == [500_000, 1234]
    assert rows["block_x"].to_pylist() == [32, 128] and rows["grid_x"].to_pylist() == [None, None]


def test_a_cache_of_kernel_tuner_has_a_launch_for_each_time(assay: Assay, tmp_path: Path) -> None:
    cache = {
        "16": {"block_size_x": 16, "time": 2.0, "times": [1.5, 2.5]},
        "32": {"block_size_x": 32, "time": "InvalidConfig", "times": None},
        "64": {"block_size_x": 64, "time": 1.0, "times": [0.9, 1.0, 1.1]},
    }
    table = tmp_path / "cache.json"
    document = {"device_name": "NVIDIA A100", "kernel_name": "vector_add", "cache": cache}
    table.write_text(json.dumps(document))
    out = tmp_path / "o.parquet"
    found = imported(assay, table, "--map", of_page(tmp_path, "kernel-tuner.toml"), "-o", out, "--synthetic")
    assert (found["rows"], found["launches"], found["devices"]) == (3, 5, ["NVIDIA A100"])
    rows = notebook.Profile.read(out).to_arrow()
    assert rows["duration_ns"].to_pylist() == [1_500_000, 2_500_000, 900_000, 1_000_000, 1_100_000]
    assert rows["kernel"].to_pylist()[2] == "vector_add block_size_x=64"
    table.write_text(json.dumps(document)[:-2])
    ended = assay(
        "import", "table", table, "--map", tmp_path / "kernel-tuner.toml", "-o", tmp_path / "no.parquet"
    )
    assert ended.code == 3 and "it is not JSON, or cut off" in ended.stderr
    assert not (tmp_path / "no.parquet").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_aiconfigurator_by_operator_and_shape(assay: Assay, tmp_path: Path, form: str) -> None:
    h100 = "NVIDIA H100 80GB HBM3"
    records = [
        {
            "device": h100,
            "op_name": "gemm",
            "kernel_source": "cublas",
            "m": 1,
            "n": 2,
            "k": 3,
            "latency": 0.5,
        },
        {
            "device": "L40S",
            "op_name": "gemm",
            "kernel_source": "other",
            "m": 1,
            "n": 2,
            "k": 3,
            "latency": 9.0,
        },
        {
            "device": h100,
            "op_name": "moe",
            "kernel_source": "triton",
            "m": 4,
            "n": 5,
            "k": 6,
            "latency": 0.25,
        },
    ]
    table = tmp_path / f"t.{form}"
    if form == "csv":
        lines = [",".join(records[0]), *(",".join(map(str, each.values())) for each in records)]
        table.write_text("\ufeff" + "\r\n".join(lines))
    elif form == "jsonl":
        table.write_text("".join(json.dumps(each) + "\n" for each in records))
    else:
        pq.write_table(pa.Table.from_pylist(records), table)
    out = tmp_path / "o.parquet"
    document = imported(
        assay, table, "--map", of_page(tmp_path, "aiconfigurator.toml"), "-o", out, "--synthetic"
    )
    assert (document["rows"], document["launches"], document["devices"]) == (3, 2, [h100])
    rows = notebook.Profile.read(out).to_arrow()
    assert rows["operator"].to_pylist() == ["gemm", "moe"]
    assert rows["input_shapes"].to_pylist() == ["[[1,3],[3,2]]", "[[4,6],[6,5]]"]
    assert rows["duration_ns"].to_pylist() == [500_000, 250_000]
    ended = assay("select", "stratified", out, "--json")
    assert ended.code == 0 and json.loads(ended.stdout)["cost"]["total"] == 750_000


def test_every_counter_of_a_small_table_is_a_feature_but_what_it_costs(assay: Assay, tmp_path: Path) -> None:
    """Only a share of a peak tells two kinds of launches apart: ``auto`` leaves it out, ``all`` does not."""
    names = ["smsp__inst_executed.sum", "smsp__thread_inst_executed.sum", "lts__t_sectors_op_read.sum",
             "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__cycles_active.avg"]  # fmt: skip
    head = KTT.split("smsp__", 1)[0] + ",".join(names)
    rows = [
        f"{n},k,{1000 + 4000 * odd},22,8,1,1,32,1,1,{100 + n % 3},{3200 + 32 * (n % 3)},7,{20 + 50 * odd},{n}"
        for n, odd in enumerate([0, 1] * 12)
    ]
    table, out = tmp_path / "t.csv", tmp_path / "o.parquet"
    table.write_text("\n".join([head, *rows]) + "\n")
    imported(assay, table, "--map", of_page(tmp_path, "ktt.toml"), "-o", out, "--synthetic")

    def pks(features: str) -> dict[str, Any]:
        given = ["--param", f"features={features}", "--param", "mixing=allowed", "--json"]
        ended = assay("select", "pks", out, *given)
        assert ended.code == 0, ended.stderr
        return dict(json.loads(ended.stdout))

    everything, auto = pks("all"), pks("auto")
    assert everything["parameters"]["features"].split(",") == [
        "instructions", "thread_instructions", *names[2:4],
    ]  # fmt: skip
    assert everything["error_percent"] == 0
    assert auto["parameters"]["features"].split(",") == ["instructions", "thread_instructions", names[2]]
    assert auto["error_percent"] > 0
    assert auto["warnings"][0]["text"].endswith("features=all takes all 4 that were measured")
    assert everything["warnings"][0]["text"].endswith("are missing")


@pytest.mark.shared_data
def test_all_counters_of_a_real_gpu_are_features(assay: Assay, tmp_path: Path, shared_data: Path) -> None:
    table = shared_data / "silicon" / "ktt_pnpoly_all_counters.csv.gz"
    out = tmp_path / "all.parquet"
    document = imported(assay, table, "--map", of_page(tmp_path, "ktt.toml"), "-o", out)
    assert document["launches"] == 3815
    assert set(document["columns_left_out"]) == {"shared", "config", "duration_ns_rtx3090"}
    ours = notebook.Profile.read(out).to_arrow()
    theirs = notebook.Profile.read(
        shared_data / "silicon" / "ktt_pnpoly_rtx2080ti_counters.parquet"
    ).to_arrow()
    for name in ("grid_x", "block_x", "registers_per_thread", "instructions", "threads_per_instruction",
                 "local_load_sectors", "global_load_requests", "profiled_duration_ns"):  # fmt: skip
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name
    ended = assay("select", "pks", out, "--param", "features=all", "--json")
    assert ended.code == 0, ended.stderr
    made = json.loads(ended.stdout)
    assert len(made["parameters"]["features"].split(",")) == 33
    [chosen, without] = made["warnings"]
    assert len(chosen["features"]) == 33 and without["code"] == "k_without_cycles"
    auto = json.loads(assay("select", "pks", out, "--json").stdout)
    assert len(auto["parameters"]["features"].split(",")) == 16
    assert auto["warnings"][0]["text"].endswith("features=all takes all 33 that were measured")
    # As published, where counters make the groups, the others move launches to other groups.
    published = [
        json.loads(assay("select", "pks", out, "--param", f"features={features}", "--param",
                         "mixing=allowed", "--json").stdout)
        for features in ("auto", "all")
    ]  # fmt: skip
    assert [len(each["groups"]) for each in published] == [8, 20]


# ---- bad input


GOOD = "kernel,launch,ms,block,insts\nk,0,1.5,32,10\nk,1,2.5,32,20\n"
MAPPING = """
[launches]
kernel = "kernel"
launch = "launch"
duration_ns = { column = "ms", unit = "ms" }
block_x = "block"
[counters]
instructions = { column = "insts", unit = "inst" }
"""


def error_of(folder: Path, table: str | bytes, mapping: str = MAPPING) -> InputError:
    path, given = folder / "t.csv", folder / "m.toml"
    path.write_bytes(table.encode() if isinstance(table, str) else table)
    given.write_text(mapping)
    with pytest.raises(InputError) as caught:
        read_foreign_table(path, read_mapping(given))
    assert caught.value.remedy
    return caught.value


def test_the_good_table_is_good(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "m.toml").write_text(MAPPING)
    found = read_foreign_table(tmp_path / "t.csv", read_mapping(tmp_path / "m.toml"))
    assert found.launches.column("duration_ns").tolist() == [1_500_000, 2_500_000]


@pytest.mark.parametrize(
    ("old", "new", "where", "cause"),
    [
        ("1.5", "fast", (2, "ms"), "'fast' is not a number"),
        ("1.5", "", (2, "ms"), "it has no value"),
        ("2.5", "nan", (3, "ms"), "'nan' is not a number"),
        ("2.5", "inf", (3, "ms"), "'inf' is not a number"),
        ("2.5", "-2.5", (3, "ms"), "'-2.5' is not a number from 0 on"),
        ("2.5", "1e300", (3, "ms"), "'1e300' is not a number from 0 on"),
        ("k,1", "k,0", (3, "launch"), "launch 0 of process 0 is there already, in line 2"),
        ("k,1", "k,1.5", (3, "launch"), "'1.5' is not a whole number from 0 on"),
        ("k,1", " ,1", (3, "kernel"), "the kernel has no name"),
        (",32,20", ",0,20", (3, "block"), "'0' is not a whole number from 1 on"),
        (",32,20", ",99999999999,20", (3, "block"), "99,999,999,999 is too large"),
        (",20", ",twenty", (3, "insts"), "'twenty' is not a number"),
        (",20", ",-20", (3, "insts"), "-20 is negative"),
        (",32,20", ",32,20,7", (3, None), "the row has 6 cells, and the header 5"),
        (",32,20", ",32", (3, None), "the row has 4 cells, and the header 5"),
        ("kernel,launch,ms", "kernel,launch,s", (None, "ms"), "the file does not have it"),
        ("kernel,launch,ms", "kernel,ms,ms", (None, "launch"), "the file does not have it"),
        ("kernel,launch,ms,block", "kernel,launch,ms,ms", (None, "block"), "the file does not have it"),
        ("\nk,0,1.5,32,10\nk,1,2.5,32,20\n", "\n", (None, None), "it has a header but no rows"),
    ],
)
def test_bad_cells_are_named_by_line_and_column(
    tmp_path: Path, old: str, new: str, where: tuple[int | None, str | None], cause: str
) -> None:
    assert old in GOOD
    error = error_of(tmp_path, GOOD.replace(old, new))
    assert cause in error.cause
    assert (error.line, error.field) == where


def test_a_line_is_counted_as_the_file_has_it(tmp_path: Path) -> None:
    table = 'kernel,launch,ms,block,insts\n"a\n\nb",0,1,1,1\n\n\n"c",1,x,1,1\n'
    assert error_of(tmp_path, table).line == 7
    table = '{"kernel": "k", "launch": 0, "ms": 1, "block": 1, "insts": 1}\n\n{"kernel": "k", "ms": [1]}\n'
    error = error_of(tmp_path, table)
    assert (error.line, error.field) == (3, "launch")
    assert error_of(tmp_path, table.replace("[1]}", "[1}")).line == 3


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (b"\xff\xfe\x00", "it is not text in UTF-8"),
        (b"PAR1 and nothing", "cut off or damaged"),
        (gzip.compress(GOOD.encode(), mtime=0)[:40], "cut off"),
        (b"[]", "there are no records"),
        (b"[1, 2]", "record 0 (counted from 0) is not an object"),
        (b'[{"kernel": "k"', "it is not JSON, or cut off"),
        (b"kernel,launch,ms,block,insts,ms\nk,0,1,1,1,1\n", "the column is there twice"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, table: bytes, cause: str) -> None:
    assert cause in str(error_of(tmp_path, table))


@pytest.mark.parametrize(
    ("old", "new", "field", "cause"),
    [
        ("duration_ns =", "duration =", "launches.duration", "no such column"),
        ('unit = "ms"', 'unit = "furlong"', "launches.duration_ns", "'furlong' is no unit of a quantity"),
        ('unit = "inst"', 'unit = "byte"', "counters.instructions", "'byte' is no unit of a quantity"),
        ('"block"', '{ column = "block", unit = "thread" }', "launches.block_x", "it has no unit"),
        ('"block"', '{ value = "wide" }', "launches.block_x", "'wide' is not a whole number from 1 to"),
        ('"block"', "{ value = 99999999999 }", "launches.block_x", "99999999999 is not a whole number"),
        ('"block"', "{ value = 1e300 }", "launches.block_x", "1e+300 is not a whole number from 1 to"),
        ('"block"', '{ text = "{block}" }', "launches.block_x", "a text is given"),
        ('kernel = "kernel"\n', "", "launches.kernel", "every launch needs the name"),
        ('"block"', '{ colum = "block" }', "launches.block_x.colum", "extra inputs"),
        ('"block"', '{ column = "block", value = 1 }', "launches.block_x", "give one of column, value"),
        ("[launches]", 'level = "light"\n[launches]', "level", "a light table has no counters"),
        ("[launches]", "repeat = 0\n[launches]", "repeat", "0 is below 1"),
        ("[launches]", "repeat = 2\n[launches]", "launches.launch", "a row becomes several launches"),
        ("[launches]", 'separator = ""\n[launches]', "separator", "at least 1 character"),
        ("[launches]", "unknown = 1\n[launches]", "unknown", "extra inputs"),
        ("[launches]", "[launches", None, "it is not TOML"),
        ("instructions =", "duration_ns =", "counters.duration_ns", "it is no counter"),
    ],
)  # fmt: skip
def test_mappings_that_cannot_be(tmp_path: Path, old: str, new: str, field: str | None, cause: str) -> None:
    assert old in MAPPING
    error = error_of(tmp_path, GOOD, MAPPING.replace(old, new, 1))
    assert cause in error.cause and error.field == field


def test_rows_of_several_gpus_are_imported_apart(tmp_path: Path) -> None:
    mapping = 'gpu = { column = "kernel" }\n' + MAPPING
    error = error_of(tmp_path, GOOD.replace("k,1", "b,1"), mapping)
    assert "launches of 2 GPUs, 'k' and 'b' first" in error.cause and "only" in error.remedy
    error = error_of(tmp_path, GOOD, 'only = { kernel = "z" }\n' + MAPPING)
    assert "leave no row" in error.cause


def test_rows_repeat_by_number_or_column(tmp_path: Path) -> None:
    mapping = MAPPING.replace('launch = "launch"\n', "")
    (tmp_path / "t.csv").write_text(GOOD)
    for repeat, times in (("3", [3, 3]), ('"insts"', [10, 20])):
        (tmp_path / "m.toml").write_text(f"repeat = {repeat}\n{mapping}")
        launches = read_foreign_table(tmp_path / "t.csv", read_mapping(tmp_path / "m.toml")).launches
        assert launches.column("launch").tolist() == list(range(sum(times)))
        assert launches.column("duration_ns").tolist() == [1_500_000] * times[0] + [2_500_000] * times[1]


def test_the_output_is_never_the_input(assay: Assay, tmp_path: Path) -> None:
    table, mapping = tmp_path / "t.csv", tmp_path / "m.toml"
    table.write_text(GOOD)
    mapping.write_text(MAPPING)
    for output in (table, mapping):
        ended = assay("import", "table", table, "--map", mapping, "-o", output)
        assert ended.code == 2 and "is what is read" in ended.stderr
    assert table.read_text() == GOOD
    ended = assay("import", "table", table, "--map", mapping, "-o", tmp_path / "o.parquet")
    assert ended.code == 0 and "2 rows" in ended.stdout and "written to" in ended.stdout


PAGE_OF_NCU = (
    '"ID","Process ID","Kernel Name","Block Size","Grid Size","gpc__cycles_elapsed.avg",'
    '"smsp__inst_executed.sum","lts__t_sectors.sum"\n"","","","","","cycle","inst","sector"\n'
    + "".join(
        f'"{n}","1","k","(32, 1, 1)","(8, 1, 1)","{size}","{9 * size}","{5 * size}"\n'
        for n, size in enumerate([10, 1000] * 10)
    )
)


@pytest.mark.parametrize("verb", ["select", "compare"])
def test_a_page_is_read_for_the_metrics_that_are_named(assay: Assay, tmp_path: Path, verb: str) -> None:
    page = tmp_path / "page.csv"
    page.write_text(PAGE_OF_NCU)
    given = ["--param", "pks.features=instructions,lts__t_sectors.sum", "--method", "pks"]
    given = given if verb == "compare" else ["--param", "features=instructions,lts__t_sectors.sum"]
    ended = assay(verb, *(["pks"] if verb == "select" else []), page, *given, "--synthetic", "--json")
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    made = document if verb == "select" else document["methods"][0]
    assert made["parameters"]["features"] == "instructions,lts__t_sectors.sum"
    assert made["error_percent"] == 0
    refused = assay("select", "pks", page, "--synthetic")
    assert refused.code == 3 and "it has none of memory and divergence" in refused.stderr
