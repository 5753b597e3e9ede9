"""How often intervals hold the true total of the recording that launches were drawn from, and how wide they
are: by today's rule, and by Student's t over the drawn launches, which releases before used.

A cell is a recording and a method. The method is asked once for its design (groups, and launches drawn of
each); the bench then draws again and again by that design. Each cell checks that the interval of the method's
own selection is the one that the bench computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay_sampling.estimation.known_design import errors_of_design, interval_of_errors, reach_of_errors
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import whole_cost
from assay_sampling.methods.registry import select
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.evaluation import instructions_of
from assay_sampling.scoring.selection import Selection
from tests.fidelity.design_draws import Design, Draws, draws_of
from tests.fidelity.heavy_tails import heavy_tailed_profiles
from tests.fidelity.section import Effort, Section, shared_data

_DRAWS = {Effort.SHORT: 300, Effort.FULL: 2000}
_LEAST_COVERAGE = {Effort.SHORT: 0.90, Effort.FULL: 0.93}
_MOST_COVERAGE, _MOST_WIDTH = 0.98, 1.3
# From this skewness of the draws on, an interval may hold the truth more often and be wider.
_SKEWED = 0.5
_SEED = 20261122
_SEEDS = 10
_KINETO = (
    "kineto/a100_alexnet_79_kernels.json.gz",
    "kineto/a100_input_dims_8568_kernels.json.gz",
    "kineto/v100_input_dims_9876_kernels.json.gz",
    "kineto/v100_training_19370_kernels.json.gz",
)
_RECORDINGS = {
    Effort.SHORT: _KINETO[:1],
    Effort.FULL: (
        *_KINETO,
        "nsys/a100_nerf_1106_kernels.sqlite",
        "nsys/h100_2gpu_window_4010_kernels.sqlite.gz",
        "ncu/synthetic_v100_5000_raw_page.csv.gz",
        "sieve/syn5000_raw.csv",
    ),
}


@dataclass(frozen=True)
class Method:
    """A method as it is asked; ``ratio``: it projects by instructions; ``before``: parameters for the
    design that releases before had, if it was another."""

    label: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ratio: bool = False
    before: Mapping[str, Any] | None = None


_BY_COST = (
    Method("random", "random"),
    Method("random, dominating=whole", "random", {"dominating": "whole"}),
    Method("stratified", "stratified", before={"dominating": "drawn"}),
    Method("stratified, dominating=drawn", "stratified", {"dominating": "drawn"}),
    Method(
        "stratified, groups=signature",
        "stratified",
        {"groups": "signature"},
        before={"groups": "signature", "dominating": "drawn"},
    ),
    Method("systematic", "systematic"),
    Method("stem", "stem"),
)
_BY_INSTRUCTIONS = (
    Method("random, estimator=ratio", "random", {"estimator": "ratio"}, ratio=True),
    Method(
        "stratified, estimator=ratio",
        "stratified",
        {"estimator": "ratio"},
        ratio=True,
        before={"estimator": "ratio", "dominating": "drawn"},
    ),
    Method("sieve, launches_per_group=2", "sieve", {"launches_per_group": 2}, ratio=True),
    Method("sieve, launches_per_group=5", "sieve", {"launches_per_group": 5}, ratio=True),
)
_MUST_PRINT = ("random", "stratified", "stem")


@dataclass(frozen=True)
class Cell:
    """The draws of one cell: shares held and widths, by the earlier and by today's rule; None if withheld."""

    recording: str
    method: str
    drawn: int
    before: tuple[float, float | None] | None
    after: tuple[float, float | None] | None
    skewness: float

    def row(self) -> tuple[str, ...]:
        """The cell as the table has it."""
        texts = [self.recording, self.method, f"{self.drawn:,}"]
        for found in (self.before, self.after):
            width = None if found is None else found[1]
            texts.append("withheld" if found is None else f"{100 * found[0]:.1f}")
            texts.append("" if width is None else f"{width:.2f}")
        return (*texts, f"{self.skewness:.1f}", "100" if self.after is None else "0")

    def missed(self, least: float) -> Iterator[str]:
        """The bounds that this cell does not keep."""
        where = f"{self.recording}, {self.method}"
        if self.after is None:
            if self.method in _MUST_PRINT:
                yield f"{where}: the interval is withheld"
            return
        held, width = self.after
        if held < least:
            yield f"{where}: {100 * held:.1f} % of the intervals hold the truth"
        if abs(self.skewness) > _SKEWED or width is None:
            return
        if held > _MOST_COVERAGE:
            yield f"{where}: {100 * held:.1f} % hold the truth, and the draws are not skewed"
        if width > _MOST_WIDTH:
            yield f"{where}: the half width is {width:.2f} x (1.96 x deviation)"


