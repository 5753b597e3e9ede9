"""Predictions of targets that were not simulated, each with an interval.

The interval is split-conformal: of n workloads with known targets, each predicted without influencing the
rule's constant, the absolute log ratios |log(predicted / true)| at the same number of doublings are sorted,
and the one of rank ceil((n + 1) level) is the half width. If the new workload resembles them, its IPC is
inside with at least that probability for any distribution; n workloads cannot promise more than n / (n + 1).
The half width never shrinks with the distance. Beyond the calibrated doublings it grows in proportion to
them, which is an assumption, and is marked.

Without other workloads the calibration that comes with Assay is used (``calibration.toml``): the published
strong-scaling workloads from 8 and 16, 16 and 32, or 32 and 64 SMs, like the scale models. It is wider than
weak scaling needs. Other scale models take that of 8 and 16: their intervals are marked as extrapolated.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scale_model.evaluation import Evaluation, best_constant, evaluate
from assay_sampling.scale_model.rules import (
    CLIFF_FACTOR,
    DEFAULT_RULE,
    DEVIATION_GROWTH,
    Prediction,
    find_cliff,
    predict,
)
from assay_sampling.scale_model.scaling_table import ScaleModels, Workload, scale_models_of

DEFAULT_LEVEL = 0.9


@dataclass(frozen=True)
class Calibration:
    """The known errors of the rules.

    Args:
        source: its origin, for a reader.
        deviation_growth: p of ``log_quadratic``.
        log_ratios: by rule, for 1, 2, 3 ... doublings, sorted |log(predicted / true)| of workloads.
        scale_models: S and L that the errors were found with; intervals from others are extrapolated.
    """

    source: str
    deviation_growth: float
    log_ratios: Mapping[str, tuple[tuple[float, ...], ...]]
    scale_models: tuple[int, int]


@dataclass(frozen=True)
class HalfWidth:
    """Half an interval in log IPC, its ``level``, and whether it is beyond the calibrated doublings."""

    log_ipc: float
    level: float
    extrapolated: bool


def calibration_of(
    workloads: Sequence[Workload],
    source: str,
    *,
    sizes: Sequence[int] | None = None,
    weak_scaling: bool = False,
) -> Calibration:
    """A calibration from workloads with known targets and the scale models of ``sizes`` (S, L), else the two
    smallest; raises as :func:`evaluation.evaluate`."""
    evaluation = evaluate(workloads, sizes, weak_scaling=weak_scaling)
    large = evaluation.scale_models[1]
    steps = [math.log2(size / large) for size in evaluation.targets]
    if steps != [float(step) for step in range(1, len(steps) + 1)]:
        raise ParameterError(
            "calibration",
            f"targets {evaluation.targets} are not the doublings of {large}",
            "give every doubling",
        )
    return Calibration(
        source=source,
        deviation_growth=best_constant(workloads, sizes, weak_scaling=weak_scaling),
        log_ratios={rule: _sorted_columns(evaluation, rule) for rule in evaluation.log_ratio},
        scale_models=evaluation.scale_models,
    )


def _sorted_columns(evaluation: Evaluation, rule: str) -> tuple[tuple[float, ...], ...]:
    ratios = np.abs(evaluation.log_ratio[rule])
    columns = (ratios[:, column] for column in range(ratios.shape[1]))
    return tuple(tuple(np.sort(column[~np.isnan(column)]).tolist()) for column in columns)


@functools.cache
def published_calibration(scale_models: tuple[int, int] = (8, 16)) -> Calibration:
    """The calibration that comes with Assay for these sizes; for sizes without one, that of 8 and 16."""
    text = resources.files("assay_sampling.scale_model").joinpath("calibration.toml").read_text("utf-8")
    by_sizes = {tuple(content["scale_models"]): content for content in tomllib.loads(text)["calibrations"]}
    content = by_sizes.get(scale_models) or by_sizes[8, 16]
    return Calibration(
        source=content["source"],
        deviation_growth=DEVIATION_GROWTH,
        scale_models=tuple(content["scale_models"]),
        log_ratios={
            rule: tuple(tuple(column) for column in columns)
            for rule, columns in content["log_ratios"].items()
        },
    )


def half_width(calibration: Calibration, rule: str, doublings: float, level: float) -> HalfWidth | None:
    """Half an interval ``doublings`` above the larger scale model; None if the rule is not calibrated.

    Raises ParameterError for a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise ParameterError("level", f"{level:g} is not between 0 and 1", "give 0.9")
    columns = [column for column in calibration.log_ratios.get(rule, ()) if column]
    if not columns:
        return None
    steps = max(1, math.ceil(doublings - 1e-9))
    within = columns[: min(steps, len(columns))]
    width, coverage = 0.0, 1.0
    for column in within:
        # The margin keeps (n + 1) level = 19.8 at rank 20, and 18.000000000000004 at 18.
        rank = math.ceil((len(column) + 1) * level - 1e-9)
        reached = min(rank, len(column))
        width = max(width, column[reached - 1])
        coverage = min(coverage, level if rank <= len(column) else len(column) / (len(column) + 1))
    extrapolated = steps > len(columns)
    return HalfWidth(width * (steps / len(columns) if extrapolated else 1.0), coverage, extrapolated)


