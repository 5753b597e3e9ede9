"""What a GPU is offered for, whatever of ncu, nsys and our tracer its box has."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.daemon.places import Place, installed_places
from assay_agent.profilers.live import LiveMeasurement
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.running.validity import FLAGS
from tests.support.agent.assignments import WORK

BOX = Inventory("box", "", 2, 1 << 34, (InstalledDevice(0, "V100", "GPU-1", "7.0", 80, 1 << 34),))
NSYS, NCU, CUPTI = "nsight_systems", "nsight_compute", "cupti"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without tools, and no tracer."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ASSAY_TRACER", str(tmp_path / "tracer.so"))
    return tmp_path


def install(box: Path, *tools: str) -> Place:
    for tool in tools:
        path = box / "tracer.so" if tool == "tracer" else box / "bin" / tool
        path.touch(0o755)
    [place] = installed_places(BOX, box / "state")
    assert list(place.profilers) == list(place.slot.profilers)
    return place


@pytest.mark.parametrize(
    ("tools", "expected", "told"),
    [
        (["ncu", "nsys", "tracer"], {NCU, NSYS, CUPTI, "auto"}, []),
        (["ncu", "nsys"], {NCU, NSYS, "auto"}, []),
        (
            ["ncu", "tracer"],
            {NCU, CUPTI, "auto"},
            ["light runs by the tracer alone: nsys is not in the PATH"],
        ),
        (
            ["tracer"],
            {CUPTI, "auto"},
            ["no detailed runs: ncu is not", "light runs by the tracer alone: nsys is not in the PATH"],
        ),
        (["ncu"], {NCU}, ["no light runs: nsys is not in the PATH, and the tracer is not built (python -m"]),
        (["nsys"], {NSYS, "auto"}, ["no detailed runs: ncu is not in the PATH"]),
        (
            [],
            set(),
            ["no detailed runs: ncu is not in the PATH; no light runs: nsys is not in the PATH, and"],
        ),
    ],
)
def test_a_gpu_is_offered_for_what_its_box_has_and_for_bare_runs_always(
    tools: list[str], expected: set[str], told: list[str], box: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        place = install(box, *tools)
    assert {*place.slot.profilers} == {*expected, "kineto", "bare"}
    assert bool(caplog.records) is bool(told)
    assert all(text in caplog.text for text in told)


@pytest.mark.parametrize(
    ("tools", "taken", "flags"),
    [(["nsys", "tracer"], NSYS, []), (["nsys"], NSYS, []), (["tracer"], CUPTI, ["light_by_tracer"])],
)
def test_auto_takes_nsys_where_it_is_and_says_so_where_it_is_not(
    tools: list[str], taken: str, flags: list[str], box: Path
) -> None:
    profiler = install(box, *tools).profilers["auto"]
    work = replace(WORK, level="light", profiler="auto")
    assert profiler.plan(work) == ["./train", "--epochs", "1"]
    measurement = profiler.run(work, threading.Event())
    assert isinstance(measurement, LiveMeasurement)
    assert [flag.name for flag in measurement.flags] == flags
    assert not any(flag.invalidates for flag in measurement.flags)
    assert f"light: auto takes {taken} on this box" in measurement.log.text
    assert "light_by_tracer" in FLAGS
