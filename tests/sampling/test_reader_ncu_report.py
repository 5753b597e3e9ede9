"""Binary reports: cuts and garbage are found without the package, everything else with a stand-in for it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_client.recordings import analyses as client
from assay_sampling.counters.definitions import COST_UNITS, counter_of_metric
from assay_sampling.counters.missing import require_counters
from assay_sampling.errors import AssayError, CounterUnavailableError, InputError, MissingExtraError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.installation import install_command
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import has_operations
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.ncu.container import read_container
from assay_sampling.readers.opening import open_recording, read_launches
from assay_sampling.scoring.evaluation import cost_of
from tests.support.sampling.ncu_reports import fake_package, metrics, report
from tests.support.sampling.reader_files import (
    RAW_UNITS,
    kernel_names,
    operations,
    raw_page,
    raw_row,
    sentences,
    texts,
    write,
)

REAL = ("rtx3070_daxpy_3_kernels.ncu-rep", "rtx3070_vectoradd_1_kernel.ncu-rep")


def _refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_launches(path)
    assert str(path) in str(caught.value)
    return caught.value


# --- the container --------------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize("name", REAL)
def test_a_real_report_cut_anywhere_is_refused(shared_data: Path, tmp_path: Path, name: str) -> None:
    content = (shared_data / "ncu" / name).read_bytes()
    points = {len(content) * i // 200 for i in range(200)} | {len(content) * i // 21 for i in range(21)}
    for point in sorted(points | {1, 3, 4, 9, len(content) - 1}):
        _refused(write(tmp_path / "cut.ncu-rep", content[:point]))


@pytest.mark.shared_data
def test_real_reports_hold_what_their_containers_say(shared_data: Path) -> None:
    paths = [shared_data / "ncu" / name for name in REAL]
    three, one = (read_container(path, path) for path in paths)
    assert (three.process_ids, one.process_ids) == (["129325"] * 3, ["198250"])
    assert three.hosts == ["127.0.0.1"] * 3
    assert three.mangled_names[0] == "_Z16init_data_kerneliPd"
    assert three.tool_version == one.tool_version == "2022.3.0.0"


def test_a_report_cut_at_every_byte_is_refused_but_between_results(tmp_path: Path) -> None:
    parts = report()
    content = b"".join(parts)
    path = tmp_path / "r.ncu-rep"
    taken = []
    for point in range(1, len(content)):
        if point > 900 and point % 13 and point not in _ends(parts):
            continue
        write(path, content[:point])
        try:
            taken.append((point, len(read_container(path, path).process_ids)))
        except InputError:
            continue
    # A whole container with fewer results: the tool itself takes it, only its log knows better.
    ends = _ends(parts)
    assert taken == [(ends[4], 1), (ends[5], 1), (ends[6], 2)]


def _ends(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[: i + 1])) for i in range(len(parts))]


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_garbage_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("g") / "garbage.ncu-rep"
    for content in (b"NVR\0" + data, report()[0] + data):
        write(path, content)
        with pytest.raises(InputError):
            read_container(path, path)


@given(at=st.integers(4, 10_000), flip=st.integers(1, 255))
@settings(max_examples=100, deadline=None)
def test_a_flipped_byte_never_makes_another_number_of_results(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int
) -> None:
    content = bytearray(b"".join(report()))
    content[at % len(content)] ^= flip
    path = write(tmp_path_factory.mktemp("f") / "flipped.ncu-rep", bytes(content))
    try:
        container = read_container(path, path)
    except InputError:
        return
    assert len(container.process_ids) == 3


def test_a_report_without_results_is_no_recording(tmp_path: Path) -> None:
    error = _refused(write(tmp_path / "none.ncu-rep", b"".join(report(())[:5])))
    assert "holds no results" in error.cause and "No kernels were profiled" in error.remedy
    assert "it is empty" in _refused(write(tmp_path / "empty.ncu-rep", b"")).cause


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    path = write(tmp_path / "r.ncu-rep", b"".join(report()))
    with pytest.raises(MissingExtraError, match=re.escape(install_command("ncu-report"))):
        read_launches(path)


# --- what the package gives -----------------------------------------------------------------------

Install = Callable[..., None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a stand-in for the package that gives these actions."""

    def install(*actions: dict[str, Any], **facts: Any) -> None:
        site = fake_package(tmp_path / "site", actions, **facts)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        importlib.invalidate_caches()

    return install


def _actions(*names: str, **changed: Any) -> list[dict[str, Any]]:
    return [{"name": name, "metrics": metrics(i, **changed)} for i, name in enumerate(names)]


def _read(tmp_path: Path, *names: str, options: ReadOptions | None = None, **made: Any) -> Launches:
    path = write(tmp_path / "r.ncu-rep", b"".join(report(names, **made)))
    return read_launches(path, options or ReadOptions())


