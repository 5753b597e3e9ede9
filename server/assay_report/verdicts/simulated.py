"""Simulations beside a suite: to which of its lines each one belongs, and the means of their columns.

A simulation belongs to the line of its method and of the GPU whose cycles are the truth, if the report has a
row of its workload there that was selected with the same parameters. The others get lines of their own, so
that nothing that a reader set beside is left out. Means are those of ``assay pka-table``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from assay_report.model.external_results import SimulatedEntry
from assay_report.model.scores import Row
from assay_report.model.verdicts import SuiteEntry, SuiteSimulated
from assay_report.texts import ABSENT, condition_text
from assay_report.verdicts.suite import Named
from assay_sampling.projection.pka_table import ERRORS, PkaRow, suite_means

# Selections' files are named after workloads, without the characters that files should not have.
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_Key = tuple[str, str, str]


def with_simulated(
    suite: Sequence[SuiteEntry], rows: Sequence[Named], simulated: Sequence[SimulatedEntry]
) -> list[SuiteEntry]:
    """The suite's lines with what was simulated of them, then lines of what belongs to none of them."""
    of_line: dict[_Key, list[SimulatedEntry]] = {}
    apart: dict[_Key, list[SimulatedEntry]] = {}
    for entry in simulated:
        if entry.means:
            continue
        row = _row_of(entry, rows)
        holder, key = (apart, _own_key(entry)) if row is None else (of_line, _key(row))
        holder.setdefault(key, []).append(entry)
    joined = [
        line.model_copy(update={"simulated": _means(of_line[key])}) if key in of_line else line
        for line in suite
        for key in [(line.device, line.condition, line.method)]
    ]
    return [*joined, *(_line(key, entries) for key, entries in apart.items())]


def _key(entry: Named) -> _Key:
    return entry.row.device, condition_text(entry.row.condition), entry.method


def _own_key(entry: SimulatedEntry) -> _Key:
    device = ", ".join(entry.silicon_devices) or entry.simulator or ABSENT
    suite = f" ({entry.suite})" if entry.suite else ""
    return device, ABSENT, f"{entry.method or 'method not said'}{suite}"


def _line(key: _Key, entries: Sequence[SimulatedEntry]) -> SuiteEntry:
    device, condition, method = key
    return SuiteEntry(
        device=device,
        condition=condition,
        method=method,
        selected_on=[],
        workloads=0,
        without_number=0,
        within_target=0,
        simulated=_means(entries),
    )


def _row_of(entry: SimulatedEntry, rows: Sequence[Named]) -> Named | None:
    """The row that the simulation belongs to: where its selection was made, if several fit."""
    if not entry.method:
        return None
    fitting = [each for each in rows if _fits(entry, each.row)]
    return max(fitting, key=lambda each: _made_here(each.row), default=None)


def _fits(entry: SimulatedEntry, row: Row) -> bool:
    parameters = {**row.parameters, **row.asked_parameters}
    return (
        row.method.casefold() == entry.method.casefold()
        and _plain(row.workload) == _plain(entry.application)
        and all(
            entry.parameters[name] == value for name, value in parameters.items() if name in entry.parameters
        )
        and (not entry.silicon_devices or _is_one_of(row.device, entry.silicon_devices))
    )


def _made_here(row: Row) -> bool:
    chosen = row.selected_on
    return chosen is not None and chosen.device == row.device and chosen.condition == row.condition


def _plain(workload: str) -> str:
    return _NOT_IN_A_FILE_NAME.sub("-", workload).strip("-").casefold()


def _is_one_of(kind: str, devices: Iterable[str]) -> bool:
    """Whether a GPU's name is of the kind: ``Tesla V100-SXM2-16GB`` is a ``V100``."""
    words = f" {_words(kind)} "
    return any(words in f" {_words(device)} " for device in devices)


def _words(name: str) -> str:
    return " ".join(re.split(r"[^a-z0-9]+", name.casefold())).strip()


def _means(entries: Sequence[SimulatedEntry]) -> SuiteSimulated:
    [of_all] = suite_means([_table_row(entry, "") for entry in entries])
    over: Literal["full", "pks"] = "pks" if of_all.pka_speedup_over == "pks" else "full"
    [of_active] = suite_means([_table_row(entry, "active_") for entry in entries])
    return SuiteSimulated(
        workloads=len(entries),
        simulators=list(dict.fromkeys(entry.simulator for entry in entries if entry.simulator)),
        **{name: getattr(of_all, name) for name in ERRORS},
        **{f"active_{name}": getattr(of_active, name) for name in ERRORS},
        pks_speedup=of_all.pks_speedup,
        pka_speedup=of_all.pka_speedup,
        pka_speedup_over=over if of_all.pka_speedup is not None else None,
    )


def _table_row(entry: SimulatedEntry, kind: str) -> PkaRow:
    """A line of PKA's table, with the errors in cycles of a kind."""
    return PkaRow(
        suite="",
        application=entry.application,
        **{name: getattr(entry, f"{kind}{name}") for name in ERRORS},
        pks_hours=None,
        pks_speedup=entry.pks_speedup,
        pka_hours=None,
        pka_speedup=entry.pka_speedup,
        pka_speedup_over=entry.pka_speedup_over or ("full" if entry.pka_speedup is not None else None),
        dram_full_percent=None,
        dram_pka_percent=None,
    )
