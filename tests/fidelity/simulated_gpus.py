"""One application on three simulated GPUs: errors of selections made on one of them, by weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.fidelity.section import Effort, Section, shared_data
from tests.support.sampling.published import PUBLISHED_PKS
from tests.support.sampling.saved_scores import score_saved

MADE_ON = "SM7_QV100"
SCORED_ON = ("SM75_RTX2060", "SM86_RTX3070")
GROUPS = range(3, 13)
METHODS = ("pks", "sieve", "stem", "stratified")
MOST_GROUP_ERROR_PERCENT = 25.0
_COLUMNS = (
    "method", "groups", "GPU", "launches simulated",
    "total, own weights (%)", "group, own weights (%)", "total, light time (%)", "group, light time (%)",
)  # fmt: skip


def section(effort: Effort) -> Section:
    """Selections on the QV100, scored on the other two: published PKS with 3 to 12 groups, then defaults."""
    folder = shared_data()
    rows: list[tuple[str, ...]] = []
    missed: list[str] = []
    if folder is not None:
        runs = {gpu: read_run(folder, gpu) for gpu in (MADE_ON, *SCORED_ON)}
        for name, parameters in _selections(effort):
            found, texts = _scores(runs, name, parameters)
            rows += found
            missed += texts
    return Section(
        "Across simulated GPUs",
        f"`infer`, 139 launches simulated whole by Accel-Sim on three GPUs, selected on {MADE_ON} in active "
        "cycles, which are the light time there too; own weights are by launches, in Sieve by "
        "instructions. Bounds, for PKS as published with a given number of groups: the group error by "
        f"light time is at most {MOST_GROUP_ERROR_PERCENT:g} % and below that of the own weights.",
        _COLUMNS,
        rows,
        missed,
    )


def read_run(folder: Path, gpu: str) -> Launches:
    """The launches of `infer` on one of the GPUs."""
    return read_launches(folder / "accel_sim_more" / f"infer.{gpu}.out.gz")


def _selections(effort: Effort) -> Iterator[tuple[str, dict[str, Any]]]:
    for k in GROUPS if effort is Effort.FULL else (GROUPS[0], GROUPS[-1]):
        yield "pks", {"k": k, **PUBLISHED_PKS}
    for name in METHODS:
        yield name, {}


def _scores(
    runs: dict[str, Launches], name: str, parameters: dict[str, Any]
) -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows of one selection, and the bounds that it missed."""
    made = registry.select(name, Profile(detailed=runs[MADE_ON]), parameters)
    saved = SavedSelection.of(made.document(labels=True), name)
    rows, missed = [], []
    for gpu in SCORED_ON:
        own, timed = (
            score_saved(saved, runs[gpu], weights=kind) for kind in (saved.weights.here, "light_time")
        )
        groups = len(made.group_launches)
        before, after = own.group_error_percent or 0.0, timed.group_error_percent or 0.0
        rows.append(
            (
                name + (" (k given)" if parameters else ""), str(groups), gpu, str(len(saved.launch)),
                f"{own.signed_error_percent:+.1f}", f"{before:.1f}",
                f"{timed.signed_error_percent:+.1f}", f"{after:.1f}",
            )
        )  # fmt: skip
        if parameters and not after < min(before, MOST_GROUP_ERROR_PERCENT):
            missed.append(f"{name}, {groups} groups on {gpu}: group error {before:.1f} % -> {after:.1f} %")
    return rows, missed
