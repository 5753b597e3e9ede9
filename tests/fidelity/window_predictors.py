"""What of a two-level selection predicts its errors on other GPUs: rank correlations over many windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.scoring.error_parts.cells import Cells, kernel_and_size
from assay_sampling.scoring.selection import Selection
from tests.fidelity.section import Effort, Section, shared_data
from tests.fidelity.two_levels_on_gpus import errors_on, recordings

LENGTHS_PERCENT = (0.25, 1.0, 2.5)
STARTS = {Effort.SHORT: 2, Effort.FULL: 10}
BY_DEFAULT = "by kernel and size (default)"
GROUPS: dict[str, dict[str, Any]] = {
    BY_DEFAULT: {},
    "of several kernels (published)": {"mixing": "allowed", "representative": "first"},
}
EXPECTED_GROUP = "group error to expect elsewhere"
# With the group error, of the groups by default; with published groups much is the luck of one launch.
LEAST_CORRELATION = 0.7
_COLUMNS = (
    "groups",
    "predictor",
    "smallest / %",
    "largest / %",
    "with the total error",
    "with the group error",
)


def section(effort: Effort) -> Section:
    """The table; without shared data one of no rows."""
    windows = len(LENGTHS_PERCENT) * STARTS[effort]
    about = (
        f"Synthetic: `three_gpus` of the shared data, {windows} windows on the V100 (0.25, 1 and 2.5 % of "
        "the launches at evenly spread beginnings), two levels, weights by light time. Spearman's rank "
        "correlation of what is known where the selection was made with the mean error on the RTX 2060 and "
        "the RTX 3070, of the total and by kernel and size; a dash: the predictor is the same for all "
        f"windows. Bound: by default the {EXPECTED_GROUP} has at least {LEAST_CORRELATION:g} with the group "
        "error."
    )
    title = "What predicts the errors of two levels"
    data = shared_data()
    if data is None or not (data / "three_gpus").is_dir():
        return Section(title, f"{about} The shared data is not here.", _COLUMNS, ())
    rows, missed = [], []
    for name, parameters in GROUPS.items():
        predictors, total, groups = _windows(data, parameters, STARTS[effort])
        for predictor, values in predictors.items():
            with_total, with_groups = _correlation(values, total), _correlation(values, groups)
            rows.append(
                (
                    name,
                    predictor,
                    f"{min(values):.2f}",
                    f"{max(values):.2f}",
                    _text(with_total),
                    _text(with_groups),
                )
            )
            if (name, predictor) == (BY_DEFAULT, EXPECTED_GROUP) and (with_groups or 0.0) < LEAST_CORRELATION:
                missed.append(f"{name}: the {predictor} has {_text(with_groups)} with the group error")
        rows.append((name, "error of the total", f"{min(total):.2f}", f"{max(total):.2f}", "", ""))
        rows.append((name, "error by kernel and size", f"{min(groups):.2f}", f"{max(groups):.2f}", "", ""))
    return Section(title, about, _COLUMNS, rows, missed)


def _windows(
    data: Path, parameters: dict[str, Any], starts: int
) -> tuple[dict[str, list[float]], list[float], list[float]]:
    """The predictors of each window by name, and the mean errors of its selection on the other GPUs."""
    light, detailed, *others = recordings(data)
    predictors: dict[str, list[float]] = {}
    total, groups = [], []
    for percent in LENGTHS_PERCENT:
        count = round(len(light) * percent / 100)
        for index, begin in enumerate(np.linspace(0, len(light) - count, starts).astype(int).tolist()):
            profile = Profile(detailed=detailed.slice(begin, count), light=light)
            made = select("pks", profile, parameters, index)
            for name, value in _known(made, profile).items():
                predictors.setdefault(name, []).append(value)
            errors = [errors_on(made, light, other.column("cycles_gpc_avg")) for other in others]
            total.append(sum(one.total for one in errors) / len(errors))
            groups.append(sum(one.groups for one in errors) / len(errors))
    return predictors, total, groups


def _known(made: Selection, profile: Profile) -> dict[str, float]:
    """What may predict the errors, in percent, from the selection and the light run alone."""
    assert made.expected is not None
    assert made.labels is not None
    assert profile.light is not None
    time = profile.light.floats("duration_ns")
    cells = Cells.of(made.labels, kernel_and_size(profile.light))
    covered = np.isin(cells.of_launch, cells.of_launch[made.representatives.row])
    facts = made.extra["two_level"]
    return {
        "time in unseen signatures": facts["unseen_time_percent"],
        "time of kernels and sizes without a representative": 100 * float(time[~covered].sum() / time.sum()),
        "total error to expect elsewhere": made.expected.error_percent,
        EXPECTED_GROUP: made.expected.group_error_percent,
    }


def _correlation(values: list[float], errors: list[float]) -> float | None:
    if max(values) - min(values) < 1e-9 or max(errors) - min(errors) < 1e-9:
        return None
    return float(spearmanr(values, errors).statistic)


def _text(correlation: float | None) -> str:
    return "-" if correlation is None else f"{correlation:+.2f}"