def test_launches_shapes_units_and_device(tmp_path: Path, package: Install) -> None:
    package(*_actions("a", "b", "c"))
    launches = _read(tmp_path, "a", "b", "c")
    assert kernel_names(launches) == ["a(int)", "b(int)", "c(int)"]
    assert launches.column("grid_x").tolist() == [1, 2, 3]
    assert launches.column("block_x").tolist() == [256, 256, 256]
    assert launches.column("stream").tolist() == [7, 7, 7]
    assert launches.column("cycles_gpc_max").tolist() == [1000.5, 1001.5, 1002.5]
    assert launches.column("profiled_duration_ns").tolist() == [2500.0] * 3
    assert launches.column("thread_blocks").tolist() == [2.0, 4.0, 6.0]
    (device,) = launches.metadata.devices
    assert (device.name, device.compute_capability, device.sm_count) == ("NVIDIA Test", "8.6", 46)
    assert (launches.metadata.tool_version, launches.metadata.level) == ("2022.3.0.0", "detailed")
    assert launches.table["nvtx_id"].null_count == 3


def test_batches_do_not_matter_and_may_be_read_again(tmp_path: Path, package: Install) -> None:
    names = [f"k{i}" for i in range(7)]
    package(*_actions(*names))
    path = write(tmp_path / "r.ncu-rep", b"".join(report(names)))
    with open_recording(path) as recording:
        for size in (1, 3, 100):
            batches = list(recording.batches(size))
            ids = [i for batch in batches for i in batch.records.column("report_id").to_pylist()]
            assert ids == list(range(7))


def test_fewer_results_than_the_container_says_are_refused(tmp_path: Path, package: Install) -> None:
    package(*_actions("a", "b"))
    with pytest.raises(InputError, match="holds 3 results, but the package ncu-report reads 2"):
        _read(tmp_path, "a", "b", "c")


def test_a_crash_of_the_package_is_an_error(tmp_path: Path, package: Install) -> None:
    package(*_actions("a"), crash=True)
    with pytest.raises(InputError, match=r"crashed \(status -11"):
        _read(tmp_path, "a")


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, package: Install) -> None:
    package(*_actions("a"), broken=True)
    with pytest.raises(InputError, match="libsomething"):
        _read(tmp_path, "a")


def test_what_is_no_launch_is_refused(tmp_path: Path, package: Install) -> None:
    package(_actions("a")[0], {**_actions("b")[0], "kind": 3})
    with pytest.raises(InputError, match="result 1 is of kind 3"):
        _read(tmp_path, "a", "b")


def _note_codes(launches: Launches) -> list[str]:
    return [note.code for note in launches.notes]


