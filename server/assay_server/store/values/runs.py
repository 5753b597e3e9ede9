"""Runs and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from assay_core.records.campaign import RunState
from assay_core.records.upload import Bundle
from assay_core.records.work import CommandSource, RecordedSource
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.placement import Placement
from assay_server.campaign_file.slices.chosen import SlicePlan
from assay_server.store.model import Hold, Run
from assay_server.store.values.fields import Row, documents_of, failure_of, flags_of, shallow

# What the need of a run is made of, besides whether it brings a bundle.
of_need = attrgetter("campaign_id", "profiler", "device_key", "synthetic", "condition", "placement")


def run_of(row: Row) -> Run:
    """The run of a row; raises StorageError if its plan or placement cannot be read."""
    values = dict(row)
    values["condition"] = Condition(**row["condition"])
    if row["command"] is not None:
        values["command"] = command_of(row["command"])
    path, recorded_time = values.pop("recorded_path"), values.pop("recorded_time")
    values["recorded"] = RecordedSource(Path(path), recorded_time) if path else None
    values["counters"] = tuple(row["counters"])
    values["state"] = RunState(row["state"])
    values["failure"] = failure_of(row["failure"])
    values["flags"] = flags_of(row["flags"])
    values["plan"] = _plan(row)
    values["placement"] = _placement(row)
    values["holds"] = tuple(Hold(hold) for hold in row["holds"])
    return Run(**values)


def _plan(row: Row) -> SlicePlan | None:
    try:
        return None if row["plan"] is None else SlicePlan.from_document(row["plan"])
    except ValueError as error:
        cause = "its plan of slices is damaged, or of a newer release"
        raise StorageError(f"run {row['run_id']}", cause, "restore a backup") from error


def _placement(row: Row) -> Placement:
    try:
        return Placement.from_document(row["placement"])
    except ValueError as error:
        cause = "what it asks of its place is damaged, or of a newer release"
        raise StorageError(f"run {row['run_id']}", cause, "restore a backup") from error


def run_values(run: Run) -> dict[str, Any]:
    """The run without its holds, which only ``set_holds`` changes, together with the lane of its slices."""
    values = shallow(run)
    recorded = values.pop("recorded")
    del values["holds"]
    return {
        **values,
        "state": str(run.state),
        "counters": list(run.counters),
        "recorded_path": str(recorded.path) if recorded is not None else "",
        "recorded_time": recorded is not None and recorded.recorded_time,
        "plan": None if run.plan is None else run.plan.to_document(),
        "placement": run.placement.to_document(),
        **documents_of(run, "condition", "command", "failure", "flags"),
    }


def new_run_values(run: Run) -> dict[str, Any]:
    """The row of a new run, with its holds."""
    return {**run_values(run), "holds": [str(hold) for hold in run.holds]}


def command_of(document: Mapping[str, Any]) -> CommandSource:
    """The command of a JSON document."""
    bundle = document.get("bundle")
    read = {"argv": tuple(document["argv"]), "bundle": None if bundle is None else Bundle(**bundle)}
    return CommandSource(**{**document, **read})
