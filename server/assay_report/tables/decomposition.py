"""Tables of where errors come from: the parts of each, and the groups that do not scale alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay_report.model.scores import Row
from assay_report.tables.table import Filled, Table, names, numbers, table_of
from assay_report.texts import ABSENT, LAUNCHES, RowWords, count, method_names, percent, ratio, with_sign
from assay_report.verdicts.errors import PARTS
from assay_sampling.documents.common import ErrorDecomposition, GroupSpreadEntry

POINTS = "points"
PART_NAMES = {name: name.replace("_", " ") for name in PARTS}
_ADD_UP = "Points of the true total; the parts of a row add up to its signed error. A dash: not measured."


@dataclass(frozen=True)
class Decomposed:
    """A signed error in percent with its parts, and whose it is."""

    method: str
    signed_error_percent: float | None
    parts: ErrorDecomposition
    device: str = ""


def _part(name: str) -> Filled[Decomposed]:
    def cell(entry: Decomposed) -> str:
        return percent(getattr(entry.parts, name), signed=True)

    return numbers(PART_NAMES[name], cell, optional=True)


_PARTS: list[Filled[Decomposed]] = [
    names("GPU", lambda entry: entry.device or ABSENT, optional=True, clips=True),
    names("method", lambda entry: entry.method),
    numbers("signed error", lambda entry: percent(entry.signed_error_percent, signed=True)),
    *(_part(name) for name in PART_NAMES),
    names("parts not separated", lambda entry: _together(entry.parts), optional=True, shared=True),
]


def decomposition_table(entries: Sequence[Decomposed]) -> Table:
    """The parts of each error, in points of the truth."""
    return table_of(f"Where the error comes from, {POINTS}", _PARTS, entries, [_ADD_UP])


def parts_text(parts: ErrorDecomposition) -> str:
    """The parts in one line: ``representatives +1.20, not separated -0.30 (representatives, labels)``."""
    texts = [
        f"{label} {with_sign(getattr(parts, name))}"
        for name, label in PART_NAMES.items()
        if getattr(parts, name) is not None
    ]
    together = _together(parts)
    return ", ".join(texts) + (f" ({together})" if together != ABSENT else "") + f" {POINTS}"


def _together(parts: ErrorDecomposition) -> str:
    return ", ".join(PART_NAMES[name] for name in parts.not_separated_parts) or ABSENT


def _groups(words: RowWords) -> list[Filled[tuple[str, GroupSpreadEntry]]]:
    return [
        names("of", lambda entry: entry[0] or ABSENT, optional=True, shared=True),
        numbers("group", lambda entry: count(entry[1].group)),
        numbers(words.several, lambda entry: count(entry[1].launches)),
        numbers("spread", lambda entry: percent(entry[1].spread_percent), "%"),
        numbers("misfit", lambda entry: percent(entry[1].misfit_points), POINTS),
        numbers("error", lambda entry: percent(entry[1].error_points, signed=True), POINTS),
        numbers("ratio", lambda entry: ratio(entry[1].ratio)),
        numbers("representative's", lambda entry: ratio(entry[1].representative_ratio)),
        names("grid", lambda entry: " x ".join(map(str, entry[1].grid)) or ABSENT),
        names(words.kind, lambda entry: entry[1].kernel, clips=True),
    ]


def _widest(words: RowWords) -> str:
    return (
        f"Ratio: cost there / cost where it was selected. Spread: how far the group's {words.several} are "
        "from one ratio, in percent of the group; misfit: the same in points of the true total."
    )


def widest_groups_table(entries: Sequence[tuple[str, GroupSpreadEntry]], words: RowWords = LAUNCHES) -> Table:
    """The groups whose launches, or operations, scale least alike, each with whose groups they are."""
    return table_of("Groups that scale least alike", _groups(words), entries, [_widest(words)])


def report_tables(rows: Sequence[Row]) -> list[Table]:
    """Both tables of a workload's rows."""
    methods = list(zip(rows, method_names(rows), strict=True))
    parts = [
        Decomposed(method, row.signed_error_percent, row.decomposition, row.device)
        for row, method in methods
        if row.decomposition is not None
    ]
    widest = [(f"{method} on {row.device}", each) for row, method in methods for each in row.widest_groups]
    return [decomposition_table(parts), widest_groups_table(widest)]
