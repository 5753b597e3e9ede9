"""Facts by which a weights file scores as its selection does: labels, and how representatives were drawn.

Each is left out where the selection has nothing to say, and releases that do not know one ignore it. Values
of representatives are in the order of process and launch, so that lines of the table may be sorted otherwise.

Format: docs/weights-format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay_sampling.documents.selection import SelectionDocument

_WHOLE = ("drawing", "launches_without_time", "two_level", "labels")
_OF_GROUPS = ("instruction_share", "kernels", "cost_cov")
_OF_REPRESENTATIVES = ("draws", "light_time")


class FactError(ValueError):
    """A fact is not as the format says; ``fact`` is its name."""

    def __init__(self, fact: str, cause: str) -> None:
        super().__init__(f"{fact}: {cause}")
        self.fact, self.cause = fact, cause


def more_facts(document: SelectionDocument) -> dict[str, Any]:
    """The facts of a selection by name, the longest last."""
    groups = [group.model_dump(mode="json") for group in document.groups]
    entries = _in_order(each for group in groups for each in group["representatives"])
    whole = document.to_dict()
    found = {
        **{name: whole.get(name) for name in _WHOLE[:-1]},
        "groups": _columns(groups, _OF_GROUPS),
        "representatives": _columns(entries, _OF_REPRESENTATIVES),
        "labels": whole.get("labels"),
    }
    return {name: value for name, value in found.items() if value is not None and value != {}}


def added(facts: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The keys of the document that ``facts`` hold; those of groups and of representatives are added there.

    Raises FactError for a fact that does not fit the table.
    """
    entries = _in_order(each for group in groups for each in group["representatives"])
    _add("groups", facts.get("groups"), groups, _OF_GROUPS)
    _add("representatives", facts.get("representatives"), entries, _OF_REPRESENTATIVES)
    return {name: facts[name] for name in _WHOLE if facts.get(name) is not None}


def _in_order(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda each: (each["process"], each["launch"]))


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """The columns in which a row has a value."""
    found = {name: [row.get(name) for row in rows] for name in names}
    return {name: values for name, values in found.items() if any(value is not None for value in values)}


def _add(fact: str, columns: object, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    if columns is None:
        return
    if not isinstance(columns, Mapping):
        raise FactError(fact, "it is not an object of lists")
    for name in names:
        values = columns.get(name)
        if values is None:
            continue
        if not isinstance(values, list) or len(values) != len(rows):
            raise FactError(fact, f"{name} is not a list of {len(rows):,} values, one for each of them")
        for row, value in zip(rows, values, strict=True):
            row[name] = value
