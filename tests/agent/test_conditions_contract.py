"""One contract for locked clocks: a real GPU with recorded answers of NVML, and a virtual one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay_agent.execution.environment import MeasuredGPU
from assay_core.records.work import Work
from assay_sampling.launches.table import BASELINE, ClockCondition
from assay_sampling.running.validity import FLAGS
from assay_virtual.gpu_models import VirtualModel
from tests.support.agent.conditions_bench import Bench, Plain

REFUSES = {"ASSAY_VIRTUAL_FAULTS": "clock_unlocked"}
_NO_PERMISSION = 4


class VirtualBench(Bench):
    """A box with a virtual V100."""

    @property
    def gpu(self) -> MeasuredGPU:
        device = super().gpu.device
        model = VirtualModel("V100", device.uuid)
        return MeasuredGPU(device, path="/usr/bin:/bin", scope=str(self.state), model=model)


@dataclass(frozen=True)
class Kind:
    """A kind of GPU: its box, and what makes it refuse to lock its clocks (the run then, changed)."""

    bench: type[Bench]
    refuse: Callable[[Bench, Work], Work]


def _refused_by_nvml(bench: Bench, work: Work) -> Work:
    bench.nvml.change(refuse={"nvmlDeviceSetGpuLockedClocks": _NO_PERMISSION})
    return work


def _refused_by_model(_: Bench, work: Work) -> Work:
    assert work.command is not None
    return replace(work, command=replace(work.command, environment=REFUSES))


KINDS = {"nvml": Kind(Bench, _refused_by_nvml), "virtual": Kind(VirtualBench, _refused_by_model)}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def bench(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Whatever a test leaves on the box fails the test."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = kind.bench(Path(folder))
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setitem(sys.modules, "pynvml", made.nvml)  # type: ignore[arg-type]
        (made.folder / "bin").mkdir()
        yield made
        assert made.left() == []


def at(bench: Bench, clock: ClockCondition) -> Work:
    synthetic = bench.gpu.synthetic
    return bench.work(condition=replace(BASELINE, clock=clock), synthetic=synthetic)


def entered(bench: Bench, work: Work) -> Plain:
    """A run that was begun and ended without its workload."""
    with bench.measurement(work) as measurement:
        pass
    assert all(flag.name in FLAGS for flag in measurement.flags)
    return measurement


def flags(measurement: Plain) -> set[str]:
    return {flag.name for flag in measurement.flags} & {"clock_unlocked", "clocks_left_locked"}


@pytest.mark.parametrize("clock", ["base", "boost"])
def test_locked_clocks_are_recorded_with_the_run(bench: Bench, clock: ClockCondition) -> None:
    measurement = entered(bench, at(bench, clock))
    assert flags(measurement) == set()
    assert "clock_locked=1" in measurement.log.text


def test_without_the_condition_nothing_is_said_of_clocks(bench: Bench) -> None:
    measurement = entered(bench, at(bench, "none"))
    assert flags(measurement) == set()
    assert "clock_locked" not in measurement.log.text


def test_clocks_that_cannot_be_locked_are_a_flag_and_no_failure(kind: Kind, bench: Bench) -> None:
    measurement = entered(bench, kind.refuse(bench, at(bench, "base")))
    assert flags(measurement) == {"clock_unlocked"}
    assert "clock_locked=0" in measurement.log.text


def test_what_ends_a_run_undoes_its_condition(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError), bench.measurement(at(bench, "base")):
        raise ZeroDivisionError
    assert bench.nvml.state["locked"] is None


def test_runs_follow_one_another(bench: Bench) -> None:
    for clock, said in (("base", True), ("none", False), ("boost", True)):
        assert ("clock_locked=1" in entered(bench, at(bench, clock)).log.text) is said  # type: ignore[arg-type]
