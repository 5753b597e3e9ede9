"""The table of the groups of a selection."""

from __future__ import annotations

from collections.abc import Callable

from assay_report.tables.table import Filled, Table, names, numbers, sentences, table_of
from assay_report.texts import (
    ABSENT,
    count,
    percent,
    quantity,
)
from assay_sampling.documents.selection import (
    GroupEntry,
    RepresentativeEntry,
    SelectionDocument,
)

_GROUPS_SHOWN = 12

_GROUPS: list[Filled[tuple[GroupEntry, int]]] = [
    numbers("group", lambda entry: count(entry[0].id)),
    numbers("launches", lambda entry: count(entry[0].launches)),
    numbers("share of launches", lambda entry: percent(100.0 * entry[0].launches / entry[1]), "%"),
    numbers("share of instructions", lambda entry: _instruction_share(entry[0]), "%", optional=True),
    numbers("representatives", lambda entry: count(len(entry[0].representatives))),
    numbers("process", lambda entry: _first(entry[0], lambda first: count(first.process))),
    numbers("launch", lambda entry: _first(entry[0], lambda first: str(first.launch))),
    numbers("weight", lambda entry: _first(entry[0], lambda first: quantity(first.weight))),
    sentences("kernel", lambda entry: _first(entry[0], lambda first: first.kernel)),
    names("grid", lambda entry: _first(entry[0], lambda first: _shape(first.grid))),
    names("block", lambda entry: _first(entry[0], lambda first: _shape(first.block))),
]


def groups_table(key: str, selection: SelectionDocument | None) -> Table | None:
    """The largest groups of a selection, with their first representative; None for a single group."""
    groups = selection.groups if selection is not None else []
    if len(groups) < 2:
        return None
    total = sum(group.launches for group in groups) or 1
    largest = sorted(groups, key=lambda group: (-group.launches, group.id))[:_GROUPS_SHOWN]
    shown = f"The {len(largest)} largest of {len(groups):,} groups; launch is 0-based in API order."
    return table_of(f"Groups of {key}", _GROUPS, [(group, total) for group in largest], [shown])


def _instruction_share(group: GroupEntry) -> str:
    share = group.instruction_share
    return ABSENT if share is None else percent(100.0 * share)


def _shape(sizes: list[int]) -> str:
    return " x ".join(map(str, sizes)) if all(sizes) else ABSENT


def _first(group: GroupEntry, shown: Callable[[RepresentativeEntry], str]) -> str:
    return shown(group.representatives[0]) if group.representatives else ABSENT
