"""The table of a report: a cell for each workload, kind of GPU and condition, with a row for each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from assay_report.model.common import ErrorEntry, FlagEntry, Outcome, OverlapEntry
from assay_report.model.compared import Compared, SmShareEntry
from assay_report.model.runs import ProvenanceEntry
from assay_report.model.scores import AssumptionEntry, ChosenModel, LabelModel, Row, SelectedOn, Unknown
from assay_sampling.documents.base import plain
from assay_sampling.documents.by_method import Accuracies, TwoLevels
from assay_sampling.documents.common import (
    ConditionEntry,
    NoteEntry,
    Scores,
    VerdictEntry,
    WeightedScores,
)
from assay_sampling.documents.selection import IntervalEntry
from assay_sampling.errors import AssayError, RefusedError, RunFailedError
from assay_sampling.estimation.intervals import Interval
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.overlap import CONCURRENT_SHARE_PERCENT, Overlap, overlap_of
from assay_sampling.launches.table import Condition
from assay_sampling.methods.registry import needs
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.running.gpu_names import names_another
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.selection import Selection
from assay_sampling.verdicts.facts import VerdictFacts
from assay_sampling.verdicts.rules import verdict_of
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData


@dataclass(frozen=True)
class Cell:
    """The runs of one workload on one kind of GPU under one condition, at most one per level.

    ``light_repeats`` are the further light runs: they are not scored, and count in the mean light time.
    """

    workload: str
    device_kind: str
    condition: Condition
    detailed: RunData | None = None
    light: RunData | None = None
    notes: tuple[Note, ...] = ()
    light_repeats: tuple[RunData, ...] = ()

    @property
    def whole(self) -> RunData:
        """The run that holds the whole workload: the light one if there is one."""
        run = self.light or self.detailed
        if run is None:
            raise ValueError("a cell has at least one run")
        return run

    def runs_of(self, method: str, parameters: Mapping[str, Any]) -> tuple[RunData, ...]:
        """The runs that a selection by ``method`` would use.

        If its parameters let it look only at names, order and cost, it uses the light run, if there is
        one. Raises ParameterError for a method, parameter or value that does not exist.
        """
        method_needs = needs(method, parameters, verb="select")
        if method_needs is not None and method_needs.nothing:
            return (self.whole,)
        return tuple(run for run in (self.detailed, self.light) if run is not None)


def cells_of(runs: Sequence[RunData]) -> list[Cell]:
    """The cells of one workload, in the order in which the campaign file first names them.

    Live runs under other conditions make no cells: they are compared with the baseline.
    """
    members: dict[tuple[str, Condition], list[RunData]] = {}
    for run in runs:
        if not run.compares and run.level != "bare":
            members.setdefault((run.device_kind, run.condition), []).append(run)
    return [_cell(each) for each in members.values()]


def _cell(members: Sequence[RunData]) -> Cell:
    by_repeat = sorted(members, key=lambda run: run.repeat)
    detailed = [run for run in by_repeat if run.level == "detailed"]
    light = [run for run in by_repeat if run.level == "light"]
    return Cell(
        members[0].workload,
        members[0].device_kind,
        members[0].condition,
        detailed=next(iter(detailed), None),
        light=next(iter(light), None),
        notes=tuple(
            make_note("repeats_unused", repeats=len(runs), level=runs[0].level, first_run=runs[0].run_id)
            for runs in (detailed, light)
            if len(runs) > 1
        ),
        light_repeats=tuple(light[1:]),
    )


def refuse_mixed_marks(request: AnalysisRequest) -> None:
    """Raises RefusedError if one campaign has both synthetic and measured runs."""
    for run in request.runs:
        if run.synthetic != request.synthetic:
            word = {True: "synthetic", False: "measured"}
            raise RefusedError(
                f"campaign {request.campaign_id}",
                f"it is {word[request.synthetic]}, but its run {run.run_id} is {word[run.synthetic]}",
                "put synthetic and measured data into separate campaigns",
            )


def refuse_invalid(runs: Sequence[RunData]) -> None:
    """Raises RefusedError naming the first flag that invalidates one of the runs."""
    for run in runs:
        for name, detail, invalidates in run.flags:
            if invalidates:
                shown = f"{name!r} ({detail})" if detail else repr(name)
                cause = f"it carries the flag {shown}, so its numbers cannot be trusted"
                raise RefusedError(f"run {run.run_id}", cause, "make the run again")


@dataclass(frozen=True)
class Method:
    """A method as the campaign asks for it; ``position`` distinguishes two uses of one method."""

    position: int
    name: str
    parameters: Mapping[str, Any]
    seed: int


def empty_row(cell: Cell, method: Method) -> Row:
    """A row with its identity and no numbers yet."""
    return Row(
        workload=cell.workload,
        device=cell.device_kind,
        condition=ConditionEntry.of(cell.condition),
        method=method.name,
        asked_parameters=plain(method.parameters),
        parameters=plain(method.parameters),
        seed=method.seed,
        rank=cell.whole.rank,
        launches=cell.whole.launches if cell.whole.rank is None else None,
        notes=[NoteEntry.of(note) for note in cell.notes],
    )


def rest_on(entry: Row | Compared, runs: Sequence[RunData]) -> None:
    """Name the runs that the entry's numbers use, and their flags."""
    for run in runs:
        if run.run_id not in entry.runs:
            entry.runs += [run.run_id, *([run.cycles.run_id] if run.cycles is not None else [])]
            entry.flags += flags_of(run)


