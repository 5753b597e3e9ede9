"""A selection: groups of launches with their representatives and weights.

The JSON form is a contract that scripts rely on: ``docs/selection-format.md``. Weights are fixed on the
profile where the selection was made; scoring it elsewhere uses them unchanged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay_sampling.documents.base import plain
from assay_sampling.documents.common import NoteEntry, VerdictEntry
from assay_sampling.documents.selection import (
    SELECTION_VERSION,
    GroupEntry,
    LabelsEntry,
    ProfilePart,
    RepresentativeEntry,
    SelectionDocument,
    SequenceHashes,
    WeightsEntry,
)
from assay_sampling.estimation.intervals import NO_INTERVAL_FIXED_RULE, Interval
from assay_sampling.estimation.sample_design import Drawing, SampleDesign
from assay_sampling.launches.alignment import sequence_totals_hash, totals_only
from assay_sampling.launches.in_memory import EXACT_IDENTITY, NAME_BLOCK_IDENTITY, Launches, sequence_hash
from assay_sampling.notes.registry import Note, in_unit
from assay_sampling.parameters import Unit, WeightKind
from assay_sampling.running.identity import Origin
from assay_sampling.scoring.error_parts.cells import CellTimes
from assay_sampling.scoring.evaluation import Evaluation, doubts
from assay_sampling.scoring.saved.labels import (
    Checkpoints,
    labels_document,
)
from assay_sampling.scoring.saved.operations import (
    SelectedOperations,
    operation_of,
    written_shape,
)
from assay_sampling.scoring.saved.verdict_facts import verdict_of_selection
from assay_sampling.scoring.weights import BY_LAUNCHES, WeightRule, kinds_of, weights_of_kind
from assay_sampling.verdicts.expected import ExpectedErrors
from assay_sampling.verdicts.verdict import Verdict


@dataclass(frozen=True)
class ProfileSummary:
    """The profile that a selection was made on. The sequence hashes tell whether another one is the same.

    The hashes of totals compare with recordings that know only the numbers of blocks and threads;
    ``totals_only`` says that this is such a recording. ``checkpoints`` tell where another one differs.
    ``ranks``: how many ranks of one job, each a file, were joined.
    """

    launches: int
    kernels: int
    devices: tuple[str, ...]
    sources: tuple[str, ...]
    origin: Origin = "measured"
    sequence_exact: str = ""
    sequence_name_block: str = ""
    sequence_exact_totals: str = ""
    sequence_name_block_totals: str = ""
    totals_only: bool = False
    notes: tuple[Note, ...] = ()
    checkpoints: Checkpoints | None = None
    ranks: int = 1

    @classmethod
    def of(cls, launches: Launches) -> ProfileSummary:
        return cls(
            launches=len(launches),
            kernels=launches.kernels(),
            devices=tuple(launches.device_labels()),
            sources=launches.sources,
            origin=launches.metadata.origin,
            sequence_exact=sequence_hash(launches, EXACT_IDENTITY),
            sequence_name_block=sequence_hash(launches, NAME_BLOCK_IDENTITY),
            sequence_exact_totals=sequence_totals_hash(launches, "exact"),
            sequence_name_block_totals=sequence_totals_hash(launches, "name_block"),
            totals_only=totals_only(launches, "grid") or totals_only(launches, "block"),
            notes=launches.notes,
            checkpoints=Checkpoints.of(launches),
            ranks=launches.ranks,
        )

    @property
    def synthetic(self) -> bool:
        return self.origin == "synthetic"

    def document(self) -> ProfilePart:
        """As a selection's document has it."""
        return ProfilePart(
            launches=self.launches,
            kernels=self.kernels,
            devices=list(self.devices),
            sources=list(self.sources),
            ranks=self.ranks,
            origin=self.origin,
            synthetic=self.synthetic,
            simulated=self.origin == "simulated",
            sequence=self.sequence(),
            notes=[NoteEntry.of(note) for note in self.notes],
        )

    def sequence(self) -> SequenceHashes:
        """The hashes of what was launched, as a selection's document has them."""
        return SequenceHashes(
            exact=self.sequence_exact,
            name_block=self.sequence_name_block,
            exact_totals=self.sequence_exact_totals,
            name_block_totals=self.sequence_name_block_totals,
            totals_only=self.totals_only,
        )


