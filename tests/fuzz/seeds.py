"""Small whole inputs of every kind, from which mutated ones are made. All of them are made up."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from assay_client.recordings import analyses
from assay_core.files.launch_file import new_launch_file
from assay_sampling.handover.weights_file import weights_text
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import open_recording
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling import ncu_reports
from tests.support.sampling import reader_files as files
from tests.support.sampling.accel_sim_traces import TRACE
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.ncu_details_pages import details_page, launch_rows

Seed = bytes | dict[str, bytes]


@cache
def launches() -> Launches:
    """Twelve launches, which basic-block vectors and selections are of."""
    return made_launches(["a", "b", "c"] * 4)


def kineto() -> list[Seed]:
    kernels = [files.trace_kernel(10 * i + 5, i) for i in range(1, 7)]
    calls = [files.trace_call(10 * i, i) for i in range(1, 7)]
    ranges = [
        files.trace_range("cpu_op", "aten::mm", 5, 60, {"External id": 1, "Input Dims": [[2, 3], []]}),
        files.trace_range("user_annotation", "step", 0, 100),
    ]
    properties = [{"id": 0, "name": "GPU", "computeMajor": 8, "computeMinor": 0, "numSms": 108}]
    events = [*calls, *kernels, *ranges]
    whole = files.trace(events, deviceProperties=properties, baseTimeNanoseconds=10**18)
    return [whole.encode(), json.dumps(events, indent=1).encode()]


_ROWS = [{"kernel": f"k{n}", "ms": 0.5 + n, "insts": 100 * n, "a__b.sum": n} for n in range(6)]


def foreign_tables() -> list[Seed]:
    lines = [",".join(_ROWS[0]), *(",".join(map(str, row.values())) for row in _ROWS)]
    return [
        "\n".join(lines).encode(),
        b'"kernel","ms","insts"\n"a ""b"", c","1,000.5",n/a\n\n"x\ny",2,3\n',
        "".join(json.dumps(row) + "\n" for row in _ROWS).encode(),
        json.dumps(
            {"gpu": "g", "results": [{"c": {"d": 1}, "n": [{"name": "x", "value": 2}], **_ROWS[1]}]}
        ).encode(),
    ]


def foreign_parquet() -> list[Seed]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(_ROWS), sink)
    return [sink.getvalue().to_pybytes()]


def mappings() -> list[Seed]:
    return [
        b'gpu = "A100"\nother_columns = ["*__*"]\nonly = { state = ["ok", 1] }\n[launches]\nkernel = "k"\n'
        b'duration_ns = { column = "t", unit = "ms" }\ninput_shapes = { text = "[[{m},{k}]]" }\n'
        b'[counters]\ninstructions = { column = "i", unit = "Kinst" }\n'
    ]


def ncu_raw() -> list[Seed]:
    rows = [files.raw_row(i) for i in range(6)]
    said = '==PROF== Connected to process 1\n==PROF== Profiling "k" - 0: 0%....100% - 3 passes\n'
    classic = ("ID", "Process ID", "Kernel Name", "launch__grid_size", "launch__block_size",
               "smsp__inst_executed.sum", "gpu__time_duration.sum")  # fmt: skip
    cells = [{**row, "launch__block_size": "256"} for row in rows]
    return [
        files.raw_page(rows, preamble=said).encode(),
        files.raw_page(cells, classic, ("", "", "", "", "", "inst", "nsecond")).encode(),
        files.raw_page(rows, units=None).encode(),
    ]


def ncu_details() -> list[Seed]:
    return [details_page(*[launch_rows(i) for i in range(4)]).encode()]


def nsys_sqlite() -> list[Seed]:
    with _folder() as folder:
        return [_nsys(folder / "x.sqlite").read_bytes()]


def nsys_parquet() -> list[Seed]:
    with _folder() as folder:
        tables = files.parquet_folder(_nsys(folder / "y.sqlite"), folder / "tables")
        return [{path.name: path.read_bytes() for path in sorted(tables.iterdir())}]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-fuzz-seed-") as folder:
        yield Path(folder)


def _nsys(path: Path) -> Path:
    kernels = [files.nsys_kernel(100 * i + 50, i, demangledName=1 + i % 3) for i in range(6)]
    calls = [files.nsys_call(100 * i, i, nameId=5, returnValue=0) for i in range(8)]
    strings = {1: "void first<int>(int*)", 2: "second", 3: "third", 5: "cudaLaunchKernel_v7000"}
    extra = {
        "DIAGNOSTIC_EVENT": [{"severity": 2, "text": "No NVTX events collected."}],
        "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0, "name": "GPU", "uuid": "u", "smCount": 80,
                             "computeMajor": 7, "computeMinor": 0}],
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2"}],
    }  # fmt: skip
    ranges = [files.nsys_range(0, 450, "outer"), files.nsys_range(90, 210, "inner")]
    return files.nsys_export(path, kernels, calls, ranges, strings=strings, extra=extra, page_size=512)


def assay_parquet() -> list[Seed]:
    with _folder() as folder:
        return [_written(folder, whole) for whole in (kineto()[0], ncu_raw()[0])]


def _written(folder: Path, text: Seed) -> bytes:
    assert isinstance(text, bytes)
    (folder / "source").write_bytes(text)
    with (
        open_recording(folder / "source") as recording,
        new_launch_file(folder / "written.parquet", recording.schema) as writer,
    ):
        for batch in recording.batches():
            writer.write(batch)
    return (folder / "written.parquet").read_bytes()


def ncu_report() -> list[Seed]:
    return [b"".join(ncu_reports.report(["a", "b", "c"]))]


def simulator_output() -> list[Seed]:
    launches_ = [logs.Launch(), logs.Launch(name="other", traced_id=2, cycles=400), logs.Launch(traced_id=3)]
    return [logs.output(launches_).encode(), logs.output(launches_[:1], logs.BREAK).encode()]


def simulator_recording() -> list[Seed]:
    launches_ = [logs.Launch(), logs.Launch(name="other", traced_id=2, cycles=400)]
    return [logs.output(launches_).encode(), logs.output(launches_, logs.BREAK).encode(),
            logs.two_streams().encode()]  # fmt: skip


def block_times() -> list[Seed]:
    uarch = "GPGPU-Sim Cycle 5003: LIVENESS - Core {} - GPGPU-Sim uArch: "
    lines = [
        f"thread block = {block},0,0\n{uarch.format(block)}cta: 2, start_tid: 0, end_tid: 32, "
        "initialized @(3,5000), kernel_uid:1, kernel_name:k\n"
        for block in range(4)
    ]
    lines += [f"{uarch.format(block)}Finished CTA #2 (9,5000), 0 CTAs running\n" for block in range(4)]
    return ["".join(lines).encode()]


def simulator_intervals() -> list[Seed]:
    first = [logs.sample(100 * i, 1000 * i, 2) for i in range(1, 6)]
    return ["".join([*first, logs.sample(100, 500, 1, before=5000)]).encode()]


def series() -> list[Seed]:
    rows = "".join(f"{100 * i},{900 * i},{i % 3}\n" for i in range(1, 12))
    return [f"cycles,instructions,ctas\n{rows}".encode()]


def traces() -> list[Seed]:
    return [TRACE.encode(), TRACE.replace("tracer version = 4", "tracer version = 5").encode()]


def kernels_list() -> list[Seed]:
    return [b"MemcpyHtoD,0x00007f5c40000000,1048576\nkernel-1.traceg\nkernel-2.traceg.xz\n"]


def block_vectors() -> list[Seed]:
    rows = [f"{i},{block},{i + block},8,{100 + block}" for i in range(12) for block in range(3)]
    return [("launch,block,count,warps,thread_instructions\n" + "\n".join(rows) + "\n").encode()]


def block_vectors_parquet() -> list[Seed]:
    pairs = [(i, block) for i in range(12) for block in range(3)]
    columns = {
        "launch": [i for i, _ in pairs], "block": [b for _, b in pairs], "count": [1 + b for _, b in pairs],
        "warps": [8] * len(pairs), "thread_instructions": [100 + b for _, b in pairs],
    }  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return [sink.getvalue().to_pybytes()]


def selections() -> list[Seed]:
    trace = kineto()[0]
    assert isinstance(trace, bytes)
    with _folder() as folder:
        (folder / "trace.json").write_bytes(trace)
        selection = analyses.select("random", folder / "trace.json")
    return [json.dumps(selection.document(labels=True).to_dict()).encode()]


def weights_files() -> list[Seed]:
    (selection,) = selections()
    saved = SavedSelection.read(json.loads(bytes(selection)), "selection")  # type: ignore[arg-type]
    return ["".join(weights_text(saved, "assay")).encode()]


def kernel_configs() -> list[Seed]:
    return [b"-1 newptx\n/a/Kernel0/Trace.txt\n/a/Kernel1/Trace.txt\n"]


def macsim_warps() -> list[Seed]:
    return [b"4 newptx 8\n0 0\n1 0\n65536 0\n65537 0\n", b"11\n2 ptx\n0 0\n65536 0\n"]


def campaigns() -> list[Seed]:
    shipped = sorted((Path(__file__).parents[2] / "campaigns").glob("*.yaml"))
    return [path.read_bytes() for path in shipped]