def flags_of(run: RunData) -> list[FlagEntry]:
    """The run's validity flags."""
    return [
        FlagEntry(run_id=run.run_id, name=name, detail=detail, invalidates=invalidates)
        for name, detail, invalidates in run.flags
    ]


def flag(entry: Row | Compared | ProvenanceEntry, run_id: str, name: str, detail: str) -> None:
    """Add a flag to an entry."""
    entry.flags.append(FlagEntry(run_id=run_id, name=name, detail=detail))


@dataclass(frozen=True)
class LaunchFacts:
    """Counts of a run's launches and their processes, the names of their GPUs, and how much they overlap.

    ``windows``: the notes that they are a window of the program.
    """

    launches: int
    kernels: int
    overlap: Overlap | None
    gpus: tuple[str, ...] = ()
    processes: int = 1
    windows: tuple[Note, ...] = ()

    @classmethod
    def of(cls, launches: Launches) -> LaunchFacts:
        gpus = tuple(dict.fromkeys(device.name for device in launches.devices() if device.name))
        windows = tuple(note for note in launches.notes if note.code in ("window_is_range", "light_window"))
        return cls(
            len(launches), launches.kernels(), overlap_of(launches), gpus, launches.processes(), windows
        )


def describe_launches(entry: Row | SmShareEntry, facts: LaunchFacts, run: RunData) -> None:
    """Fill in which launches the row or entry is about."""
    entry.launches = facts.launches
    entry.kernels = facts.kernels
    if names_another(run.device_kind, facts.gpus):
        detail = f"recorded on {', '.join(facts.gpus)}, but the campaign file says {run.device_kind}"
        flag(entry, run.run_id, "other_gpu_recorded", detail)
    if facts.overlap is None:
        return
    entry.overlap = OverlapEntry.model_validate(facts.overlap.to_dict())
    if facts.overlap.concurrent:
        detail = f"{facts.overlap.overlap_percent:.2f} % of the launches' time overlaps"
        detail += f", more than {CONCURRENT_SHARE_PERCENT:g} %"
        flag(entry, run.run_id, "concurrent_launches", detail)


def describe_ranks(row: Row, facts: LaunchFacts) -> None:
    """Fill in of how many processes the row's launches are; notes say that several are taken together, and
    that the launches are the program's own window."""
    row.processes = facts.processes
    row.notes += [NoteEntry.of(window) for window in facts.windows]
    if facts.processes > 1:
        row.notes.append(NoteEntry.of(make_note("ranks_together", processes=facts.processes)))


def describe_selection(row: Row, selection: Selection, key: str, made_on: Cell) -> None:
    """Fill in which selection the row scores: where it was made, its size and all parameters."""
    row.selected_on = SelectedOn(device=made_on.device_kind, condition=ConditionEntry.of(made_on.condition))
    row.selection = key
    row.parameters = plain(selection.parameters)
    row.unit = selection.unit
    row.groups = len(selection.group_launches)
    row.representatives = len(selection.representatives.row)
    row.verdict = VerdictEntry.of(selection.verdict)


_OF_SELECTION = ("selected_on", "selection", "parameters", "unit", "groups", "representatives", "verdict")


def same_selection(row: Row, of: Row) -> None:
    """As :func:`describe_selection`, for a selection that another row describes."""
    for name in _OF_SELECTION:
        setattr(row, name, getattr(of, name))


