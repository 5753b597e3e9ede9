"""Rows of a report: one for each workload, GPU, condition and method, plain values only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from assay_sampling.errors import AssayError, RefusedError
from assay_sampling.evaluation import Evaluation
from assay_sampling.gpu_names import names_another
from assay_sampling.launches import Launches
from assay_sampling.overlap import CONCURRENT_SHARE_PERCENT, Overlap, overlap_of
from assay_sampling.selection import Selection
from assay_server.analysis.cells import Cell
from assay_server.analysis.request import FailedRun, RunData

Status = Literal["ok", "refused", "failed", "not applicable"]
NO_COUNTERS = "PKS not applicable: no counters"

Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method as the campaign asks for it; ``position`` tells two uses of one method apart."""

    position: int
    name: str
    parameters: Mapping[str, Any]
    seed: int


def empty_row(cell: Cell, method: Method) -> Row:
    """A row with its identity and no numbers yet."""
    return {
        "workload": cell.workload,
        "device": cell.device_kind,
        "condition": cell.condition.to_dict(),
        "method": method.name,
        "asked_parameters": plain(method.parameters),
        "parameters": plain(method.parameters),
        "seed": method.seed,
        "status": "ok",
        "reason": "",
        "selected_on": None,
        "selection": None,
        "launches": cell.whole.launches,
        "kernels": None,
        "groups": None,
        "representatives": None,
        "cost": None,
        "error_percent": None,
        "signed_error_percent": None,
        "group_error_percent": None,
        "speedup": None,
        "speedup_instructions": None,
        "speedup_launches": None,
        "weighted_cov_percent": None,
        "match": None,
        "model": None,
        "window": None,
        "unknown": None,
        "overlap": None,
        "flags": [],
        "runs": [],
        "notes": list(cell.notes),
    }


def rest_on(row: Row, runs: Sequence[RunData]) -> None:
    """Name the runs that the row's numbers rest on, and what is flagged about them."""
    for run in runs:
        if run.run_id not in row["runs"]:
            row["runs"] += [run.run_id, *([run.cycles.run_id] if run.cycles is not None else [])]
            row["flags"] += flags_of(run)


def flags_of(run: RunData) -> list[dict[str, Any]]:
    """The run's validity flags as plain values."""
    return [
        {"run_id": run.run_id, "name": name, "detail": detail, "invalidates": invalidates}
        for name, detail, invalidates in run.flags
    ]


@dataclass(frozen=True)
class LaunchFacts:
    """Counts of a run's launches, on which GPUs they ran by name, and how much they overlap in time."""

    launches: int
    kernels: int
    overlap: Overlap | None
    gpus: tuple[str, ...] = ()

    @classmethod
    def of(cls, launches: Launches) -> LaunchFacts:
        gpus = tuple(dict.fromkeys(device.name for device in launches.devices() if device.name))
        return cls(len(launches), launches.kernels(), overlap_of(launches), gpus)


def describe_launches(row: Row, facts: LaunchFacts, run: RunData) -> None:
    """Say which launches the row is about."""
    row["launches"] = facts.launches
    row["kernels"] = facts.kernels
    if names_another(run.device_kind, facts.gpus):
        detail = f"recorded on {', '.join(facts.gpus)}, and called {run.device_kind}"
        row["flags"].append(
            {"run_id": run.run_id, "name": "other_gpu_recorded", "detail": detail, "invalidates": False}
        )
    if facts.overlap is None:
        return
    row["overlap"] = facts.overlap.to_dict()
    if facts.overlap.concurrent:
        detail = f"{facts.overlap.overlap_percent:.2f} % of the launches' time overlaps"
        row["flags"].append(
            {"run_id": run.run_id, "name": "concurrent_launches",
             "detail": f"{detail}, more than {CONCURRENT_SHARE_PERCENT:g} %", "invalidates": False}
        )  # fmt: skip


def describe_selection(row: Row, selection: Selection, key: str, made_on: Cell) -> None:
    """What selection the row scores: where it was made, and its size and full parameters."""
    row["selected_on"] = {"device": made_on.device_kind, "condition": made_on.condition.to_dict()}
    row["selection"] = key
    row["parameters"] = plain(selection.parameters)
    row["groups"] = len(selection.group_launches)
    row["representatives"] = len(selection.representatives.row)


def score(row: Row, evaluation: Evaluation, run: RunData) -> None:
    """The scores of the selection on the row's launches, which are those of ``run``."""
    row.update(plain(evaluation.to_dict()))
    free = len(evaluation.free_rows)
    if free:
        detail = f"{free:,} of {row['representatives']:,} cost nothing in {evaluation.quantity}"
        name = "representative_without_cost"
        row["flags"].append({"run_id": run.run_id, "name": name, "detail": detail, "invalidates": False})


def fail(row: Row, error: AssayError) -> None:
    """Turn an error about this row into its status and reason; the report goes on."""
    status: Status = "failed"
    reason = str(error)
    if isinstance(error, RefusedError):
        status = "refused"
        if error.cause == NO_COUNTERS:
            status, reason = "not applicable", NO_COUNTERS
    row["status"], row["reason"] = status, reason


def name_failed_run(row: Row, failed_runs: Sequence[FailedRun]) -> None:
    """Where counters are missing because the run that was to measure them failed, say that instead."""
    if row["reason"] != NO_COUNTERS:
        return
    identity = (row["workload"], row["device"], row["condition"])
    for run in failed_runs:
        where = (run.workload, run.device_kind, run.condition.to_dict())
        if run.level == "detailed" and where == identity:
            row["status"] = "failed"
            row["reason"] = f"no counters: the detailed run {run.run_id} has no data: {run.reason}"
            return


def plain(value: Any) -> Any:
    """``value`` as JSON has it: no NumPy types, no tuples; a number that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