def interval_coverage(evaluation: Evaluation, level: float = DEFAULT_LEVEL) -> dict[str, dict[str, object]]:
    """How often intervals made from the other workloads contain a workload's true IPC, by rule and target.

    ``coverage_percent`` of the workloads, the mean ``half_width_percent``, and ``level`` if the other
    workloads are too few for the requested one. Raises ParameterError for a level outside (0, 1).
    """
    coverage: dict[str, dict[str, object]] = {}
    for rule, ratios in evaluation.log_ratio.items():
        folds = [_held_out(np.delete(ratios, row, axis=0), ratios[row], level) for row in range(len(ratios))]
        coverage[rule] = {}
        for column, size in enumerate(evaluation.targets):
            valid = [cells[column] for cells in folds if cells[column] is not None]
            cells = np.array(valid, np.float64).reshape(-1, 3)
            coverage[rule][str(size)] = {
                "coverage_percent": 100.0 * float(cells[:, 0].mean()) if len(cells) else None,
                "half_width_percent": 100.0 * float(np.expm1(cells[:, 1]).mean()) if len(cells) else None,
                "level": float(cells[:, 2].min()) if len(cells) else None,
            }
    return coverage


def _held_out(others: np.ndarray, own: np.ndarray, level: float) -> list[tuple[float, float, float] | None]:
    """For each target: whether the interval of ``others``, (w - 1, t), holds ``own``, (t,); width; level."""
    columns = tuple(tuple(np.sort(np.abs(c[~np.isnan(c)])).tolist()) for c in others.T)
    calibration = Calibration("the other workloads", DEVIATION_GROWTH, {"held out": columns}, (0, 0))
    held_out: list[tuple[float, float, float] | None] = []
    for column, ratio in enumerate(own.tolist()):
        half = half_width(calibration, "held out", column + 1, level)
        if half is None or math.isnan(ratio):
            held_out.append(None)
        else:
            held_out.append((float(abs(ratio) <= half.log_ipc), half.log_ipc, half.level))
    return held_out