def score(row: Row, evaluation: Evaluation, run: RunData) -> None:
    """Fill in the selection's scores on the row's launches, which are those of ``run``."""
    row.weights = evaluation.weights
    give_interval(row, evaluation.interval, evaluation.interval_reason)
    assumption = evaluation.assumption
    row.interval_assumption = None if assumption is None else AssumptionEntry(**assumption.to_dict())
    row.not_vouched_percent = evaluation.not_vouched_percent
    scores = Scores.model_validate(plain(evaluation.to_dict()))
    for name in Scores.model_fields:
        setattr(row, name, getattr(scores, name))
    _judge(row, evaluation)
    free = len(evaluation.free_rows)
    if free:
        detail = f"{free:,} of {row.representatives:,} cost nothing in {evaluation.quantity}"
        flag(row, run.run_id, "representative_without_cost", detail)


def _judge(row: Row, evaluation: Evaluation) -> None:
    """Fill in the verdict on scores away from where the selection was made, whose truth is known here."""
    here = SelectedOn(device=row.device, condition=row.condition)
    if row.selected_on is None or row.selected_on == here:
        return
    facts = VerdictFacts(
        error_percent=evaluation.error_percent,
        group_error_percent=evaluation.group_error_percent,
        elsewhere=True,
        groups=row.groups,
        kernels=row.kernels,
        representatives=row.representatives or 0,
        windows=() if row.verdict is None else tuple(row.verdict.windows),
    )
    row.verdict = VerdictEntry.of(verdict_of(facts))


def give_interval(row: Row, interval: Interval | None, reason: Note | None) -> None:
    """Fill in the interval of the projected total, or why there is none."""
    row.interval = None if interval is None else IntervalEntry.model_validate(plain(interval.to_dict()))
    row.interval_reason = None if reason is None else NoteEntry.of(reason)


def score_elsewhere(
    row: Row, by_weights: Mapping[WeightKind, Evaluation], used: WeightKind, run: RunData
) -> None:
    """Fill in the scores away from where the selection was made: with each kind of weights, and by those
    that are ``used``."""
    score(row, by_weights[used], run)
    row.by_weights = {
        kind: WeightedScores.model_validate(plain(scores.weighted_dict()))
        for kind, scores in by_weights.items()
    }


@contextmanager
def status_of(entry: Outcome) -> Iterator[None]:
    """An AssayError inside becomes the status of this row or entry."""
    try:
        yield
    except AssayError as error:
        fail(entry, error)


def fail(entry: Outcome, error: AssayError) -> None:
    """Turn an error about this row or entry into its status, a reason for people, and the reason's values, so
    that the report continues."""
    entry.status, entry.reason, entry.error = "failed", error.text, ErrorEntry.of(error)
    if isinstance(error, RefusedError):
        entry.status = "refused"
        if error.code == "no_counters":
            entry.status, entry.reason = "not applicable", error.cause


def describe_two_levels(row: Row, selection: Selection) -> None:
    """Fill in ``model``, ``window``, ``unknown`` and the unseen share; nothing if the selection has only one
    level.

    ``model`` holds the accuracies of the chosen model and, under ``models``, accuracies and errors of all.
    It is None if no model was trained: the window covers the whole workload, or labels decide no group.
    """
    levels = selection.extra.get("two_level")
    if levels is None:
        return
    facts = TwoLevels.model_validate(plain(levels))
    share = facts.unknown.launches / max(int(selection.group_launches.sum()), 1)
    row.model = _chosen_model(facts)
    row.window = facts.window
    row.unknown = Unknown(launches=facts.unknown.launches, groups=facts.unknown.groups, percent=100.0 * share)
    row.unseen_time_percent = facts.unseen_time_percent


def _chosen_model(facts: TwoLevels) -> ChosenModel | None:
    chosen, models = facts.chosen_model, facts.models
    if chosen is None or not models:
        return None
    return ChosenModel(
        chosen=chosen,
        **{name: getattr(models[chosen], name) for name in Accuracies.model_fields},
        agreement_percent=facts.agreement_percent,
        ambiguous_percent=facts.ambiguous_percent,
        classified_launches=facts.classified_launches,
        models=[LabelModel(name=name, **dict(model)) for name, model in models.items()],
    )


def name_failed_run(row: Row, failed_runs: Sequence[FailedRun]) -> None:
    """If counters are missing because the run that should have measured them failed, give that reason."""
    if row.error is None or row.error.code != "no_counters":
        return
    identity = (row.workload, row.device, row.condition)
    for run in failed_runs:
        where = (run.workload, run.device_kind, ConditionEntry.of(run.condition))
        if run.level == "detailed" and where == identity:
            row.status = "failed"
            row.reason = f"no counters: the detailed run {run.run_id} has no data: {run.reason}"
            row.error = ErrorEntry.of(RunFailedError(run.run_id, run.reason))
            return
