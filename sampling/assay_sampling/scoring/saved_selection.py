"""A selection read back from its document: enough to score it on another profile, or to hand it over.

The JSON form is a contract that scripts rely on: ``docs/selection-format.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from assay_sampling.documents.reading import WRITE_AGAIN, read_selection
from assay_sampling.documents.selection import RepresentativeEntry, SelectionDocument, SequenceHashes
from assay_sampling.errors import InputError
from assay_sampling.estimation.sample_design import SampleDesign
from assay_sampling.parameters import Unit, WeightKind
from assay_sampling.running.identity import Origin, origin_of
from assay_sampling.scoring.error_parts.cells import CellTimes
from assay_sampling.scoring.saved.design import design_of
from assay_sampling.scoring.saved.labels import (
    cell_times_from,
    labels_from,
    origins_from,
    right_labels_from,
)
from assay_sampling.scoring.saved.operations import launches_of_entries, operation_of
from assay_sampling.scoring.weights import BY_LAUNCHES, WeightRule, kinds_of, weights_of_kind


@dataclass(frozen=True)
class SavedSelection:
    """A selection read back from its document: enough to score it on another profile.

    Representatives are columns as in :class:`assay_sampling.scoring.selection.Representatives`;
    ``light_time_weight`` is None if one of them has none. ``weights`` says which of both are used where;
    ``design`` is None if the document does not say how they were drawn.
    """

    document: SelectionDocument
    sequence: SequenceHashes
    process: np.ndarray
    launch: np.ndarray
    weight: np.ndarray
    group: np.ndarray
    kernel: tuple[str, ...]
    grid: np.ndarray
    block: np.ndarray
    light_time_weight: np.ndarray | None = None
    weights: WeightRule = BY_LAUNCHES
    design: SampleDesign | None = None

    @property
    def unit(self) -> Unit:
        """What the groups divide."""
        return self.document.unit

    def by_launch(self) -> SavedSelection:
        """The launches of its representatives, each with the weight of its operation: a simulator runs
        launches. A selection by launch is its own."""
        if self.unit == "launch":
            return self
        return expanded(self)

    def operation_labels(self) -> tuple[str, ...]:
        """The operation of each launch of :meth:`by_launch`, for people; empty for a selection by launch."""
        if self.unit == "launch":
            return ()
        entries = [entry for group in self.document.groups for entry in group.representatives]
        owner, _ = launches_of_entries(entries)
        labels = ["" if (one := operation_of(entry)) is None else one.label() for entry in entries]
        return tuple(labels[index] for index in owner.tolist())

    def labels(self) -> np.ndarray | None:
        """Group of every launch, shape (n,); None if it was saved without. Raises InputError if they
        cannot be read or disagree with the groups."""
        try:
            counts = np.array([group.launches for group in self.document.groups], np.int64)
        except OverflowError as error:
            raise InputError(
                "selection", f"the launches of a group are too many ({error})", WRITE_AGAIN
            ) from error
        return labels_from(self.document.labels, counts)

    @property
    def origin(self) -> Origin:
        """What produced the data of the profile."""
        profile = self.document.profile
        return profile.origin or origin_of(synthetic=profile.synthetic)

    def origins(self) -> np.ndarray | None:
        """Where the label of every launch came from, shape (n,): numbers of ORIGINS; None where the selection
        has one level, or does not say."""
        return origins_from(self.document.labels)

    def right_labels(self) -> np.ndarray | None:
        """The group that counters give every launch, shape (n,), UNKNOWN_GROUP where nothing tells; None
        where the selection does not say."""
        return right_labels_from(self.document.labels, len(self.document.groups))

    def cell_times(self) -> CellTimes | None:
        """The light time by group, kernel and size; None where the selection does not say."""
        return cell_times_from(self.document.labels)

    @property
    def predicts_labels(self) -> bool:
        """Whether models may have put launches in groups."""
        return self.document.two_level is not None

    @property
    def weight_kinds(self) -> tuple[WeightKind, ...]:
        """The kinds of weights that it has, those of its own profile first."""
        return kinds_of(self.weights, self.light_time_weight)

    def weights_of(self, kind: WeightKind) -> np.ndarray:
        """Weights of one kind, shape (r,); raises ParameterError if it has none of it."""
        return weights_of_kind(kind, self.weights, self.weight, self.light_time_weight)

    @classmethod
    def read(cls, document: object, path: str) -> SavedSelection:
        """The selection of a document as :func:`json.loads` gives it.

        Raises InputError naming ``path`` and the first field that does not follow the format, or the
        version if it is another one.
        """
        return cls.of(read_selection(document, path), path)

    @classmethod
    def of(cls, document: SelectionDocument, path: str) -> SavedSelection:
        """The selection of a document; raises InputError for representatives that cannot be."""
        sequence = document.profile.sequence
        if sequence is None:
            cause = "it does not say which launches it was made on"
            raise InputError(path, cause, WRITE_AGAIN, field="profile.sequence")
        entries = [(index, e) for index, group in enumerate(document.groups) for e in group.representatives]
        try:
            if not entries:
                raise ValueError("it has no representatives")
            weight = _weights_of([e.weight for _, e in entries])
            by_light_time = [e.light_time_weight for _, e in entries if e.light_time_weight is not None]
            light_time = _weights_of(by_light_time) if len(by_light_time) == len(entries) else None
            kinds = document.weights
            rule = BY_LAUNCHES if kinds is None else WeightRule(kinds.here, kinds.elsewhere)
            if rule.elsewhere == "light_time" and light_time is None:
                raise ValueError("it is to be used with weights by light time, and has none")
            if rule.here == "light_time" and not _are_equal(weight, light_time):
                raise ValueError("weights.here is light_time, and its weights are not those by light time")
            if rule.elsewhere not in (rule.here, "light_time"):
                cause = f"weights.elsewhere is {rule.elsewhere}, but its own weights are by {rule.here}"
                raise ValueError(cause)
            _refuse_impossible(document, entries)
            return cls(
                document=document,
                sequence=sequence,
                process=np.array([e.process for _, e in entries]),
                launch=np.array([e.launch for _, e in entries]),
                weight=weight,
                group=np.array([index for index, _ in entries]),
                kernel=tuple(e.kernel for _, e in entries),
                grid=np.array([e.grid for _, e in entries], np.int64),
                block=np.array([e.block for _, e in entries], np.int64),
                light_time_weight=light_time,
                weights=rule,
                design=design_of(document, [e for _, e in entries]),
            )
        except (ValueError, OverflowError) as error:
            raise InputError(path, f"it is not a selection: {error}", WRITE_AGAIN) from error


def expanded(saved: SavedSelection) -> SavedSelection:
    """See :meth:`SavedSelection.by_launch`."""
    entries = [entry for group in saved.document.groups for entry in group.representatives]
    owner, launches = launches_of_entries(entries)
    by_time = saved.light_time_weight
    return replace(
        saved,
        process=saved.process[owner],
        launch=np.array([one.launch for one in launches]),
        weight=saved.weight[owner],
        group=saved.group[owner],
        kernel=tuple(one.kernel for one in launches),
        grid=np.array([one.grid for one in launches], np.int64),
        block=np.array([one.block for one in launches], np.int64),
        light_time_weight=None if by_time is None else by_time[owner],
        design=None,
    )


def _refuse_impossible(document: SelectionDocument, entries: list[tuple[int, RepresentativeEntry]]) -> None:
    """Raise ValueError for representatives that no selection has; ``entries`` are all, with their groups."""
    if any(group.launches > 0 and not group.representatives for group in document.groups):
        raise ValueError("a group of launches has no representative")
    if len({(e.process, e.launch) for _, e in entries}) < len(entries):
        raise ValueError("a launch is a representative twice")
    if not all(0 <= e.process < 1 << 31 and 0 <= e.launch < 1 << 40 for _, e in entries):
        raise ValueError("a process or launch is negative or too large")
    if not all(len(e.grid) == len(e.block) == 3 for _, e in entries):
        raise ValueError("a grid or block has other than three axes")
    if document.unit == "operation":
        _refuse_impossible_operations([e for _, e in entries])


def _refuse_impossible_operations(entries: list[RepresentativeEntry]) -> None:
    """Raise ValueError, or OverflowError, for launches of operations that no selection has."""
    if not all(e.operation and e.operation.launches for e in entries):
        raise ValueError("it is by operation, and a representative lacks its launches")
    launches = [(e.process, one) for e in entries if e.operation for one in e.operation.launches]
    if len({(process, one.launch) for process, one in launches}) < len(launches):
        raise ValueError("a launch is in two operations")
    if not all(0 <= one.launch < 1 << 40 for _, one in launches):
        raise ValueError("the launch of an operation is negative or too large")
    if not all(len(one.grid) == len(one.block) == 3 for _, one in launches):
        raise ValueError("a grid or block has other than three axes")
    np.array([(*one.grid, *one.block) for _, one in launches], np.int64)


def _are_equal(weight: np.ndarray, by_light_time: np.ndarray | None) -> bool:
    return by_light_time is not None and bool(np.allclose(weight, by_light_time, rtol=1e-9, atol=0.0))


def _weights_of(values: list[float]) -> np.ndarray:
    weights = np.array(values, np.float64)
    if not np.all(np.isfinite(weights)) or bool((weights < 0).any()):
        raise ValueError("a weight is negative or not a number")
    return weights
