"""Selections by operation: any method, on operations in place of launches.

Both levels of a profile become operations of the light run: launches of the detailed window take their
operation from the launch of the light run that they match, so counters need no ranges of their own. An
operation of which the window holds only a part is left out of it, and so is a slice of a window with gaps
that does not hold the launches of the light run.

Source: docs/concepts.md, "Operations".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.errors import RefusedError
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, Alignment, align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.levels import source_of
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.ranges import LaunchRange
from assay_sampling.launches.table import (
    METADATA_KEY,
    OPERATION_FIELDS,
    Names,
    counter_columns,
    launch_schema,
)
from assay_sampling.methods import registry
from assay_sampling.methods.base import whole_cost, with_expected
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import Note, in_unit, make_note
from assay_sampling.operations.collapsing import Operations, operations_of
from assay_sampling.operations.strata import stratified
from assay_sampling.parameters import Unit
from assay_sampling.scoring.saved.operations import SelectedOperations
from assay_sampling.scoring.selection import ProfileSummary, Selection
from assay_sampling.scoring.weights import light_time_of_profile, mean_light_time
from assay_sampling.verdicts.expected import Sizes


@dataclass(frozen=True)
class OperationProfile:
    """A profile whose rows are operations, the operations of its whole workload, and what is doubtful."""

    profile: Profile
    whole: Operations
    notes: tuple[Note, ...] = ()


def select_by_unit(
    unit: Unit, method: str, profile: Profile, parameters: Mapping[str, Any], seed: int = 0
) -> Selection:
    """Make a selection by launch or by operation. Raises as :func:`assay_sampling.methods.registry.select`,
    and by operation as :func:`operation_profile`."""
    if unit == "launch":
        return registry.select(method, profile, parameters, seed)
    return select_operations(operation_profile(profile), method, parameters, seed)


def select_operations(
    of: OperationProfile, method: str, parameters: Mapping[str, Any], seed: int = 0
) -> Selection:
    """Make a selection by the name of its method on operations."""
    return with_operations(registry.select(method, of.profile, parameters, seed), of)


def try_operations(
    of: OperationProfile, method: str, parameters: Mapping[str, Any], seed: int, count: int
) -> Tried:
    """As :func:`select_operations`, with ``count`` further tries of the method."""
    tried = registry.select_and_try(method, of.profile, parameters, seed, count)
    return replace(tried, selection=with_operations(tried.selection, of))


def with_operations(selection: Selection, of: OperationProfile) -> Selection:
    """A selection that was made on the rows of ``of.profile``, with the operations that they are and the
    errors to expect of it where operations, not launches, scale from one GPU to another."""
    time = light_time_of_profile(of.profile)
    if time is None:
        time = whole_cost(of.profile).values
    selection = with_expected(selection, of.profile, sizes_of(of.whole))
    return replace(
        selection,
        profile=ProfileSummary.of(of.whole.source),
        interval_reason=None
        if selection.interval_reason is None
        else in_unit(selection.interval_reason, "operation"),
        warnings=(*(in_unit(note, "operation") for note in selection.warnings), *of.notes),
        operations=SelectedOperations(of.whole, selection.representatives.row, time),
    )


def sizes_of(operations: Operations) -> Sizes:
    """What the errors to expect are computed from: operator, most threads of such a call, and what is called,
    on any calling thread."""
    launches = operations.launches
    ordinals: dict[tuple[str, str, str], int] = {}
    numbers = [
        ordinals.setdefault((one.kind, one.name, one.shapes), len(ordinals)) for one in operations.identities
    ]
    called = np.array(numbers, np.int64)[operations.identity]
    threads = np.ones(len(ordinals), np.int64)
    np.maximum.at(threads, called, launches.column("grid_x").astype(np.int64))
    return Sizes(launches.column("operator_id"), threads[called], called)


def operation_profile(profile: Profile) -> OperationProfile:
    """The operations of a profile, put in strata.

    Raises RefusedError for a recording that knows no operations, and MisalignedError for levels that do not
    hold the same launches, or of which no slice does.
    """
    whole = stratified(operations_of(profile.whole))
    if profile.light is None:
        return OperationProfile(Profile(detailed=whole.launches), whole)
    repeats = tuple(_alike(run, whole).launches for run in profile.repeats)
    if profile.detailed is None:
        return OperationProfile(Profile(None, whole.launches, repeats), whole)
    window, notes = _of_window(profile.detailed, whole)
    return OperationProfile(Profile(window.launches, whole.launches, repeats), whole, notes)


def require_repeat(run: Launches, first: Launches) -> None:
    """Raise RefusedError or MisalignedError for a repeated light run that does not hold the operations of the
    first: their mean would have no meaning."""
    whole = stratified(operations_of(first))
    mean_light_time([whole.launches, _alike(run, whole).launches])


def _alike(run: Launches, whole: Operations) -> Operations:
    """The operations of a repeated light run, under the strata of the first."""
    return _under_strata_of(operations_of(run), whole)


def _under_strata_of(operations: Operations, whole: Operations) -> Operations:
    names = whole.launches.column("kernel_id")
    _, first = np.unique(whole.identity, return_index=True)
    of_identity = {
        replace(whole.identities[int(whole.identity[row])], thread=0): whole.launches.names[int(names[row])]
        for row in first.tolist()
    }
    names_of_strata = [of_identity.get(replace(one, thread=0), one.label()) for one in operations.identities]
    return operations.named(names_of_strata)


def _of_window(detailed: Launches, whole: Operations) -> tuple[Operations, tuple[Note, ...]]:
    """The operations of a detailed window that it holds as a whole, and a note on slices left out."""
    alignment = align_window(detailed, whole.source, "exact")
    apart = [covered for covered, percent in alignment.by_range if percent < LEAST_MATCH_PERCENT]
    some_match = 0 < len(apart) < len(alignment.by_range)
    if not some_match:
        require_match(alignment, subject=f"{source_of(detailed)} and {source_of(whole.source)}")
    matched = detailed.take(alignment.left_rows)
    inside = ~_within(matched, apart)
    matched = matched.take(np.flatnonzero(inside))
    of_launch = whole.of_launch[alignment.right_rows[inside]]
    sizes = np.bincount(of_launch, minlength=len(whole))
    complete = np.isin(of_launch, np.flatnonzero(sizes == whole.sizes()))
    if not complete.any():
        raise RefusedError(
            source_of(detailed),
            "it holds no whole operation",
            "profile more launches (first: in the campaign)",
        )
    launches = matched.take(np.flatnonzero(complete))
    operations = _under_strata_of(operations_of(_labelled(launches, whole, of_launch[complete])), whole)
    return operations, (_left_out(alignment, apart),) if apart else ()


def _within(launches: Launches, ranges: Sequence[LaunchRange]) -> np.ndarray:
    """Which launches are in one of the ranges, shape (n,)."""
    process, launch = launches.column("process"), launches.column("launch")
    within = np.zeros(len(launches), bool)
    for each in ranges:
        within |= (process == each.process) & (launch >= each.first) & (launch <= each.last)
    return within


def _left_out(alignment: Alignment, apart: Sequence[LaunchRange]) -> Note:
    return make_note(
        "operation_slices_left_out",
        slices=len(apart),
        of=len(alignment.by_range),
        first_launch=apart[0].first,
        last_launch=apart[0].last,
        difference=alignment.differences[0],
    )


def _labelled(launches: Launches, whole: Operations, of_launch: np.ndarray) -> Launches:
    """Launches with the operations of the light run, ``of_launch`` of shape (n,), in their table."""
    names = Names(dict(launches.names.items()))
    texts: Callable[[Any], int] = lambda one: names.intern(one.to_text())  # noqa: E731
    ids = np.array([texts(one) for one in whole.identities], np.uint64)
    columns = {
        "call": pa.array(whole.launches.column("launch")[of_launch], pa.int64()),
        "operation_id": pa.array(ids[whole.identity[of_launch]], pa.uint64()),
    }
    counters = counter_columns(launches.table.schema)
    schema = launch_schema(launches.metadata, counters, operations=True)
    schema = schema.with_metadata({METADATA_KEY: launches.table.schema.metadata[METADATA_KEY]})
    operation_columns = {item.name for item in OPERATION_FIELDS}
    arrays = [columns[f.name] if f.name in operation_columns else launches.table[f.name] for f in schema]
    return replace(launches, table=pa.Table.from_arrays(arrays, schema=schema), names=names)
