"""Figures of what the verbs on recordings and simulations print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from assay_report.figures.drawn import Grouping, grouped
from assay_report.figures.figure import Figure
from assay_report.figures.kinds import composition, tiers, timeline, within_launch
from assay_report.model.drawn import Drawn
from assay_report.texts import LAUNCHES, OPERATIONS
from assay_sampling.errors import AssayError
from assay_sampling.files.reading import read_head
from assay_sampling.launches.profile import Profile
from assay_sampling.parameters import Unit
from assay_sampling.projection.runs import series_of
from assay_sampling.projection.series_csv import looks_like_series, read_series
from assay_sampling.scale_model.prediction import predict_workload
from assay_sampling.scale_model.rules import RULES
from assay_sampling.scale_model.scaling_table import Workload
from assay_sampling.scoring.by_operation import place_saved_operations
from assay_sampling.scoring.elsewhere import placed_on
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog, looks_like_intervals

SelectionFigure = Literal["launches", "groups", "tiers"]
_UNITS = {"ns": "time", "cycle": "cycles"}


def of_selection(
    profile: Profile, selection: Selection, document: Mapping[str, Any], kind: SelectionFigure
) -> Figure:
    """The launches in order, the groups' kernels, or Sieve's tiers of a selection."""
    if kind == "tiers":
        return tiers.of_selection(document)
    rows = profile.whole if selection.operations is None else selection.operations.operations.launches
    data = grouped(Grouping.of(selection), rows)
    return _of_groups(selection.method, data, kind, selection.unit)


def of_saved(saved: SavedSelection, profile: Profile, kind: Literal["launches", "groups"]) -> Figure:
    """The launches in order, or the groups' kernels, of a saved selection on a recording of its launches.

    By operation those of its operations; what matches nothing is drawn as a group after the last.

    Raises what :func:`assay_sampling.scoring.elsewhere.score_saved_by_weights` raises for one that does not,
    or by operation :func:`assay_sampling.scoring.by_operation.score_saved_operations`.
    """
    if saved.unit == "operation":
        placement = place_saved_operations(saved, profile.whole)
        groups = len(saved.document.groups) + (not placement.every_operation_matched)
        data = grouped(Grouping.placed(placement.placed, groups), placement.operations.launches)
        return _of_groups(saved.document.method, data, kind, saved.unit)
    placed = placed_on(saved, profile.whole, None)
    data = grouped(Grouping.placed(placed, len(saved.document.groups)), profile.whole)
    return _of_groups(saved.document.method, data, kind, saved.unit)


def of_profile(profile: Profile) -> Figure:
    """The launches of a profile in order, with a lane for each kernel."""
    data = grouped(Grouping.by_kernel(profile.whole), profile.whole, with_composition=False)
    title = f"{_what(data)} by launch{_mark(data)}"
    return timeline.timeline("launches", title, data, by_kernel=True)


def _of_groups(method: str, data: Drawn, kind: SelectionFigure, unit: Unit) -> Figure:
    words = LAUNCHES if unit == "launch" else OPERATIONS
    if kind == "groups":
        quantity = _UNITS.get(data.cost.unit, data.cost.quantity)
        what = "Kernels" if unit == "launch" else "Operations"
        title = f"{what} in the groups of {method}{_mark(data)}"
        return composition.group_composition("groups", title, data.composition, quantity, words=words)
    title = f"{_what(data)} by {unit}, {method}{_mark(data)}"
    return timeline.timeline("launches", title, data, words=words)


def _what(data: Drawn) -> str:
    return data.by_launch.quantity if data.by_launch else data.cost.quantity


def _mark(data: Drawn) -> str:
    return " (synthetic)" if data.synthetic else ""


def of_projection(document: Mapping[str, Any], file: Path, intervals: Path | None) -> Figure:
    """The samples that ``assay project`` projected from, and where rules stop."""
    return within_launch.over_time(list(_sampled(document, file, intervals)))


def _sampled(
    document: Mapping[str, Any], file: Path, intervals: Path | None
) -> Iterator[within_launch.Sampled]:
    head = read_head(file)
    if looks_like_series(head):
        yield _launch(document, file.name, read_series(file))
    elif looks_like_intervals(head):
        yield _launch(document, file.name, series_of(next(IntervalLog(file).series())))
    elif intervals is not None:
        by_uid = {entry["uid"]: entry for entry in document["launches"]}
        for sampled in SimulatorRun(file, intervals).launches():
            entry = by_uid.get(sampled.launch.uid)
            if sampled.series is not None and entry is not None:
                label = f"launch {sampled.launch.uid}: {sampled.launch.kernel}"
                yield _launch(entry, label, series_of(sampled.series))


def _launch(entry: Mapping[str, Any], label: str, series: Any) -> within_launch.Sampled:
    stops = {entry["rule"]: entry["stop_cycles"]} if entry.get("stop_cycles") is not None else {}
    for would in entry.get("would_stop", ()):
        if would["stop_cycles"] is not None:
            stops.setdefault(
                f"{would['rule']}, {would['parameter']} = {would['value']:g}", would["stop_cycles"]
            )
    return within_launch.Sampled(label, series, entry.get("rule") or "", stops)


def other_rules(
    workload: Workload, document: Mapping[str, Any], *, sizes: list[int] | None, weak_scaling: bool
) -> dict[str, dict[int, float]]:
    """What the other rules predict for the sizes of a prediction: IPC by size, by rule."""
    targets = [each["size"] for each in document["predictions"]]
    curves: dict[str, dict[int, float]] = {}
    for rule in RULES:
        if rule == document["rule"]:
            continue
        try:
            made: dict[str, Any] = predict_workload(
                workload, targets, rule=rule, sizes=sizes, weak_scaling=weak_scaling
            ).to_dict()
        except AssayError:  # a rule that needs what the table lacks
            continue
        curve = {each["size"]: each["ipc"] for each in made["predictions"] if each["ipc"] is not None}
        if curve:
            curves[rule] = curve
    return curves
