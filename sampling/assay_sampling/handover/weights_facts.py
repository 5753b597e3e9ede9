"""Facts by which a weights file has the total and interval of its selection: how representatives were drawn.

Each is left out where the selection has nothing to say, and releases that do not know one ignore it. Values
of representatives are in the order of process and launch, so that lines of the table may be sorted otherwise.

Format: docs/weights-format.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay_sampling.documents.selection import SelectionDocument

_WHOLE = ("unit", "drawing", "launches_without_time", "two_level", "operations")
_OF_GROUPS = ("instruction_share", "kernels", "cost_cov")
_OF_REPRESENTATIVES = ("draws", "light_time")
_OPERATION = "operation"
# Of the operation that a representative is, what the lines of its launches do not say.
_OF_OPERATION = ("kind", "name", "shapes", "thread", "row")
_OF_ITS_ROW = ("kernel", "grid", "block")


class FactError(ValueError):
    """A fact is not as the format says; ``fact`` is its name."""

    def __init__(self, fact: str, cause: str) -> None:
        super().__init__(f"{fact}: {cause}")
        self.fact, self.cause = fact, cause


def more_facts(document: SelectionDocument) -> dict[str, Any]:
    """The facts of a selection by name. Labels are left out: they are packed, and a weights file is text."""
    groups = [group.model_dump(mode="json") for group in document.groups]
    entries = _in_order(each for group in groups for each in group["representatives"])
    whole = document.to_dict()
    facts = {
        **{name: whole.get(name) for name in _WHOLE},
        "groups": _columns(groups, _OF_GROUPS),
        "representatives": {**_columns(entries, _OF_REPRESENTATIVES), **_operations(entries)},
    }
    return {name: value for name, value in facts.items() if value is not None and value != {}}


def added(facts: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The keys of the document that ``facts`` hold; those of groups and of representatives are added there.

    Raises FactError for a fact that does not fit the table.
    """
    entries = _in_order(each for group in groups for each in group["representatives"])
    _add("groups", facts.get("groups"), groups, _OF_GROUPS)
    _add("representatives", facts.get("representatives"), entries, _OF_REPRESENTATIVES)
    return {name: facts[name] for name in _WHOLE if facts.get(name) is not None}


def _operations(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Of a selection by operation, what each representative is, with the ordinals of its launches."""
    operations = [
        {
            **{name: each[_OPERATION][name] for name in _OF_OPERATION},
            "process": each["process"],
            "stratum": {name: each[name] for name in _OF_ITS_ROW},
            "launches": [one["launch"] for one in each[_OPERATION]["launches"]],
        }
        for each in entries
        if each.get(_OPERATION)
    ]
    return {_OPERATION: operations} if operations else {}


def of_operations(
    facts: Mapping[str, Any], lines: Sequence[list[dict[str, Any]]]
) -> Sequence[list[dict[str, Any]]]:
    """The representatives of each group, from the lines of their launches where the file is by operation.

    Raises FactError for operations that do not fit the lines.
    """
    if facts.get("unit", "launch") == "launch":
        return lines
    representatives = facts.get("representatives")
    operations = representatives.get(_OPERATION) if isinstance(representatives, Mapping) else None
    if not isinstance(operations, list):
        raise FactError("representatives", "it is by operation, and the operations are missing")
    of_launch = {
        (line["process"], line["launch"]): (group, line) for group, each in enumerate(lines) for line in each
    }
    groups: list[list[dict[str, Any]]] = [[] for _ in lines]
    for place, one in enumerate(operations):
        try:
            keys = [(int(one["process"]), int(launch)) for launch in one["launches"]]
            parts = [of_launch.pop(each) for each in keys]
            groups[parts[0][0]].append(_representative(one, [line for _, line in parts]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            cause = f"operation {place} does not fit the lines of its launches ({type(error).__name__})"
            raise FactError("representatives", cause) from error
    if of_launch:
        process, launch = next(iter(of_launch))
        cause = f"launch {launch} of process {process} is of no operation"
        raise FactError("representatives", cause)
    return groups


def _representative(one: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A representative by operation, as the document has it, from the lines of its launches."""
    names = ("launch", "sim_id", "kernel", "grid", "block")
    return {
        **lines[0],
        **{name: one["stratum"][name] for name in _OF_ITS_ROW},
        _OPERATION: {
            **{name: one[name] for name in _OF_OPERATION},
            "launches": [{name: line[name] for name in names} for line in lines],
        },
    }


def _in_order(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda each: (each["process"], each["launch"]))


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """The columns in which a row has a value."""
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


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