@dataclass(frozen=True)
class WorkloadPrediction:
    """The predictions of one workload, with their inputs."""

    workload: str
    size_unit: str
    rule: str
    models: ScaleModels
    level: float
    calibration: Calibration
    predictions: tuple[Prediction, ...]
    cliff_at: int | None
    notes: tuple[Note, ...] = ()

    @property
    def calibrated_on_its_sizes(self) -> bool:
        """Whether the errors were found with scale models of the same sizes."""
        return self.calibration.scale_models == (self.models.small, self.models.large)

    def to_dict(self) -> dict[str, object]:
        """The document of ``assay scale-model predict --json``."""
        return {
            "workload": self.workload,
            "rule": self.rule,
            "size_unit": self.size_unit,
            "scale_models": [
                {"size": self.models.small, "ipc": self.models.small_ipc},
                {"size": self.models.large, "ipc": self.models.large_ipc},
            ],
            "correction": self.models.correction,
            "f_mem": self.models.f_mem,
            "cliff_at": self.cliff_at,
            "level": self.level,
            "deviation_growth": self.calibration.deviation_growth,
            "calibration": self.calibration.source,
            "predictions": [self._prediction(prediction) for prediction in self.predictions],
            "notes": [note.to_dict() for note in self.notes],
        }

    def _prediction(self, prediction: Prediction) -> dict[str, object]:
        doublings = math.log2(prediction.size / self.models.large)
        half = half_width(self.calibration, self.rule, doublings, self.level)
        ipc = prediction.ipc
        fields: dict[str, object] = {
            "size": prediction.size,
            "ipc": ipc,
            "lower": None,
            "upper": None,
            "level": None,
            "extrapolated": None,
            "region": prediction.region or None,
            "reason": None if prediction.reason is None else prediction.reason.to_dict(),
        }
        if ipc is not None and half is not None:
            fields["lower"], fields["upper"] = ipc * math.exp(-half.log_ipc), ipc * math.exp(half.log_ipc)
            fields["level"] = half.level
            fields["extrapolated"] = half.extrapolated or not self.calibrated_on_its_sizes
        return fields


def predict_workload(
    workload: Workload,
    targets: Sequence[int] = (),
    *,
    rule: str = DEFAULT_RULE,
    sizes: Sequence[int] | None = None,
    weak_scaling: bool = False,
    level: float = DEFAULT_LEVEL,
    calibration: Calibration | None = None,
) -> WorkloadPrediction:
    """Predict a workload's IPC at ``targets``, else at the table's larger sizes, else at three doublings.

    ``sizes`` are S and L, else the two smallest with an IPC. Raises ParameterError as :func:`rules.predict`,
    and RefusedError if no target can be predicted.
    """
    models = scale_models_of(workload, sizes, weak_scaling=weak_scaling)
    calibration = calibration or published_calibration((models.small, models.large))
    all_sizes = sorted({*workload.ipc, *workload.mpki})
    target_sizes = list(targets) or [size for size in all_sizes if size > models.large]
    target_sizes = target_sizes or [models.large << step for step in (1, 2, 3)]
    predictions = predict(rule, models, target_sizes, deviation_growth=calibration.deviation_growth)
    if all(prediction.ipc is None for prediction in predictions):
        why = predictions[0].reason
        cause = why.text if why is not None else "no target can be predicted"
        raise RefusedError(workload.name, cause, "give what is missing, or a smaller target")
    # The level is checked even if nothing is calibrated.
    calibrated = half_width(calibration, rule, 1, level) is not None
    steps = max(math.floor(math.log2(size / models.large)) for size in target_sizes)
    cliff = find_cliff(models, steps)
    return WorkloadPrediction(
        workload=workload.name,
        size_unit=workload.size_unit,
        rule=rule,
        models=models,
        level=level,
        calibration=calibration,
        predictions=tuple(predictions),
        cliff_at=None if cliff.step is None else models.large << cliff.step,
        notes=tuple(_notes(models, rule, weak_scaling, calibrated, calibration)),
    )


def _notes(
    models: ScaleModels, rule: str, weak_scaling: bool, calibrated: bool, calibration: Calibration
) -> Iterator[Note]:
    small, large = calibration.scale_models
    if calibrated and (small, large) != (models.small, models.large):
        yield make_note("calibrated_on_other_sizes", small=small, large=large)
    if not calibrated:
        yield make_note("rule_not_calibrated", rule=rule)
    if not models.mpki and not weak_scaling:
        yield make_note("no_miss_rate_curve")
    first, second = models.mpki.get(models.small), models.mpki.get(models.large)
    if first is not None and second is not None and first > CLIFF_FACTOR * second:
        yield make_note("cliff_between_scale_models", factor=CLIFF_FACTOR)
