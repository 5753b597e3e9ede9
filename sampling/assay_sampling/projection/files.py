"""Project a simulator's logs or an IPC series; their content tells which they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from assay_sampling.errors import InputError, ParameterError, RefusedError
from assay_sampling.files.reading import read_head, require_file
from assay_sampling.projection.projector import LaunchSize, ProjectionParameters, Series, project
from assay_sampling.projection.runs import project_run, series_of
from assay_sampling.projection.series_csv import looks_like_series, read_series
from assay_sampling.projection.summary import summary_of
from assay_sampling.projection.would_stop import rules_that_would_stop
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces
from assay_sampling.simulators.accel_sim.output import looks_like_output
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog, looks_like_intervals

_OF_ONE_LAUNCH = ("wave_ctas", "total_ctas", "total_instructions", "launch_latency_cycles")


class ProjectionOptions(ProjectionParameters):
    """The rule's parameters, and values that a file lacks: for a CSV or a lone interval log the launch's
    blocks, the blocks of a wave, and its thread instructions; for a log without options the SMs.
    """

    wave_ctas: int | None = Field(default=None, ge=1)
    total_ctas: int | None = Field(default=None, ge=1)
    total_instructions: float | None = Field(default=None, gt=0)
    launch_latency_cycles: float | None = Field(default=None, ge=0)
    sms: int | None = Field(default=None, ge=1)

    def of_rule(self) -> ProjectionParameters:
        """The rule's parameters alone; only those that were given count as given."""
        names = ProjectionParameters.model_fields.keys() & self.model_fields_set
        return ProjectionParameters(**{name: getattr(self, name) for name in names})


Options = TypeVar("Options", bound=BaseModel)


def parse_options(values: Mapping[str, Any], kind: type[Options]) -> Options:
    """Options of ``kind`` from texts or values; raises ParameterError for an unknown one or a wrong value."""
    remedy = f"it has {', '.join(kind.model_fields)}"
    unknown = [name for name in values if name not in kind.model_fields]
    if unknown:
        raise ParameterError("project", f"there is no parameter {unknown[0]!r}", remedy)
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"][:1].lower() + first["msg"][1:]
        raise ParameterError(
            "project", f"parameter {name!r}: {message}, not {str(first['input'])[:80]!r}", remedy
        ) from error


def project_file(
    file: str | Path,
    intervals: str | Path | None = None,
    options: ProjectionOptions | None = None,
    traces: LaunchTraces | None = None,
) -> dict[str, Any]:
    """The projection of a file as a document.

    Args:
        file: a simulator's standard output, its interval log, or a CSV of one launch's samples.
        intervals: the interval log, if ``file`` is the standard output.
        options: rule, window, threshold, and values that the file lacks.
        traces: those that were simulated, if ``file`` is the standard output of a run that was ended within a
            launch.

    Raises InputError for a file that cannot be read or is of another kind, ParameterError if an option is
    missing or belongs to another kind of file, RefusedError if an interval log alone is not enough.
    """
    path, chosen = Path(file), options or ProjectionOptions()
    require_file(path)
    head = read_head(path)
    if not looks_like_output(head):
        _without_traces(path, traces)
    if looks_like_intervals(head):
        _without_intervals(path, intervals, "it is an interval log itself")
        return _of_one_launch(path, "accel-sim-intervals", _only_series(path), chosen)
    if looks_like_series(head):
        _without_intervals(path, intervals, "it is a CSV of samples")
        return _of_one_launch(path, "ipc-series-csv", read_series(path), chosen)
    if looks_like_output(head):
        return _of_run(SimulatorRun(path, intervals), chosen, traces)
    raise InputError(
        path,
        "it is neither a simulator's log nor a series of samples",
        "give the standard output of Accel-Sim, its interval log, or a CSV with cycles,instructions,ctas",
    )


def _without_intervals(path: Path, intervals: str | Path | None, what: str) -> None:
    if intervals is not None:
        raise ParameterError(
            "--intervals",
            f"it belongs to a standard output, and {path}: {what}",
            "swap the two, or leave it out",
        )


def _without_traces(path: Path, traces: LaunchTraces | None) -> None:
    if traces is not None:
        raise ParameterError(
            "--traces",
            f"they belong to a standard output, which {path} is not",
            "give the launch's totals with --param total_ctas= and total_instructions=",
        )


def _only_series(path: Path) -> Series:
    log = IntervalLog(path).series()
    series = next(log)
    if next(log, None) is not None:
        raise RefusedError(
            str(path),
            "it holds several launches, but not how many blocks and instructions each of them has",
            "give the standard output of the same run, and this file with --intervals",
        )
    return series_of(series)


def _of_one_launch(path: Path, kind: str, series: Series, options: ProjectionOptions) -> dict[str, Any]:
    if options.wave_ctas is None or options.total_ctas is None:
        missing = "wave_ctas" if options.wave_ctas is None else "total_ctas"
        raise ParameterError(
            str(path), f"the file does not hold {missing}", f"give it with: --param {missing}=NUMBER"
        )
    if options.sms is not None:
        raise ParameterError("sms", "it applies to a standard output only", "give wave_ctas instead")
    size = LaunchSize(
        options.wave_ctas, options.total_ctas, options.total_instructions, options.launch_latency_cycles
    )
    projection = project(series, size, options.of_rule())
    would = () if projection.stop else rules_that_would_stop(series, size, options.of_rule())
    return {
        "format": kind,
        "file": str(path),
        "parameters": _parameters(options),
        "samples": len(series),
        "last_sample_cycles": float(series.cycles[-1]),
        "total_ctas": size.total_ctas,
        "wave_ctas": size.wave_ctas,
        "total_instructions": size.total_instructions,
        **projection.to_dict(),
        "would_stop": [each.to_dict(None, 0.0) for each in would],
    }


def _of_run(run: SimulatorRun, options: ProjectionOptions, traces: LaunchTraces | None) -> dict[str, Any]:
    refuse_sizes_of_one_launch(options)
    projections = list(project_run(run, options.of_rule(), sms=options.sms, traces=traces))
    return {
        "format": "accel-sim-output",
        "file": str(run.output.path),
        "intervals": str(run.intervals.path) if run.intervals else None,
        "parameters": _parameters(options),
        "simulator": run.config.to_dict(),
        "ending": run.output.ending,
        "launches": [launch.to_dict() for launch in projections],
        "summary": summary_of(projections),
        "notes": [note.to_dict() for note in run.notes],
    }


def refuse_sizes_of_one_launch(options: ProjectionOptions) -> None:
    """Raise ParameterError for a size of one launch, which a simulator's log holds for all."""
    for name in _OF_ONE_LAUNCH:
        if getattr(options, name) is not None:
            raise ParameterError(name, "a simulator's log holds it for every launch", "leave it out")


def _parameters(options: ProjectionOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ProjectionParameters.model_fields}
