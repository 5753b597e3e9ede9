"""The CUPTI profiler of the agent, its workload under the fake CUPTI: launches, failures, cancelling."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from assay_agent.daemon.places import installed_places
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.cupti import CuptiProfiler, cupti_of_packages, tracer_environment
from assay_core.records.attempt import AttemptKey
from assay_core.records.machine import InstalledDevice, Inventory
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE, Condition, Device, table_metadata
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import FLAGS
from assay_virtual.gpu_models import MODELS
from tests.support.tracer.traced_runs import BuiltTracer, expected_numbers, numbers

KEY = AttemptKey("c.0000", 0, 1, 1)
WORK = Work(
    key=KEY,
    campaign_id="c",
    workload="w",
    device_kind="Fake",
    level="light",
    condition=BASELINE,
    profiler="cupti",
    synthetic=True,
)


def work(tracer: BuiltTracer, folder: Path, *words: str, **switches: str) -> Work:
    command = CommandSource((str(tracer.workload), *words), switches, str(folder), 60.0)
    return replace(WORK, command=command)


def profiler(tmp_path: Path) -> CuptiProfiler:
    device = Device(0, "Fake", "GPU-fake", "9.0", 132)
    # The sensors are those of a virtual GPU; the launches are made up by the workload itself.
    model = MODELS.gpu("V100", 0).model
    gpu = MeasuredGPU(device, path="/usr/bin:/bin", scope=str(tmp_path), model=model)
    return CuptiProfiler(gpu, ToolBox(), tmp_path)


def measured(tmp_path: Path, assignment: Work) -> tuple[pa.Table, str]:
    with profiler(tmp_path).run(assignment, threading.Event()) as measurement:
        batches = [batch.records for batch in measurement.batches()]
        return pa.Table.from_batches(batches), measurement.log.text


def failure(tmp_path: Path, assignment: Work) -> ProfilerError:
    with pytest.raises(ProfilerError) as caught:
        measured(tmp_path, assignment)
    return caught.value


@pytest.mark.tracer
@pytest.mark.processes
class TestRuns:
    def test_a_light_run_gives_every_launch_and_says_what_measured_it(
        self, tracer: BuiltTracer, tmp_path: Path
    ) -> None:
        table, log = measured(tmp_path, work(tracer, tmp_path, "launches=5000", "graphs=50"))
        assert np.array_equal(numbers(table), expected_numbers(5000, graphs=50))
        metadata = table_metadata(table.schema)
        assert (metadata.level, metadata.synthetic, metadata.format) == ("light", True, "cupti-tracer")
        assert (metadata.tool, metadata.tool_version) == ("CUPTI", "13.5")
        assert metadata.devices[0].uuid == "GPU-fake"
        assert "4,900 launches and 100 graph launches (0 whose kernels cannot be counted), 5,300 ker" in log

    def test_a_program_is_ended_at_its_limit_and_the_launches_until_then_have_no_gap(
        self, tracer: BuiltTracer, tmp_path: Path
    ) -> None:
        words = ("launches=1000000", "pause_us=100000", "every=1000")
        assignment = work(tracer, tmp_path, *words)
        assert assignment.command is not None
        limited = assignment.with_command(replace(assignment.command, light_limit_s=2))
        with profiler(tmp_path).run(limited, threading.Event()) as measurement:
            table = pa.Table.from_batches([batch.records for batch in measurement.batches()])
            flags = {flag.name: flag.detail for flag in measurement.flags}
        assert 0 < len(table) < 100_000
        assert table["launch"].to_pylist() == list(range(len(table)))
        assert flags["light_window"] == (
            f"launches 1 to {len(table):,}, the first 2 s of the program, which was ended then"
        )
        assert not {"launches_dropped", "launches_missing"} & flags.keys()

    @pytest.mark.parametrize(
        ("words", "switches", "failure_class", "cause", "remedy"),
        [
            (["launches=10"], {"FAKE_CUPTI_SUBSCRIBE": "39"}, FailureClass.SERVER_REFUSED,
             "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "torch.profiler"),
            (["launches=10"], {"FAKE_CUPTI_SUBSCRIBE": "35"}, FailureClass.PERMISSION,
             "INSUFFICIENT_PRIVILEGES", "NVreg_RestrictProfilingToAdminUsers"),
            (["launches=10"], {"FAKE_CUPTI_SUBSCRIBE": "14"}, FailureClass.SERVER_REFUSED,
             "calls of CUPTI's second interface", "Kineto trace"),
            (["launches=10"], {"FAKE_CUPTI_VERSION": "140000", "FAKE_CUPTI_RECORD_BYTES": "264"},
             FailureClass.SERVER_REFUSED,
             "CUPTI has version 140000", "newer release of Assay"),
            (["launches=100"], {"FAKE_CUPTI_DROP_EVERY": "1"}, FailureClass.DROPPED_EVENTS,
             "launched 100 kernels, and CUPTI gave 0", "smaller window"),
            (["launches=0", "end=system_call"], {}, FailureClass.DROPPED_EVENTS, "last records", ""),
            (["launches=0"], {}, FailureClass.NOTHING_PROFILED, "launched a kernel", ""),
        ],
    )  # fmt: skip
    def test_what_goes_wrong_has_its_class_and_remedy(  # noqa: PLR0917 - a table of cases
        self,
        tracer: BuiltTracer,
        tmp_path: Path,
        words: list[str],
        switches: dict[str, str],
        failure_class: FailureClass,
        cause: str,
        remedy: str,
    ) -> None:
        found = failure(tmp_path, work(tracer, tmp_path, *words, **switches))
        assert found.failure_class == failure_class, found
        assert cause in found.cause and remedy in found.remedy

    @pytest.mark.parametrize(
        ("switches", "kept", "detail"),
        [
            ({"FAKE_CUPTI_DROP_EVERY": "500"}, 8982, "dropped 18 records"),
            ({"FAKE_CUPTI_LOSE_EVERY": "500"}, 8982, "launched 9,000 kernels, and CUPTI gave 8,982"),
            ({"FAKE_CUPTI_UNTIMED_EVERY": "500"}, 9000, "gave 18 kernels without their times"),
        ],
    )
    def test_a_count_that_differs_keeps_the_records_under_a_flag_that_invalidates(
        self, tracer: BuiltTracer, tmp_path: Path, switches: dict[str, str], kept: int, detail: str
    ) -> None:
        assignment = work(tracer, tmp_path, "launches=9000", **switches)
        with profiler(tmp_path).run(assignment, threading.Event()) as run:
            rows = sum(batch.records.num_rows for batch in run.batches())
            (flag,) = (flag for flag in run.flags if flag.name == "launches_dropped")
        assert rows == kept and flag.invalidates and detail in flag.detail
        assert FLAGS[flag.name].retry_as is FailureClass.DROPPED_EVENTS

    def test_kernels_that_never_end_flag_the_run(self, tracer: BuiltTracer, tmp_path: Path) -> None:
        switches = {"FAKE_CUPTI_ENDLESS": "900", "ASSAY_TRACER_SYNC_MS": "200"}
        with profiler(tmp_path).run(
            work(tracer, tmp_path, "launches=900", **switches), threading.Event()
        ) as run:
            rows = sum(batch.records.num_rows for batch in run.batches())
            (flag,) = (flag for flag in run.flags if flag.name == "launches_missing")
        assert rows == 900 and "ASSAY_TRACER_SYNC_MS" in flag.detail
        assert "of 900 kernels launched 900 were recorded, 1 of them without their times" in flag.detail

    def test_a_workload_that_uses_no_gpu_and_one_that_fails(
        self, tracer: BuiltTracer, tmp_path: Path
    ) -> None:
        def of(*argv: str) -> Work:
            return replace(WORK, command=CommandSource(argv, {}, str(tmp_path), 60.0))

        idle = failure(tmp_path, of("true"))
        assert idle.failure_class == FailureClass.NOTHING_PROFILED and "initialised CUDA" in idle.cause
        broken = failure(tmp_path, of("sh", "-c", "echo the end >&2; exit 7"))
        assert broken.failure_class == FailureClass.APPLICATION_FAILED and "the end" in broken.cause
        absent = failure(tmp_path, of("./no-such-program"))
        assert absent.failure_class == FailureClass.APPLICATION_FAILED
        slow = replace(of("sleep", "60"), command=CommandSource(("sleep", "60"), {}, str(tmp_path), 0.5))
        assert failure(tmp_path, slow).failure_class == FailureClass.HANG

    def test_cancelling_ends_the_workload_and_so_does_a_caller_that_wants_no_more(
        self, tracer: BuiltTracer, tmp_path: Path
    ) -> None:
        endless = work(
            tracer, tmp_path, "launches=100000000", "every=1000", "pause_us=1000", ASSAY_TRACER_FLUSH_MS="20"
        )
        cancelled = threading.Event()
        with profiler(tmp_path).run(endless, cancelled) as measurement:
            for _ in measurement.batches():
                cancelled.set()
        assert "the run was cancelled" in measurement.log.text
        began = time.monotonic()
        with profiler(tmp_path).run(endless, threading.Event()) as measurement:
            batches = measurement.batches()
            next(batches)
            batches.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 60


def test_without_a_built_tracer_the_run_is_refused_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_TRACER_CACHE", str(tmp_path))
    monkeypatch.delenv("ASSAY_TRACER", raising=False)
    command = CommandSource(("true",), {}, str(tmp_path), 60.0)
    found = failure(tmp_path, replace(WORK, command=command))
    assert found.failure_class == FailureClass.SERVER_REFUSED
    assert "python -m assay_agent.tracer.build" in found.remedy


def test_a_gpu_is_offered_with_the_tracer_where_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nsys"
    tool.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ASSAY_TRACER", str(tmp_path / "tracer.so"))
    device = InstalledDevice(0, "V100", "GPU-1", "7.0", 80, 1 << 34)
    inventory = Inventory("box", "", 2, 1 << 34, (device,))

    def offered() -> list[str]:
        (place,) = installed_places(inventory, tmp_path)
        assert list(place.profilers) == list(place.slot.profilers)
        return list(place.profilers)

    assert "nsight_systems" in offered() and "cupti" not in offered()
    (tmp_path / "tracer.so").touch()
    assert {"nsight_systems", "cupti"} <= set(offered())


@pytest.mark.parametrize(
    "changes", [{"level": "detailed"}, {"launch_count": 5}, {"condition": Condition("all", "none", 100.0)}]
)
def test_what_it_cannot_measure_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    asked = replace(WORK, command=CommandSource(("true",), {}, str(tmp_path), 0.0), **changes)  # type: ignore[arg-type]
    with pytest.raises(ProfilerError):
        profiler(tmp_path).plan(asked)


def test_a_libcupti_of_a_python_package_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (tmp_path / name / "lib" for name in ("nvidia/cuda_cupti", "nvidia/cu13"))
    for folder, name in ((old, "libcupti.so.12"), (new, "libcupti.so.13")):
        folder.mkdir(parents=True)
        (folder / name).touch()
    assert cupti_of_packages(["", str(tmp_path)]) == [new / "libcupti.so.13", old / "libcupti.so.12"]
    assert cupti_of_packages([str(tmp_path / "empty")]) == []
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delenv("ASSAY_CUPTI", raising=False)
    variables = tracer_environment(Path("/t.so"), Path("/socket"))
    assert variables["ASSAY_TRACER_CUPTI_ELSE"] == f"{new}/libcupti.so.13:{old}/libcupti.so.12"
    assert "ASSAY_TRACER_CUPTI" not in variables
