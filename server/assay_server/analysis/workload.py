"""One workload: make each method's selection on one GPU and score it on all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from assay_report.figures.drawn import drawn
from assay_report.model.drawn import Drawn
from assay_report.model.report import Comparisons
from assay_report.model.scores import OperationsMatched, Row
from assay_sampling.documents.base import plain
from assay_sampling.documents.common import FairEntry, GroupSpreadEntry, NoteEntry
from assay_sampling.documents.selection import SelectionInReport
from assay_sampling.errors import AssayError, NotJoinableError, RefusedError
from assay_sampling.launches.alignment import MATCH_KINDS, MatchKind, align_window
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.by_operation import operation_profile, require_repeat, with_operations
from assay_sampling.methods.registry import select_and_try
from assay_sampling.notes.registry import make_note, note_of_error
from assay_sampling.parameters import WeightKind
from assay_sampling.scoring.by_operation import SelectedCalls, place_operations
from assay_sampling.scoring.carried import score_on_by_weights, widest_groups_there
from assay_sampling.scoring.placement import scored_cost
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.targets.matched import Target, Workload, counterparts
from assay_sampling.scoring.trials import trials_for
from assay_sampling.scoring.weights import mean_light_time
from assay_server.analysis import rows
from assay_server.analysis.comparisons.conditions import (
    cold_start_entries,
    locked_clock_entries,
    sm_share_entries,
)
from assay_server.analysis.comparisons.device_runs import MadeSelection, devices_of, match_facts
from assay_server.analysis.comparisons.whole_runs import noise_entries, overhead_entries, sequence_entries
from assay_server.analysis.rows import Cell, Method, cells_of, name_failed_run
from assay_server.analysis.run_memory import RunMemory
from assay_server.analysis.runs.loading import require_equal_sequences
from assay_server.analysis.runs.request import AnalysisRequest, RunData

LEVELS_KIND: MatchKind = "exact"
DEVICES_KIND: MatchKind = "name_block"


@dataclass
class WorkloadAnalysis:
    """Rows of one workload in the order of cells, then methods; its selections and the data of their
    pictures, by key; its comparisons."""

    rows: list[Row] = field(default_factory=list)
    selections: dict[str, SelectionInReport] = field(default_factory=dict)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    compared: Comparisons = field(default_factory=Comparisons)

    def add(self, other: WorkloadAnalysis) -> None:
        """Add the analysis of another workload."""
        self.rows += other.rows
        self.selections.update(other.selections)
        self.drawn.update(other.drawn)
        self.compared.add(other.compared)


def analyse_workload(request: AnalysisRequest, runs: Sequence[RunData]) -> WorkloadAnalysis:
    """Every method on every cell of one workload, and its ``runs`` compared over conditions and repeats.

    An AssayError about a cell or comparison becomes the status of its rows or entry.
    """
    methods = [Method(position, *method, request.seed) for position, method in enumerate(request.methods)]
    cells = cells_of(runs)
    work = _Work(request)
    for cell in sorted(cells, key=lambda cell: cell.device_kind != request.reference):
        for method in methods:
            work.select(cell, method)
        work.release()
    for cell in cells:
        for method in methods:
            work.score(cell, method)
        work.release()
    for row in work.rows.values():
        name_failed_run(row, request.failed_runs)
    made = [each for _, each in sorted(work.made.items())]
    return WorkloadAnalysis(
        rows=[work.rows[cell, method.position] for cell in cells for method in methods],
        selections={each.key: each.document for each in made},
        drawn={each.key: each.drawn for each in made},
        compared=compare_runs(runs, work.memory, made),
    )


def compare_runs(
    runs: Sequence[RunData], memory: RunMemory, made: Sequence[MadeSelection] = ()
) -> Comparisons:
    """Comparisons of the runs of one workload, and of its selections over them, GPU by GPU."""
    memory.selected |= {each.whole.run_id for each in made}
    comparisons = Comparisons()
    for device in devices_of(runs, memory):
        comparisons.sm_share.extend(sm_share_entries(device, made))
        comparisons.cold_start.extend(cold_start_entries(device, made))
        comparisons.locked_clock.extend(locked_clock_entries(device))
        comparisons.noise.extend(noise_entries(device))
        comparisons.overhead.extend(overhead_entries(device))
        comparisons.sequences.extend(sequence_entries(device))
    return comparisons


class _Work:
    """The state of one workload's analysis: rows by cell and method, selections by method."""

    def __init__(self, request: AnalysisRequest) -> None:
        self.request = request
        self.memory = RunMemory(request)
        self.rows: dict[tuple[Cell, int], Row] = {}
        self.made: dict[int, MadeSelection] = {}
        self.blocked: dict[int, Row] = {}
        self._workloads: dict[str, Workload] = {}

    def select(self, cell: Cell, method: Method) -> None:
        """Make the method's selection here, unless it was already made, or refused on its reference GPU."""
        if method.position in self.made or method.position in self.blocked:
            return
        row = self.rows[cell, method.position] = rows.empty_row(cell, method)
        with rows.status_of(row):
            runs = cell.runs_of(method.name, method.parameters)
            rows.rest_on(row, runs)
            rows.refuse_invalid(runs)
            selection = self._selection(cell, method, row)
            by_launch = selection.by_launch()
            self.made[method.position] = MadeSelection(
                cell,
                row,
                by_launch,
                calls=None if selection.operations is None else SelectedCalls.of(selection),
                document=exported(selection),
                drawn=drawn(by_launch, self.memory.launches(cell.whole)),
            )
        if row.status in ("refused", "failed") and cell.device_kind == self.request.reference:
            self.blocked[method.position] = row

    def _selection(self, cell: Cell, method: Method, row: Row) -> Selection:
        levels = {
            run.level: self.memory.launches(run) for run in cell.runs_of(method.name, method.parameters)
        }
        self._describe(row, cell.whole)
        if cell.detailed is not None and len(levels) == 2:
            window, light = levels["detailed"], levels["light"]
            alignments = {kind: align_window(window, light, kind) for kind in MATCH_KINDS}
            if len(cell.detailed.files) > 1:
                require_equal_sequences(window, alignments[LEVELS_KIND])
            row.match = match_facts(alignments, LEVELS_KIND, "levels")
        profile = Profile(
            detailed=levels.get("detailed"),
            light=levels.get("light"),
            repeats=self._repeats(cell, row) if "light" in levels else (),
        )
        operations = operation_profile(profile) if self._by_operation(cell) else None
        divided = profile if operations is None else operations.profile
        tries = trials_for(len(divided.whole))
        tried = select_and_try(method.name, divided, method.parameters, method.seed, tries)
        selection = tried.selection
        if operations is not None:
            selection = with_operations(selection, operations)
        rows.describe_selection(row, selection, self._key(cell, method), cell)
        rows.score(row, selection.evaluation, cell.whole)
        rows.give_interval(row, selection.interval, selection.why_no_interval)
        rows.describe_two_levels(row, selection)
        row.fair = FairEntry.model_validate(tried.fair.to_dict())
        return selection

    def _by_operation(self, cell: Cell) -> bool:
        return cell.workload in self.request.by_operation

    def _repeats(self, cell: Cell, row: Row) -> tuple[Launches, ...]:
        """The repeated light runs that hold the launches of the first: their mean is the light time."""
        first = self.memory.launches(cell.whole)
        repeats = []
        for run in cell.light_repeats:
            try:
                rows.refuse_invalid([run])
                repeat = self.memory.spare_launches(run)
                mean_light_time([first, repeat])
                if self._by_operation(cell):
                    require_repeat(repeat, first)
            except AssayError as error:
                note = note_of_error("light_repeat_unused", error, run=run.run_id)
                row.notes.append(NoteEntry.of(note))
            else:
                repeats.append(repeat)
        return tuple(repeats)

    def _key(self, cell: Cell, method: Method) -> str:
        earlier = sum(1 for made in self.made.values() if made.selection.method == method.name)
        return f"{cell.workload}/{method.name}" + (f"-{earlier + 1}" if earlier else "")

    def score(self, cell: Cell, method: Method) -> None:
        """Score the method's selection here, unless it was made here or this cell already refused it."""
        made = self.made.get(method.position)
        earlier = self.rows.get((cell, method.position))
        if earlier is not None and (made is None or earlier.status != "not applicable"):
            return
        row = self.rows[cell, method.position] = rows.empty_row(cell, method)
        with rows.status_of(row):
            if made is None:
                blocked = self.blocked[method.position]
                raise RefusedError(
                    f"{method.name} on {cell.device_kind}",
                    f"there is no selection to score: {blocked.status} on {blocked.device}",
                    "see the reason there",
                )
            self._score(cell, method, made, row)

    def _score(self, cell: Cell, method: Method, made: MadeSelection, row: Row) -> None:
        rows.same_selection(row, made.row)
        run = cell.light if made.whole.level == "light" else cell.detailed
        if run is None:
            raise RefusedError(
                f"{cell.workload} on {cell.device_kind}",
                f"the selection was made on a {made.whole.level} run, and this GPU has no such run",
                f"record the {made.whole.level} level there too",
            )
        rows.rest_on(row, [*made.cell.runs_of(method.name, method.parameters), run])
        rows.refuse_invalid([run])
        _refuse_same_records(made.whole, run)
        other = self.memory.launches(run)
        self._describe(row, run)
        if made.calls is not None:
            self._score_operations(made.calls, made.selection.weights.elsewhere, row, run, other)
        else:
            self._score_launches(made, row, run, other)
        row.model, row.window, row.unknown = made.row.model, made.row.window, made.row.unknown
        row.unseen_time_percent = made.row.unseen_time_percent

    def _score_operations(
        self, calls: SelectedCalls, elsewhere: WeightKind, row: Row, run: RunData, other: Launches
    ) -> None:
        placed = place_operations(calls, other)
        operation_scores = placed.scores()
        row.operations = OperationsMatched.model_validate(operation_scores.match.to_dict())
        row.notes += [NoteEntry.of(note) for note in operation_scores.notes]
        rows.score_elsewhere(row, operation_scores.scores, elsewhere, run)
        target = Target(
            name=run.run_id,
            workload=Workload.of_calls(calls.sequence),
            launches=other,
            cost=placed.placed.cost,
            counterpart=counterparts(len(calls.sequence), operation_scores.match),
        )
        row.part_error_percent = target.score_calls(calls, elsewhere).part_error_percent

    def _score_launches(self, made: MadeSelection, row: Row, run: RunData, other: Launches) -> None:
        alignments = self.memory.aligned(made.whole, run)
        row.match = match_facts(alignments, DEVICES_KIND, "GPUs")
        reference = self.memory.launches(made.whole)
        scores, _ = score_on_by_weights(
            made.selection, other, DEVICES_KIND, reference=reference, alignments=alignments
        )
        used = made.selection.weights.elsewhere
        rows.score_elsewhere(row, scores, used, run)
        target = Target(
            name=run.run_id,
            workload=self._workload(made.whole),
            launches=other,
            cost=scored_cost(other, None, scores[used].quantity),
            counterpart=counterparts(len(reference), alignments[DEVICES_KIND]),
        )
        row.part_error_percent = target.score(made.selection, used).part_error_percent
        widest = widest_groups_there(
            made.selection, reference, other, alignments[DEVICES_KIND], scores[used].quantity
        )
        row.widest_groups = [GroupSpreadEntry.model_validate(each.to_dict()) for each in widest]

    def _workload(self, run: RunData) -> Workload:
        """The kernels and grids of the launches that selections were made on; found once for all of them."""
        if run.run_id not in self._workloads:
            self._workloads[run.run_id] = Workload.of(self.memory.launches(run))
        return self._workloads[run.run_id]

    def _describe(self, row: Row, run: RunData) -> None:
        rows.describe_launches(row, self.memory.facts(run), run)
        rows.describe_ranks(row, self.memory.facts(run))

    def release(self) -> None:
        """Free launches that no later row needs: selections by operation are scored by what they call."""
        self.memory.keep_only({made.whole.run_id for made in self.made.values() if made.calls is None})
        self._workloads.clear()