COUNTS = {
    "smsp__inst_executed.sum": ("instructions", "inst"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("", "request"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("global_load_sectors", "sector"),
}


def test_an_empty_unit_is_the_base_unit_of_a_plain_count(tmp_path: Path, package: Install) -> None:
    """Made-up answers in the form that NVIDIA's reader gives full-set reports of an RTX 4060 (2024.1.1)."""
    names = {m: counter_of_metric(m) for m in COUNTS}
    assert all(counter is not None and counter.unit == COUNTS[m][1] for m, counter in names.items())
    package(*_actions("a", "b", **dict.fromkeys(COUNTS, (96.0, ""))))
    launches = _read(tmp_path, "a", "b")
    for counter in names.values():
        assert counter is not None and launches.column(counter.name).tolist() == [96.0, 96.0]
    assert "metric_unreadable" not in _note_codes(launches)
    package(*_actions("a", **dict.fromkeys(COUNTS, (1.5, "K" + "request"))))
    scaled = _read(tmp_path, "a")
    requests = names["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    assert requests is not None and scaled.column(requests.name).tolist() == [1500.0]
    # Requests are no instructions and no sectors.
    assert {note.code for note in scaled.notes} == {"metric_unreadable"} and len(scaled.notes) == 2


def test_results_with_and_without_the_unit_are_alike(tmp_path: Path, package: Install) -> None:
    actions = _actions("a", "b", **{"smsp__inst_executed.sum": (7.0, "inst")})
    actions[1]["metrics"]["smsp__inst_executed.sum"] = (9.0, "")
    package(*actions)
    assert _read(tmp_path, "a", "b").column("instructions").tolist() == [7.0, 9.0]


@pytest.mark.parametrize(
    "case",
    [
        ("gpu__time_duration.sum", (1.0, "fortnight"), "profiled_duration_ns", "its unit 'fortnight' is not"),
        ("gpu__time_duration.sum", (1.0, ""), "profiled_duration_ns", "its unit '' is not known"),
        ("gpc__cycles_elapsed.avg", (1.0, ""), "cycles_gpc_avg", "its unit '' is not known"),
        ("dram__bytes_read.sum", (1.0, ""), "dram_read_bytes", "its unit '' is not known"),
        (
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            (1.0, ""),
            "dram_throughput_percent",
            "its unit '' is not",
        ),
        ("smsp__inst_executed.sum", (1.0, "request"), "instructions", "its unit 'request' is not known"),
        ("smsp__inst_executed.sum", ("many", "inst"), "instructions", "its value 'many' is not a number"),
    ],
)
def test_what_cannot_be_read_is_left_out_with_a_note(
    tmp_path: Path, package: Install, case: tuple[str, tuple[Any, str], str, str]
) -> None:
    metric, value, counter, cause = case
    package(*_actions("a", "b", **{metric: value}))
    launches = _read(tmp_path, "a", "b")
    assert counter not in launches.counters and len(launches) == 2
    (note,) = launches.notes
    assert (note.code, note.flag, note.invalidates) == ("metric_unreadable", "metrics_missing", False)
    facts = dict(note.parameters)
    assert (facts["counter"], facts["metric"]) == (counter, metric) and cause in str(facts["cause"])
    # Whoever needs it is told why it is not there.
    with pytest.raises(CounterUnavailableError) as caught:
        require_counters(launches.table, [counter], "r.ncu-rep", launches.unreadable)
    assert cause in caught.value.cause and "--page raw" in caught.value.remedy
    if counter in COST_UNITS:
        with pytest.raises(CounterUnavailableError, match=cause):
            cost_of(launches, counter)


def test_two_units_of_one_metric_are_left_out_too(tmp_path: Path, package: Install) -> None:
    second = _actions("a", "b")
    second[1]["metrics"]["gpu__time_duration.sum"] = (2500.0, "ns")
    package(*second)
    (note,) = _read(tmp_path, "a", "b").notes
    assert "in 'us' and in 'ns'" in note.text


def test_a_method_refuses_only_for_a_counter_that_it_needs(tmp_path: Path, package: Install) -> None:
    cycles = {"gpc__cycles_elapsed.avg": (1000.0, "cycle")}
    package(*_actions("a", "b", **cycles, **{"smsp__inst_executed.sum": (5.0, "fortnight")}))
    path = write(tmp_path / "r.ncu-rep", b"".join(report(["a", "b"])))
    selection = client.select("random", path)
    assert any("fortnight" in note.text for note in selection.profile.notes)
    with pytest.raises(AssayError, match="fortnight"):
        client.select("sieve", path)


@pytest.mark.parametrize("metric", ["launch__grid_dim_x", "launch__block_dim_z"])
def test_the_shape_of_a_launch_is_always_needed(tmp_path: Path, package: Install, metric: str) -> None:
    package(*_actions("a", **{metric: (1.0, "fortnight")}))
    with pytest.raises(InputError, match="fortnight") as caught:
        _read(tmp_path, "a")
    assert caught.value.field == metric


def test_a_page_in_text_is_no_laxer_for_it(tmp_path: Path) -> None:
    """An empty unit of a count on a raw page stays an error: there the unit is always printed."""
    units = [*RAW_UNITS[:-1], ""]
    with pytest.raises(InputError, match="its unit '' is not known for a quantity in 'inst'"):
        read_launches(write(tmp_path / "x.csv", raw_page([raw_row(0)], units=units)))


def test_values_that_are_missing_are_null_and_counted(tmp_path: Path, package: Install) -> None:
    actions = _actions("a", "b", "c")
    del actions[1]["metrics"]["gpc__cycles_elapsed.max"]
    actions[2]["metrics"]["gpc__cycles_elapsed.max"] = (float("nan"), "cycle")
    package(*actions)
    launches = _read(tmp_path, "a", "b", "c")
    assert launches.table["cycles_gpc_max"].to_pylist() == [1000.5, None, None]
    assert "cycles_gpc_max was not measured for 2 launches, the first is result 1" in sentences(launches)


def test_a_shape_that_cannot_be_names_the_result(tmp_path: Path, package: Install) -> None:
    actions = _actions("a", "b")
    actions[1]["metrics"]["launch__grid_dim_x"] = (-1.0, "")
    package(*actions)
    with pytest.raises(InputError, match="result 1: '-1' is not a whole number") as caught:
        _read(tmp_path, "a", "b")
    assert caught.value.field == "launch__grid_dim_x"


def test_nvtx_ranges_become_a_path(tmp_path: Path, package: Install) -> None:
    package({**_actions("a")[0], "ranges": ["outer", 'in"ner:x']}, _actions("b")[0])
    assert texts(_read(tmp_path, "a", "b"), "nvtx_id") == ['outer/in"ner:x', None]


def test_ranges_become_operations(tmp_path: Path, package: Install) -> None:
    first, second = (f"aten::mm, seq = {n}, op_id = {n}, sizes = [[2, 2]]" for n in (1, 2))
    a, b, c, d = _actions("a", "b", "c", "d")
    package(
        a | {"ranges": ["x/y", first]}, b | {"ranges": ["x/y", first]}, c | {"ranges": ["x/y", second]}, d
    )
    launches = _read(tmp_path, "a", "b", "c", "d")
    multiply = Operation("operator", "aten::mm", "[[2,2]]")
    assert operations(launches) == [
        (0, multiply), (0, multiply), (2, multiply), (3, Operation("kernel", "d"))
    ]  # fmt: skip
    package(*_actions("a", "b"))
    assert not has_operations(_read(tmp_path, "a", "b").table.schema)


def test_processes_come_from_the_container(tmp_path: Path, package: Install) -> None:
    package(*_actions("a", "b", "c"))
    launches = _read(tmp_path, "a", "b", "c", pids=[9, 8, 9])
    rows = [(r["process"], r["report_id"]) for r in launches.table.to_pylist()]
    assert rows == [(0, 0), (0, 2), (1, 1)]
    package(*_actions("b", "a", "c"))
    with pytest.raises(InputError, match="cannot be assigned to their processes"):
        _read(tmp_path, "a", "b", "c", pids=[9, 8, 9])


def test_the_synthetic_mark_in_the_host_name(tmp_path: Path, package: Install) -> None:
    package(*_actions("a"))
    assert _read(tmp_path, "a", host=SYNTHETIC_MARK).metadata.synthetic
    assert not _read(tmp_path, "a").metadata.synthetic
    with pytest.raises(InputError, match="cannot be removed"):
        _read(tmp_path, "a", host=SYNTHETIC_MARK, options=ReadOptions(synthetic=False))


def test_compressed_reports_are_read(tmp_path: Path, package: Install) -> None:
    package(*_actions("a", "b"))
    packed = pa.compress(b"".join(report(("a", "b"))), codec="zstd", asbytes=True)
    launches = read_launches(write(tmp_path / "r.ncu-repz", packed))
    assert kernel_names(launches) == ["a(int)", "b(int)"]


def test_nothing_is_left_behind(tmp_path: Path, package: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    package(*_actions("a"))
    assert len(_read(tmp_path, "a")) == 1
    package(*_actions("a"), crash=True)
    with pytest.raises(InputError):
        _read(tmp_path, "a")
    assert list(temporary.iterdir()) == []


# --- the real package -----------------------------------------------------------------------------


@pytest.fixture
def real_package() -> None:
    """The package itself; the test is skipped where it is not installed."""
    if importlib.util.find_spec("ncu_report") is None:
        if os.environ.get("ASSAY_REQUIRE_NCU_REPORT") == "1":
            pytest.fail("the package ncu-report is required, but not installed")
        pytest.skip("the package ncu-report is not installed: make test-ncu-report")


@pytest.mark.ncu_report
@pytest.mark.shared_data
@pytest.mark.usefixtures("real_package")
def test_real_reports(shared_data: Path) -> None:
    three, one = (read_launches(shared_data / "ncu" / name) for name in REAL)
    assert one.column("cycles_gpc_max").tolist() == [4587]
    assert three.column("cycles_gpc_max").tolist() == [124056, 379490, 122573]
    assert three.column("profiled_duration_ns").tolist() == [84480, 249216, 88512]
    assert three.column("instructions").tolist() == [1703936, 1966080, 1835008]
    assert three.column("replay_passes").tolist() == [12, 12, 12]
    assert three.column("grid_x").tolist() == [16384] * 3
    assert three.column("block_x").tolist() == [256] * 3
    assert three.column("registers_per_thread").tolist() == [16, 16, 32]
    assert three.column("stream").tolist() == [14, 7, 7]
    assert kernel_names(three)[1] == "daxpy_kernel(int, double, double *, double *)"
    assert kernel_names(one) == ["VecAdd_kernel"]
    ranges = ["run_test/init_data", "run_test/daxpy", "run_test/check_results"]
    assert texts(three, "nvtx_id") == ranges
    for launches in (three, one):
        (device,) = launches.metadata.devices
        assert (device.name, device.sm_count) == ("NVIDIA GeForce RTX 3070", 46)
        assert device.compute_capability == "8.6"
        assert launches.metadata.tool_version == "2022.3.0.0"
        assert not launches.metadata.synthetic


@pytest.mark.ncu_report
@pytest.mark.shared_data
@pytest.mark.usefixtures("real_package")
def test_a_real_report_whose_results_are_garbage_is_refused(shared_data: Path, tmp_path: Path) -> None:
    content = bytearray((shared_data / "ncu" / REAL[0]).read_bytes())
    content[80_000:110_000] = b"\xff" * 30_000  # within the second result
    _refused(write(tmp_path / "garbage.ncu-rep", bytes(content)))
