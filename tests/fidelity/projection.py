"""Projection within a launch, by rule and kernel family, on the simulator logs of the shared data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.projection.summary import summary_of
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from tests.fidelity.kernel_families import FAMILY_OF_KERNEL, HALF_OF_FAMILY, Half
from tests.fidelity.section import Effort, Section, shared_data

FOLDERS = ("accel_sim", "accel_sim_more")
INTERVALS = ".visualizer.gz"
LEAST_SAVED_PERCENT = 20.0
GREATEST_MEAN_ERROR_PERCENT = 5.0
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
    "Launches of real Accel-Sim runs of synthetic kernels (simulated) that have interval logs, in percent "
    "of all cycles / of active cycles, without the launch latency; a launch that does not stop has an "
    "error of 0 and saves nothing. Rules were chosen on the half of the kernel families called `choosing`; "
    f"goal for the default on `reporting`: saves at least {LEAST_SAVED_PERCENT:g} % of the cycles, mean "
    f"error over all launches at most {GREATEST_MEAN_ERROR_PERCENT:g} %"
)


def section(effort: Effort) -> Section:
    """The rules on both halves, and the default on each family; without shared data a table of no rows."""
    title = "Projection within a launch (PKP), by rule and family"
    data = shared_data()
    if data is None:
        return Section(title, f"{ABOUT}. The shared data is not here.", COLUMNS, ())
    rules = dict(list(RULES.items())[: IN_SHORT if effort is Effort.SHORT else None])
    found = {name: projections(data, parameters) for name, parameters in rules.items()}
    rows = [
        _row(half.value, name, summary_of(of_half(launches, half)))
        for half in (Half.REPORTING, Half.CHOOSING)
        for name, launches in found.items()
    ]
    rows += [
        _row(f"all of {folder}", name, summary_of(projections(data, rules[name], (folder,))))
        for folder in FOLDERS
        for name in found
    ]
    for family, half in sorted(HALF_OF_FAMILY.items(), key=lambda item: (item[1] is Half.CHOOSING, item[0])):
        for name in list(found)[:IN_SHORT]:
            rows.append(_row(f"{half.value}: {family}", name, summary_of(of_family(found[name], family))))
    score = summary_of(of_half(found[DEFAULT], Half.REPORTING))
    return Section(title, f"{ABOUT}; {stricter(found)}", COLUMNS, rows, missed(score))


@cache
def projections(
    data: Path, parameters: ProjectionParameters, folders: tuple[str, ...] = FOLDERS
) -> tuple[LaunchProjection, ...]:
    """Every launch of these folders that is in a run with an interval log, projected."""
    if len(folders) > 1:
        return tuple(each for folder in folders for each in projections(data, parameters, (folder,)))
    logs = [path for folder in folders for path in sorted((data / folder).glob(f"*{INTERVALS}"))]
    return tuple(
        launch
        for log in logs
        for launch in project_run(
            SimulatorRun(log.with_name(log.name.replace(INTERVALS, ".out.gz")), log), parameters
        )
    )


def of_half(launches: Iterable[LaunchProjection], half: Half) -> list[LaunchProjection]:
    """The launches of a half's families."""
    return [each for each in launches if HALF_OF_FAMILY[_family(each)] is half]


def of_family(launches: Iterable[LaunchProjection], family: str) -> list[LaunchProjection]:
    """The launches of a family."""
    return [each for each in launches if _family(each) == family]


def missed(score: Mapping[str, Any]) -> list[str]:
    """The goals that a rule misses."""
    found = []
    if not score["saved_percent"] >= LEAST_SAVED_PERCENT:
        found.append(f"the default saves {score['saved_percent']:.1f} % of the cycles")
    for name in ("mean_error_over_all_percent", "mean_active_error_over_all_percent"):
        if not score[name] <= GREATEST_MEAN_ERROR_PERCENT:
            found.append(f"the default: {name} is {score[name]:.1f} %")
    return found


def stricter(found: Mapping[str, Iterable[LaunchProjection]]) -> str:
    """The goal read over the launches that stop alone, and the rules that keep it."""
    scores = {name: summary_of(of_half(launches, Half.REPORTING)) for name, launches in found.items()}
    keep = [
        name
        for name, score in scores.items()
        if score["saved_percent"] >= LEAST_SAVED_PERCENT
        and (score["mean_active_error_percent"] or 0) <= GREATEST_MEAN_ERROR_PERCENT
    ]
    default = scores[DEFAULT]["mean_active_error_percent"]
    found_text = f"{', '.join(keep)} keep it" if keep else "no rule here keeps it"
    return f"counted over the launches that stop alone, {found_text}: the default has {default:.1f} %."


def _family(launch: LaunchProjection) -> str:
    return FAMILY_OF_KERNEL[launch.launch.kernel]


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