def section(effort: Effort) -> Section:
    """The table of all cells."""
    cells = list(_cells(effort))
    withheld = sum(cell.after is None for cell in cells)
    return Section(
        title="Intervals: coverage",
        about=(
            f"{_DRAWS[effort]:,} draws a cell; kineto and nsys are real recordings, ncu, sieve and made "
            "synthetic; before: Student's t over the drawn launches (stem: the known variance). Width: "
            "median half width / (1.96 x root mean square error of the draws), empty where every draw "
            f"projects the truth; the design withholds the interval of {withheld} of {len(cells)} cells."
        ),
        columns=(
            "recording", "method", "launches", "held before, %", "width before", "held, %", "width",
            "skewness of the draws", "withheld, %",
        ),
        rows=[cell.row() for cell in cells],
        missed=[text for cell in cells for text in cell.missed(_LEAST_COVERAGE[effort])],
    )  # fmt: skip


def _cells(effort: Effort) -> Iterator[Cell]:
    for recording, profile in {**_recorded(effort), **heavy_tailed_profiles()}.items():
        counted = instructions_of(profile.whole) is not None
        for method in (*_BY_COST, *(_BY_INSTRUCTIONS if counted else ())):
            yield measured(recording, profile, method, effort)


def _recorded(effort: Effort) -> dict[str, Profile]:
    folder, found = shared_data(), {}
    for name in _RECORDINGS[effort] if folder is not None else ():
        launches = read_launches(folder / name)
        light = launches.metadata.level == "light"
        short = name.split(".")[0]
        found[short] = Profile(light=launches) if light else Profile(detailed=launches)
    return found


def measured(recording: str, profile: Profile, method: Method, effort: Effort) -> Cell:
    """One cell; raises AssertionError if the method's own interval is not the one that is measured."""
    selection = select(method.name, profile, method.parameters, _SEED)
    if method.name == "systematic":
        return _systematic(recording, profile, selection, effort)
    design = _design(profile, method, selection)
    drawn = draws_of(design, _DRAWS[effort], _SEED)
    after = None if selection.interval is None else drawn.held(*_reach(design, selection))
    earlier = drawn
    if method.before is not None:
        earlier_selection = select(method.name, profile, method.before, _SEED)
        earlier = draws_of(_design(profile, method, earlier_selection), _DRAWS[effort], _SEED)
    before = after if method.name == "stem" else earlier.held_before()
    return Cell(
        recording,
        method.label,
        len(selection.representatives.row),
        None if before is None else _in_deviations(before, earlier),
        None if after is None else _in_deviations(after, drawn),
        drawn.skewness if drawn.spreads else 0.0,
    )


def _design(profile: Profile, method: Method, selection: Selection) -> Design:
    assert selection.labels is not None
    drawn = np.bincount(selection.representatives.group, minlength=len(selection.group_launches))
    amounts = instructions_of(profile.whole) if method.ratio else None
    return Design(whole_cost(profile).values, selection.labels, drawn, amounts)


def _reach(design: Design, selection: Selection) -> tuple[float, float]:
    """How far the selection's interval reaches below and above what it projects."""
    assert selection.interval is not None
    scores, interval = selection.evaluation, selection.interval
    if interval.basis == "known_variance":
        half = interval.high - scores.projected
        return half, half
    errors = errors_of_design(design.costs, design.labels, design.drawn, design.amounts)
    cost = float(design.costs[selection.representatives.row].sum())
    expected = interval_of_errors(scores.projected, errors, total=scores.total, drawn_cost=cost)
    assert np.isclose([interval.low, interval.high], [expected.low, expected.high], rtol=1e-9).all()
    return reach_of_errors(errors)


def _systematic(recording: str, profile: Profile, selection: Selection, effort: Effort) -> Cell:
    """Equal spacing, from starts drawn by the bench; the reach is that of selections that are not cut off at
    the cost of their launches."""
    costs = whole_cost(profile).values
    launches = len(selection.representatives.row)
    below, above = np.inf, 0.0
    for seed in range(_SEEDS):
        other = select("systematic", profile, {}, seed)
        assert other.interval is not None
        above = other.interval.high - other.evaluation.projected
        if other.interval.low > costs[other.representatives.row].sum():
            below = other.evaluation.projected - other.interval.low
    spacing = len(costs) / launches
    starts = np.random.default_rng(_SEED).random((_DRAWS[effort], 1)) * spacing
    drawn_cost = costs[(starts + np.arange(launches) * spacing).astype(np.int64)].sum(axis=1)
    zeros = np.zeros(len(starts))
    drawn = Draws(float(costs.sum()), drawn_cost * spacing, drawn_cost, zeros)
    after = _in_deviations(drawn.held(below, above), drawn)
    return Cell(recording, "systematic", launches, None, after, drawn.skewness if drawn.spreads else 0.0)


def _in_deviations(found: tuple[float, float], draws: Draws) -> tuple[float, float | None]:
    return found[0], found[1] / (1.96 * draws.deviation) if draws.spreads else None
