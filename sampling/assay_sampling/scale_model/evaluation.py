"""How wrong each rule is on workloads with known targets, and a fair choice of our rule's constant.

``log_quadratic`` has one constant. A workload is predicted with the constant that is best, by mean error over
all targets, on the **other** workloads (leave-one-workload-out), so that no workload influences its own
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scale_model.rules import DEVIATION_GROWTH, OUR_RULE, RULES, predict
from assay_sampling.scale_model.scaling_table import ScaleModels, Workload, scale_models_of

# 0 is the power law; steps of 0.05 are finer than about twenty workloads can tell apart.
_CANDIDATES = np.round(np.arange(0.0, 1.5001, 0.05), 2)
# With fewer, a fold's constant would rest on too few workloads: Assay's own is used.
LEAST_WORKLOADS = 5


@dataclass(frozen=True)
class Evaluation:
    """Errors of every rule.

    Args:
        workloads: their names, w of them.
        size_unit: of the sizes.
        scale_models: S and L.
        targets: t sizes.
        log_ratio: by rule, log(predicted / true), float64 of shape (w, t); NaN where it is refused or
        unknown.
        constants: p of ``log_quadratic`` that each workload was predicted with, shape (w,).
        chosen_by: how the constants were chosen.
        refused: targets that were not predicted, and why.
    """

    workloads: tuple[str, ...]
    size_unit: str
    scale_models: tuple[int, int]
    targets: tuple[int, ...]
    log_ratio: dict[str, np.ndarray]
    constants: np.ndarray
    chosen_by: str
    refused: list[Note] = field(default_factory=list)

    def errors_percent(self, rule: str) -> np.ndarray:
        """100 |predicted - true| / true, shape (w, t); NaN where unknown."""
        errors: np.ndarray = 100.0 * np.abs(np.expm1(self.log_ratio[rule]))
        return errors

    def to_dict(self) -> dict[str, object]:
        """The document of ``assay scale-model evaluate --json``."""
        return {
            "rules": {rule: self._by_size(self.errors_percent(rule)) for rule in self.log_ratio},
            "scale_models": list(self.scale_models),
            "size_unit": self.size_unit,
            "workloads": {
                name: {
                    rule: {
                        str(size): float(self.errors_percent(rule)[row, column])
                        for column, size in enumerate(self.targets)
                    }
                    for rule in self.log_ratio
                }
                for row, name in enumerate(self.workloads)
            },
            "deviation_growth": dict(zip(self.workloads, self.constants.tolist(), strict=True)),
            "deviation_growth_chosen_by": self.chosen_by,
            "refused": [note.to_dict() for note in self.refused],
        }

    def _by_size(self, errors: np.ndarray) -> dict[str, dict[str, float | int | None]]:
        by_size: dict[str, dict[str, float | int | None]] = {}
        for column, size in enumerate(self.targets):
            finite = errors[:, column][~np.isnan(errors[:, column])]
            by_size[str(size)] = {
                "mean_error_percent": float(finite.mean()) if len(finite) else None,
                "max_error_percent": float(finite.max()) if len(finite) else None,
                "workloads": len(finite),
            }
        return by_size


def evaluate(
    workloads: Sequence[Workload], sizes: Sequence[int] | None = None, *, weak_scaling: bool = False
) -> Evaluation:
    """Predict every larger size with a known IPC from two scale models, by every rule.

    ``sizes`` are S and L, else the two smallest sizes. Raises ParameterError if workloads have different
    sizes or units, RefusedError without a target to compare with.
    """
    models = [scale_models_of(workload, sizes, weak_scaling=weak_scaling) for workload in workloads]
    first = models[0]
    for workload, model in zip(workloads, models, strict=True):
        if (model.small, model.large) != (first.small, first.large):
            raise ParameterError(
                workload.name,
                f"its scale models are {model.small} and {model.large}, others have "
                f"{first.small} and {first.large}",
                "name two sizes that all have with --models",
            )
        if workload.size_unit != workloads[0].size_unit:
            raise ParameterError(
                workload.name, "its sizes are in another unit", "evaluate each unit by itself"
            )
    targets = sorted({size for workload in workloads for size in workload.ipc if size > first.large})
    if not targets:
        raise RefusedError(
            "evaluation", "no workload has an IPC above its scale models", "use predict instead"
        )
    true = np.array([[w.ipc.get(size, np.nan) for size in targets] for w in workloads])
    constants, chosen_by = _constants(models, targets, true)
    refused: list[Note] = []
    ratios = {}
    for rule in RULES:
        growth = constants if rule == OUR_RULE else np.full(len(models), DEVIATION_GROWTH)
        predicted, reasons = _predicted(rule, models, targets, growth)
        ratios[rule] = np.log(predicted) - np.log(true)
        refused += [
            make_note(
                "workload_not_predicted", rule=rule, workload=workloads[row].name, size=size, why=why.text,
                reason=why.code,
            )
            for row, size, why in reasons
        ]  # fmt: skip
    return Evaluation(
        workloads=tuple(workload.name for workload in workloads),
        size_unit=workloads[0].size_unit,
        scale_models=(first.small, first.large),
        targets=tuple(targets),
        log_ratio=ratios,
        constants=constants,
        chosen_by=chosen_by,
        refused=refused,
    )


def _predicted(
    rule: str, models: Sequence[ScaleModels], targets: Sequence[int], growth: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, int, Note]]]:
    """IPC of shape (w, t), NaN where refused, and row, size and reason of each refusal."""
    ipc = np.full((len(models), len(targets)), np.nan)
    reasons = []
    for row, model in enumerate(models):
        predictions = predict(rule, model, targets, deviation_growth=float(growth[row]))
        for column, prediction in enumerate(predictions):
            if prediction.ipc is not None and prediction.ipc > 0:
                ipc[row, column] = prediction.ipc
            else:
                why = prediction.reason or make_note("prediction_not_positive")
                reasons.append((row, prediction.size, why))
    return ipc, reasons


def _constants(
    models: Sequence[ScaleModels], targets: Sequence[int], true: np.ndarray
) -> tuple[np.ndarray, str]:
    """The constant p for each workload, shape (w,), and how it was chosen."""
    if len(models) < LEAST_WORKLOADS:
        return np.full(len(models), DEVIATION_GROWTH), "constant that comes with Assay"
    errors = _candidate_errors(models, targets, true)
    total, counts = np.nansum(errors, axis=2), (~np.isnan(errors)).sum(axis=2)
    others = (total.sum(1, keepdims=True) - total) / np.maximum(counts.sum(1, keepdims=True) - counts, 1)
    return _CANDIDATES[_first_least(others)], "leave-one-workload-out"


def best_constant(
    workloads: Sequence[Workload], sizes: Sequence[int] | None = None, *, weak_scaling: bool = False
) -> float:
    """The p with the least mean error over all of ``workloads``, for use with other workloads.

    :data:`DEVIATION_GROWTH` with fewer than :data:`LEAST_WORKLOADS`. Raises as :func:`evaluate`.
    """
    if len(workloads) < LEAST_WORKLOADS:
        return DEVIATION_GROWTH
    models = [scale_models_of(workload, sizes, weak_scaling=weak_scaling) for workload in workloads]
    targets = sorted({size for workload in workloads for size in workload.ipc if size > models[0].large})
    true = np.array([[w.ipc.get(size, np.nan) for size in targets] for w in workloads])
    errors = _candidate_errors(models, targets, true)
    return float(_CANDIDATES[_first_least(np.nanmean(errors, axis=(1, 2))[:, None])[0]])


def _candidate_errors(models: Sequence[ScaleModels], targets: Sequence[int], true: np.ndarray) -> np.ndarray:
    """Error in percent of every candidate, shape (candidates, w, t)."""
    errors = []
    for candidate in _CANDIDATES:
        predicted, _ = _predicted(OUR_RULE, models, targets, np.full(len(models), candidate))
        errors.append(100.0 * np.abs(predicted / true - 1.0))
    return np.array(errors)


def _first_least(mean_errors: np.ndarray) -> np.ndarray:
    """Index of the least mean error of each column; rounding must not decide between equals."""
    index: np.ndarray = np.round(mean_errors, 9).argmin(axis=0)
    return index