@dataclass(frozen=True)
class Representatives:
    """Representatives as columns, each of shape (r,).

    ``row`` is the row in the profile the selection was made on (in order of process and launch),
    ``group`` the 0-based group, ``kernel`` the demangled names, ``grid`` and ``block`` shape (r, 3) with
    -1 where the recording knows only totals (then the total is in x) or nothing. ``draws``: how many draws
    met each, 0 if it was taken whole; None unless they were drawn in proportion to light time or its root.
    """

    row: np.ndarray
    group: np.ndarray
    weight: np.ndarray
    process: np.ndarray
    launch: np.ndarray
    kernel: tuple[str, ...]
    grid: np.ndarray
    block: np.ndarray
    draws: np.ndarray | None = None

    @classmethod
    def at(
        cls,
        launches: Launches,
        rows: np.ndarray,
        groups: np.ndarray,
        weights: np.ndarray,
        draws: np.ndarray | None = None,
    ) -> Representatives:
        """Representatives at the given rows of a profile; all arrays of shape (r,)."""
        chosen = launches.take(rows)
        shapes = [chosen.column(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
        return cls(
            row=np.asarray(rows, np.int64),
            group=np.asarray(groups, np.int64),
            weight=np.asarray(weights, np.float64),
            process=chosen.column("process"),
            launch=chosen.column("launch"),
            kernel=tuple(launches.names[i] for i in chosen.column("kernel_id").tolist()),
            grid=np.stack(shapes[:3], axis=1).astype(np.int64),
            block=np.stack(shapes[3:], axis=1).astype(np.int64),
            draws=None if draws is None else np.asarray(draws, np.int64),
        )

    def entries(
        self, light_time_weights: np.ndarray | None = None, light_time: np.ndarray | None = None
    ) -> list[RepresentativeEntry]:
        """One entry a representative, in order; ``sim_id`` is the 1-based id of simulators."""
        by_light_time, time = (
            [None] * len(self.row) if values is None else values.tolist()
            for values in (light_time_weights, light_time)
        )
        return [
            RepresentativeEntry(
                process=int(self.process[i]),
                launch=int(self.launch[i]),
                sim_id=int(self.launch[i]) + 1,
                kernel=self.kernel[i],
                grid=written_shape(self.grid[i].tolist()),
                block=written_shape(self.block[i].tolist()),
                weight=float(self.weight[i]),
                draws=None if self.draws is None else int(self.draws[i]),
                light_time_weight=by_light_time[i],
                light_time=time[i],
            )
            for i in range(len(self.row))
        ]


@dataclass(frozen=True)
class Selection:
    """Groups with representatives and weights, and their scores on the profile they were made on.

    ``group_launches`` has shape (g,); ``instruction_share`` shape (g,) or None where instructions were
    not measured; ``labels`` the group of every launch, shape (n,), is part of the JSON form on request.
    ``label_origins``, shape (n,), say where labels came from
    (:data:`assay_sampling.scoring.error_parts.decomposition.ORIGINS`), for two levels, and ``right_labels``
    which groups counters give, UNKNOWN_GROUP where nothing tells; ``cell_times`` is the light time by group,
    kernel and size, None without a light run. All are written with the labels.
    ``interval`` is that of the projected total; if it is None, ``interval_reason`` says why. ``warnings``
    are the method's own doubts. ``extra`` holds results that only one method reports (``sweep``,
    ``pca_components``, ``two_level``). ``light_time_weights``, shape (r,), are the weights by light time
    (:mod:`assay_sampling.scoring.weights`), None without a light run; ``weights`` says which are used where.
    ``drawing`` says how representatives were drawn; if at random, ``design`` has what intervals on other GPUs
    need, filled in by :func:`assay_sampling.methods.base.with_design`. ``operations`` is set where groups
    divide operations: every n then counts operations. ``expected``: errors to expect on another GPU, filled
    in by :func:`assay_sampling.methods.base.with_expected`.
    """

    method: str
    parameters: Mapping[str, Any]
    seed: int
    profile: ProfileSummary
    representatives: Representatives
    group_launches: np.ndarray
    evaluation: Evaluation
    instruction_share: np.ndarray | None = None
    labels: np.ndarray | None = None
    label_origins: np.ndarray | None = None
    right_labels: np.ndarray | None = None
    cell_times: CellTimes | None = None
    interval: Interval | None = None
    interval_reason: Note | None = NO_INTERVAL_FIXED_RULE
    warnings: tuple[Note, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    light_time_weights: np.ndarray | None = None
    weights: WeightRule = BY_LAUNCHES
    drawing: Drawing = "rule"
    design: SampleDesign | None = None
    operations: SelectedOperations | None = None
    expected: ExpectedErrors | None = None

    @property
    def unit(self) -> Unit:
        """What the groups divide."""
        return "launch" if self.operations is None else "operation"

    def by_launch(self) -> Selection:
        """The launches of its representatives, each with the weight and group of its operation: what stands
        for what where conditions are compared launch by launch. A selection by launch is its own."""
        if self.operations is None:
            return self
        operations, chosen = self.operations.operations, self.representatives
        parts = operations.rows_of(chosen.row)
        owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate(parts)
        order = np.argsort(rows)
        rows, owner = rows[order], owner[order]
        labels = None if self.labels is None else self.labels[operations.of_launch]
        groups, by_time = len(self.group_launches), self.light_time_weights
        return replace(
            self,
            profile=ProfileSummary.of(operations.source),
            representatives=Representatives.at(
                operations.source, rows, chosen.group[owner], chosen.weight[owner]
            ),
            group_launches=self.group_launches if labels is None else np.bincount(labels, minlength=groups),
            labels=labels,
            label_origins=None,
            right_labels=None,
            cell_times=None,
            light_time_weights=None if by_time is None else by_time[owner],
            design=None,
            operations=None,
        )

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on doubtful scores."""
        chosen = self.representatives
        notes = doubts(self.evaluation, chosen.row, chosen.process, chosen.launch)
        return notes if self.operations is None else tuple(in_unit(note, "operation") for note in notes)

    @property
    def weight_kinds(self) -> tuple[WeightKind, ...]:
        """The kinds of weights that it has, those of its own profile first."""
        return kinds_of(self.weights, self.light_time_weights)

    def weights_of(self, kind: WeightKind) -> np.ndarray:
        """Weights of one kind, shape (r,); raises ParameterError if it has none of it."""
        return weights_of_kind(kind, self.weights, self.representatives.weight, self.light_time_weights)

    @property
    def why_no_interval(self) -> Note | None:
        """The reason for a missing interval; None if there is an interval."""
        return None if self.interval is not None else self.interval_reason

    def document(self, *, labels: bool = False) -> SelectionDocument:
        """The selection as it is written; ``docs/selection-format.md``. With ``labels`` it can be scored by
        groups elsewhere, and grows with launches: they are one text, however many there are."""
        because = self.why_no_interval
        draft = SelectionDocument.model_validate(
            {
                "version": SELECTION_VERSION,
                **({} if self.operations is None else {"unit": "operation"}),
                "method": self.method,
                "parameters": plain(self.parameters),
                "seed": self.seed,
                "profile": self.profile.document(),
                "weights": WeightsEntry(here=self.weights.here, elsewhere=self.weights.elsewhere),
                "drawing": self.drawing,
                "launches_without_time": self._launches_without_time(),
                "groups": self._groups(),
                **self.evaluation.to_dict(),
                "interval": None if self.interval is None else self.interval.to_dict(),
                "interval_reason": None if because is None else NoteEntry.of(because),
                "score_notes": [NoteEntry.of(note) for note in self.notes],
                **({"warnings": [NoteEntry.of(note) for note in self.warnings]} if self.warnings else {}),
                **plain(self.extra),
                **({"labels": self._labels()} if labels and self.labels is not None else {}),
                **({} if self.operations is None else {"operations": self.operations.document()}),
                "expected_elsewhere": None if self.expected is None else self.expected.to_dict(),
            }
        )
        return draft.model_copy(update={"verdict": VerdictEntry.of(verdict_of_selection(draft))})

    @property
    def verdict(self) -> Verdict:
        """Whether to trust it on another GPU."""
        return verdict_of_selection(self.document())

    def _launches_without_time(self) -> int | None:
        design = self.design
        return None if design is None or design.light_time is None else design.launches_without_time

    def _groups(self) -> list[GroupEntry]:
        by_group: list[list[RepresentativeEntry]] = [[] for _ in range(len(self.group_launches))]
        for group, entry in zip(self.representatives.group.tolist(), self._entries(), strict=True):
            by_group[group].append(entry)
        share, design = self.instruction_share, self.design
        return [
            GroupEntry(
                id=index,
                launches=int(self.group_launches[index]),
                instruction_share=None if share is None else float(share[index]),
                kernels=None if design is None else int(design.kernels[index]),
                cost_cov=None if design is None else float(design.cost_cov[index]),
                representatives=entries,
            )
            for index, entries in enumerate(by_group)
        ]

    def _entries(self) -> list[RepresentativeEntry]:
        time = None if self.design is None else self.design.light_time
        entries = self.representatives.entries(self.light_time_weights, time)
        if self.operations is None:
            return entries
        parts = self.operations.entries()
        return [
            entry.model_copy(update={"operation": part}) for entry, part in zip(entries, parts, strict=True)
        ]

    def _labels(self) -> LabelsEntry:
        assert self.labels is not None
        groups, checkpoints = len(self.group_launches), self.profile.checkpoints
        return labels_document(
            self.labels,
            groups,
            checkpoints,
            origins=self.label_origins,
            right=self.right_labels,
            times=self.cell_times if self.operations is None else None,
        )

    def to_csv(self) -> str:
        """One line a representative, by operation one a launch of it, for a simulator's job list; then a last
        column names the operation."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["group", "group_launches", "process", "launch", "sim_id", "kernel", "grid_x", "grid_y",
             "grid_z", "block_x", "block_y", "block_z", "weight", "light_time_weight",
             *([] if self.operations is None else ["operation"])]
        )  # fmt: skip
        for group, entry in zip(self.representatives.group.tolist(), self._entries(), strict=True):
            of = operation_of(entry)
            for one in [entry] if entry.operation is None else entry.operation.launches:
                writer.writerow(
                    [group, int(self.group_launches[group]), entry.process, one.launch, one.sim_id,
                     one.kernel, *one.grid, *one.block, entry.weight, entry.light_time_weight,
                     *([] if of is None else [of.label()])]
                )  # fmt: skip
        return text.getvalue()