def _refuse_same_records(reference: RunData, run: RunData) -> None:
    """Raise NotJoinableError if one recording was given for two GPUs: scoring it would be meaningless."""
    if run.content_hash and run.content_hash == reference.content_hash and run.run_id != reference.run_id:
        raise NotJoinableError(
            "same_content",
            f"{reference.run_id} on {reference.device_kind} and {run.run_id} on {run.device_kind}",
            "they hold the same records, so one recording was given for both GPUs",
            "give each GPU its own recording",
        )


MOST_REPRESENTATIVES = 2000


def exported(selection: Selection) -> SelectionInReport:
    """The selection's document, without groups if there are too many representatives.

    A note in the document then says that the same runs can make the selection again.
    """
    representatives, nothing = selection.representatives, selection.representatives.row[:0]
    too_many = len(representatives.row) > MOST_REPRESENTATIVES
    shown = selection if not too_many else replace(
        selection,
        representatives=replace(
            representatives,
            row=nothing, group=nothing, weight=nothing, process=nothing, launch=nothing, kernel=(),
        ),
        group_launches=nothing,
        operations=selection.operations and replace(selection.operations, rows=nothing),
        instruction_share=None,
    )  # fmt: skip
    document = SelectionInReport.model_validate(plain(shown.document().to_dict()))
    if too_many:
        most = MOST_REPRESENTATIVES
        note = make_note("groups_left_out", representatives=len(representatives.row), most=most)
        document.groups_left_out, document.note = len(selection.group_launches), NoteEntry.of(note)
    return document
