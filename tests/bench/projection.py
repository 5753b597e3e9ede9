"""Principal kernel projection on real simulator logs: every rule beside the artifact's, launch by launch.

python -m tests.bench.projection ../shared/data/accel_sim [--window-cycles 1500] [--s 3]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.simulators.accel_sim.run import SimulatorRun

OUTPUT, INTERVALS = ".out.gz", ".visualizer.gz"
MANY_WAVES = ("vecadd_k5.20sm", "twophase_k3.20sm", "fma_k4.20sm")


@dataclass(frozen=True)
class Comparison:
    """One rule beside the artifact's, over the launches where both stop."""

    launches: int
    fires: int
    artifact_fires: int
    both: int
    error_percent: float
    artifact_error_percent: float
    active_error_percent: float
    artifact_active_error_percent: float


def runs_in(folder: Path) -> list[str]:
    """The runs with an interval log that the acceptance is measured on."""
    return [*MANY_WAVES, *sorted(p.name.removesuffix(INTERVALS) for p in folder.glob(f"*.base{INTERVALS}"))]


def project_all(folder: Path, rule: str | None, window_cycles: float, s: float) -> list[LaunchProjection]:
    """Every launch of every run under one rule; None is the default."""
    parameters = ProjectionParameters(rule=rule, window_cycles=window_cycles, s=s)
    return [
        launch
        for run in runs_in(folder)
        for launch in project_run(
            SimulatorRun(folder / (run + OUTPUT), folder / (run + INTERVALS)), parameters
        )
    ]


def compare(ours: list[LaunchProjection], artifact: list[LaunchProjection]) -> Comparison:
    """Mean absolute errors of two rules over the launches where both stop."""
    both = [(a, b) for a, b in zip(ours, artifact, strict=True) if _stops(a) and _stops(b)]

    def mean(side: int, name: str) -> float:
        return sum(abs(getattr(pair[side], name)) for pair in both) / max(len(both), 1)

    return Comparison(
        launches=len(ours),
        fires=sum(map(_stops, ours)),
        artifact_fires=sum(map(_stops, artifact)),
        both=len(both),
        error_percent=mean(0, "signed_error_percent"),
        artifact_error_percent=mean(1, "signed_error_percent"),
        active_error_percent=mean(0, "active_error_percent"),
        artifact_active_error_percent=mean(1, "active_error_percent"),
    )


def _stops(launch: LaunchProjection) -> bool:
    return launch.projection is not None and launch.projection.stop is not None


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window-cycles", type=float, default=1500.0)
    parser.add_argument("--s", type=float, default=3.0)
    arguments = parser.parse_args()
    settings = (arguments.window_cycles, arguments.s)
    artifact = project_all(arguments.folder, "artifact", *settings)
    rules = {name: project_all(arguments.folder, name, *settings) for name in ("paper", "instructions")}
    print(f"window {settings[0]:g} cycles, s {settings[1]:g}, {len(artifact)} launches\n")
    print("| rule | fires | both fire | error % | artifact's there | active error % | artifact's there |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    share = 100 * sum(map(_stops, artifact)) / len(artifact)
    print(f"| artifact | {sum(map(_stops, artifact))} ({share:.0f} %) | | | | | |")
    for name, launches in rules.items():
        c = compare(launches, artifact)
        print(
            f"| {name} | {c.fires} ({100 * c.fires / c.launches:.0f} %) | {c.both} | {c.error_percent:.2f} | "
            f"{c.artifact_error_percent:.2f} | {c.active_error_percent:.2f} | "
            f"{c.artifact_active_error_percent:.2f} |"
        )
    for name, launches in rules.items():
        print(f"\nWhere both stop, {name} beside artifact: cycles, with the launch latency and without\n")
        print("| launch | blocks / wave | true | active | stop | projected | error % | artifact: stop "
              "| projected | error % |")  # fmt: skip
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for ours, theirs in zip(launches, artifact, strict=True):
            if _stops(ours) and _stops(theirs):
                print(_line(ours, theirs))


def _line(ours: LaunchProjection, theirs: LaunchProjection) -> str:
    waves = f"{ours.launch.total_ctas} / {ours.wave_ctas}"
    true = ours.true_cycles or 0
    cells = [f"{ours.launch.kernel} {ours.launch.traced_id}", waves, f"{true:,}",
             f"{true - ours.launch_latency_cycles:,}"]  # fmt: skip
    for side in (ours, theirs):
        cells += [
            f"{side.simulated_cycles:,.0f}",
            f"{side.projected_cycles:,.0f}",
            f"{side.signed_error_percent:+.1f}",
        ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
