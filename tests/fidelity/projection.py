"""Projection within a launch, by rule and kernel family, on simulator logs of synthetic kernels."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay_sampling.projection.launch_end import end_share
from assay_sampling.projection.projector import LaunchSize, ProjectionParameters, Stop, project
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.projection.summary import summary_of
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces, launch_work
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from tests.fidelity.kernel_families import FAMILIES, FAMILY_OF_KERNEL, Half
from tests.fidelity.recorded_families import GENERATOR, RUNS, RecordedLaunch, recorded_launches, write_traces
from tests.fidelity.section import Effort, Section, shared_data

FOLDERS = ("accel_sim", "accel_sim_more")
INTERVALS = ".visualizer.gz"
LEAST_SAVED_PERCENT = 35.0
GREATEST_MEAN_ERROR_PERCENT = 3.0
DEFAULT = "waves (default)"
RULES: Mapping[str, ProjectionParameters] = {
    DEFAULT: ProjectionParameters(),
    "instructions, 3,000 / 0.25": ProjectionParameters(rule="instructions"),
    "instructions, 1,500 / 3": ProjectionParameters(rule="instructions", window_cycles=1500, s=3),
    "paper, 3,000 / 0.25": ProjectionParameters(rule="paper"),
    "paper, 1,500 / 3": ProjectionParameters(rule="paper", window_cycles=1500, s=3),
    "artifact, 3,000 / 0.25": ProjectionParameters(rule="artifact"),
    "artifact, 1,500 / 3": ProjectionParameters(rule="artifact", window_cycles=1500, s=3),
}
WITHOUT_TRACES = "waves without traces"
IN_SHORT = 3
COLUMNS = (
    "launches",
    "rule",
    "stop",
    "mean error of all launches",
    "of those that stop",
    "total",
    "largest",
    "saved",
)
ABOUT = (
    "Launches of real Accel-Sim runs of synthetic kernels (simulated), in percent of all cycles / of "
    "active cycles, without the launch latency; a launch that does not stop has an error of 0 and saves "
    "nothing. The default was chosen on the families called `choosing` and on `solver`, another "
    "application; goal on those for `reporting`, first looked at afterwards: saves at least "
    f"{LEAST_SAVED_PERCENT:g} % of the cycles, mean error where it stops at most "
    f"{GREATEST_MEAN_ERROR_PERCENT:g} %"
)


@dataclass(frozen=True)
class Projected:
    """A launch with its family, as :func:`summary_of` needs it."""

    family: str
    stop: Stop | None
    true_cycles: float
    projected_cycles: float
    simulated_cycles: float
    launch_latency_cycles: float

    @classmethod
    def of(cls, launch: LaunchProjection) -> Projected:
        true, projected, simulated = (
            launch.true_cycles,
            launch.projected_cycles,
            launch.simulated_cycles,
        )
        assert true is not None and projected is not None and simulated is not None
        family = FAMILY_OF_KERNEL.get(launch.launch.kernel, "solver")
        return cls(family, launch.stop, true, projected, simulated, launch.launch_latency_cycles)

    @property
    def signed_error_percent(self) -> float:
        return 100.0 * (self.projected_cycles / self.true_cycles - 1.0)

    @property
    def active_error_percent(self) -> float:
        active = self.true_cycles - self.launch_latency_cycles
        return 100.0 * (self.projected_cycles - self.true_cycles) / active


def section(effort: Effort) -> Section:
    """The rules on both halves, and the default on each family; without shared data a table of no rows."""
    title = "Projection within a launch (PKP), by rule and family"
    data = shared_data()
    if data is None:
        return Section(title, f"{ABOUT}. The shared data is not here.", COLUMNS, ())
    rules = dict(list(RULES.items())[: IN_SHORT if effort is Effort.SHORT else None])
    by_rule = {name: projections(data, parameters) for name, parameters in rules.items()}
    by_rule[WITHOUT_TRACES] = projections(data, RULES[DEFAULT], traced=False)
    rows = [
        _row(half.value, name, summary_of(of_half(launches, half)))
        for half in (Half.REPORTING, Half.CHOOSING)
        for name, launches in by_rule.items()
    ]
    for half in (Half.REPORTING, Half.CHOOSING):
        for family in sorted(FAMILIES[half]):
            score = summary_of(of_families(by_rule[DEFAULT], [family]))
            rows.append(_row(f"{half.value}: {family}", DEFAULT, score))
    rows.append(_row("solver", DEFAULT, summary_of(of_families(by_rule[DEFAULT], ["solver"]))))
    score = summary_of(of_half(by_rule[DEFAULT], Half.REPORTING))
    return Section(title, f"{ABOUT}.", COLUMNS, rows, missed(score))


@cache
def projections(
    data: Path, parameters: ProjectionParameters, *, traced: bool = True
) -> tuple[Projected, ...]:
    """Every launch of the runs with an interval log, projected; ``traced``: with its trace, where it can be
    written again, if the rule needs it."""
    traced = traced and parameters.rule is None
    logs = [path for folder in FOLDERS for path in sorted((data / folder).glob(f"*{INTERVALS}"))]
    logs.append(data / "accel_sim_parts" / f"solver.10sm{INTERVALS}")
    launches: list[Projected] = []
    for log in logs:
        run = SimulatorRun(log.with_name(log.name.replace(INTERVALS, ".out.gz")), log)
        with _traces(data, log) if traced else _nothing() as traces:
            launches += map(Projected.of, project_run(run, parameters, traces=traces))
    launches += _recorded(data, parameters, traced=traced)
    return tuple(launches)


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


@contextmanager
def _traces(data: Path, log: Path) -> Iterator[LaunchTraces | None]:
    """The traces of a run, written again by the program that made them; None for those of the first corpus,
    none of whose launches of many waves has blocks of uneven length."""
    app = log.name.split(".")[0]
    with tempfile.TemporaryDirectory(prefix="assay-traces-") as folder:
        if log.parent.name == "accel_sim":
            yield None
            return
        if log.parent.name == "accel_sim_more":
            command = [data / GENERATOR, folder, app]
        else:
            program = data.parent / "tools" / "accel_sim" / "solver_traces.py"
            command = [program, folder, "--steps", "4", "--scale", "0.5"]
        subprocess.run([sys.executable, *map(str, command)], check=True, stdout=subprocess.DEVNULL)
        yield LaunchTraces.of(sorted(Path(folder).glob("kernel-*.traceg")))


def _recorded(data: Path, parameters: ProjectionParameters, *, traced: bool) -> Iterator[Projected]:
    launches = recorded_launches()
    for run in RUNS:
        with tempfile.TemporaryDirectory(prefix="assay-traces-") as folder:
            paths = write_traces(data, run, Path(folder)) if traced else []
            by_name = {path.name: path for path in paths}
            for launch in launches:
                if launch.run == run:
                    yield _projected(launch, by_name.get(f"kernel-{launch.number}.traceg"), parameters)


def _projected(launch: RecordedLaunch, trace: Path | None, parameters: ProjectionParameters) -> Projected:
    end = None
    if trace is not None:
        work = launch_work(trace)
        end = end_share(work.warp_instructions, work.block_warps, launch.wave_ctas)
    size = LaunchSize(launch.wave_ctas, launch.total_ctas, float(launch.instructions), 0.0, end)
    projection = project(launch.series, size, parameters, float(launch.cycles))
    projected, simulated = projection.projected_cycles, projection.simulated_cycles
    assert projected is not None and simulated is not None
    return Projected(launch.family, projection.stop, launch.cycles, projected, simulated, 0.0)


def of_half(launches: Iterable[Projected], half: Half) -> list[Projected]:
    """The launches of a half's families."""
    return of_families(launches, FAMILIES[half])


