"""Programs that cannot be measured as they are: each ends in its own sentence, and what was seen stays."""

from __future__ import annotations

import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.bare import BareProfiler
from assay_agent.profilers.nsys.profiler import NsightSystemsProfiler
from assay_agent.profilers.seam import Measurement
from assay_core.records.work import CommandSource
from assay_sampling.launches.table import Device
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.scripted_tools import INPUTS, NSYS
from tests.support.sampling.reader_files import nsys_export

pytestmark = pytest.mark.processes


def measured(
    folder: Path, program: str, recording: Path = INPUTS / "light.sqlite", *, bare: bool = False
) -> tuple[Measurement, ProfilerError | None, int]:
    """The light run of a Python program under a scripted nsys, its failure, and its launches."""
    (folder / "program.py").write_text(program)
    (folder / "tools").mkdir()
    (folder / "tools" / "nsys").write_text(NSYS.format(recording=recording))
    (folder / "tools" / "nsys").chmod(0o755)
    device = Device(0, "Tesla V100-SXM2-16GB", f"GPU-{uuid.uuid4()}", "7.0", 80)
    gpu = MeasuredGPU(device, path=f"{folder / 'tools'}:/usr/bin:/bin")
    argv = ("/bin/sh", "-c", f"exec {sys.executable} -I -S program.py")
    profiler = BareProfiler if bare else NsightSystemsProfiler
    work = replace(
        WORK, level="bare" if bare else "light", profiler=profiler.name,
        command=CommandSource(argv, {}, str(folder), 2.0),
    )  # fmt: skip
    launches, failure = 0, None
    with profiler(gpu, ToolBox(), folder / "state").run(work, threading.Event()) as measurement:
        try:
            launches = sum(batch.records.num_rows for batch in measurement.batches())
        except ProfilerError as error:
            failure = error
    return measurement, failure, launches


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("program", "said", "remedy"),
    [
        ("input('Continue? ')", "EOF when reading a line", "it asks for a terminal or for input"),
        (
            "import termios; termios.tcgetattr(0)",
            "Inappropriate ioctl",
            "it asks for a terminal or for input",
        ),
        ("open('/dev/tty')", "/dev/tty", "it asks for a terminal or for input"),
        (
            "raise SystemExit('RuntimeError: CUDA error: invalid device ordinal')",
            "invalid device ordinal",
            "it asks for a GPU that the run does not have: let it use GPU 0 alone",
        ),
        (
            "import sys; print('epoch 1'); sys.exit('ValueError: no such model')",
            "ValueError: no such model",
            "run the workload's command by hand",
        ),
    ],
)
def test_what_a_program_needs_and_a_run_lacks_is_told(
    program: str, said: str, remedy: str, bare: bool, tmp_path: Path
) -> None:
    measurement, failure, launches = measured(tmp_path, program, bare=bare)
    assert failure is not None and launches == 0
    assert failure.failure_class is FailureClass.APPLICATION_FAILED and not failure.failure.retryable
    assert said in failure.cause and remedy in failure.remedy
    assert said in measurement.log.text


def test_a_program_that_goes_into_the_background_is_told_to_stay_in_front(tmp_path: Path) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
    empty = nsys_export(tmp_path / "empty.sqlite", [], [])
    measurement, failure, _ = measured(tmp_path, daemon, empty)
    assert failure is not None and failure.failure_class is FailureClass.NOTHING_PROFILED
    assert failure.cause.endswith(
        "; it ended and left 1 processes in the background, which were ended with it: a program that is "
        "measured must run in the foreground"
    )
    assert measurement.log.wall_seconds < 30


def test_launches_of_a_program_that_leaves_a_helper_behind_stay_and_it_is_noted(tmp_path: Path) -> None:
    measurement, failure, launches = measured(
        tmp_path, "import os, time\nif os.fork() == 0:\n    time.sleep(60)\n"
    )
    assert (failure, launches) == (None, 160)
    assert "note: it left 1 processes in the background" in measurement.log.text


def test_a_program_that_prints_binary_is_measured_and_its_log_is_text(tmp_path: Path) -> None:
    printing = "import os\nos.write(1, bytes(range(256)) * 4000); os.write(2, b'\\xff\\xfe\\x1b[2J\\n')"
    measurement, failure, launches = measured(tmp_path, printing)
    assert (failure, launches) == (None, 160)
    text = measurement.log.text
    assert "\ufffd" in text and "bytes left out" in text and len(text.encode()) < 1 << 20
    (tmp_path / "again").mkdir()
    _, failure, _ = measured(tmp_path / "again", f"{printing}\nraise SystemExit(3)")
    assert failure is not None and "exit status 3" in failure.cause


def test_a_program_that_runs_longer_than_it_may_is_ended_and_what_it_said_stays(tmp_path: Path) -> None:
    measurement, failure, _ = measured(
        tmp_path, "import time\nprint('epoch 1', flush=True)\ntime.sleep(60)\n"
    )
    assert failure is not None and failure.failure_class is FailureClass.HANG
    assert "it had not ended after its time limit of 2 s; it was ended" in failure.cause
    assert "epoch 1" in measurement.log.text