def of_families(launches: Iterable[Projected], families: Iterable[str]) -> list[Projected]:
    """The launches of some families."""
    return [each for each in launches if each.family in families]


def missed(score: Mapping[str, Any]) -> list[str]:
    """The goals that a rule misses."""
    texts = []
    if not score["saved_percent"] >= LEAST_SAVED_PERCENT:
        texts.append(f"the default saves {score['saved_percent']:.1f} % of the cycles")
    for name in ("mean_error_percent", "mean_active_error_percent"):
        if not score[name] <= GREATEST_MEAN_ERROR_PERCENT:
            texts.append(f"the default: {name} is {score[name]:.1f} %")
    return texts


def _row(launches: str, rule: str, score: Mapping[str, Any]) -> tuple[str, ...]:
    pairs = (
        ("mean_error_over_all_percent", "mean_active_error_over_all_percent", ".1f"),
        ("mean_error_percent", "mean_active_error_percent", ".1f"),
        ("signed_error_percent", "active_error_percent", "+.1f"),
        ("largest_error_percent", "largest_active_error_percent", ".1f"),
        ("saved_percent", "active_saved_percent", ".1f"),
    )
    cells = [f"{_cell(score[all_], form)} / {_cell(score[active], form)}" for all_, active, form in pairs]
    return (launches, rule, f"{score['stopped']} of {score['launches']}", *cells)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
