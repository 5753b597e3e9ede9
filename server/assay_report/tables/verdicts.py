"""Tables of the first screen: the suite, which method to take, what is excluded, validity flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from assay_report.model.external_results import SimulatedEntry
from assay_report.model.verdicts import (
    BestMethod,
    Excluded,
    FlagCount,
    Shortfall,
    SuiteEntry,
    SuiteSimulated,
    Verdicts,
)
from assay_report.tables.decomposition import PART_NAMES, POINTS
from assay_report.tables.table import Cell, Filled, Table, filled, names, numbers, sentences, table_of
from assay_report.texts import ABSENT, count, percent, ratio, text

_NAMED = 3
_SHORTFALLS = 100
_TABLE4 = (
    "Errors: arithmetic mean over workloads; speedup: geometric mean, as in PKA's Table 4. Intervals: how "
    "many held the true total, and how many missed it. Largest part: of the error decomposition, by mean "
    "absolute points; not separated: parts that could not be told apart."
)
SIMULATED = (
    "Simulated: errors of Accel-Sim's cycles against those of silicon, when all launches are simulated "
    "(simulator), the selected ones (PKS), and these until their projection stops them (PKA); in brackets in "
    "active cycles, which leave out the launch latency ('assay docs handover'). Speedups are in simulated "
    "cycles, over simulating all launches."
)

_CONDITION: list[Filled[SuiteEntry]] = [names("cache, clock, SMs", lambda entry: entry.condition)]


def suite_table(verdicts: Verdicts, *, with_simulated: bool = True) -> Table:
    """A line for each kind of GPU, condition and method; ``with_simulated``: with simulations of it."""
    several = verdicts.asked.conditions > 1
    simulated = with_simulated and any(entry.simulated is not None for entry in verdicts.suite)
    lines = [entry for entry in verdicts.suite if simulated or entry.workloads or entry.without_number]
    target = f"{verdicts.target_error_percent:g} %"
    columns: list[Filled[SuiteEntry]] = [
        names("GPU", lambda entry: entry.device, clips=True),
        *(_CONDITION if several else []),
        names("method", lambda entry: entry.method),
        numbers(f"within {target}", _within),
        numbers("mean error", lambda entry: _marked(entry.mean_error_percent, verdicts), "%"),
        numbers("mean speedup", lambda entry: ratio(entry.geometric_mean_speedup)),
        numbers("worst error", lambda entry: _marked(entry.worst_error_percent, verdicts), "%"),
        names("worst workload", lambda entry: text(entry.worst_workload), clips=True),
        names("intervals", intervals_text),
        names("largest part of the error", _part),
        *([numbers("simulated", _simulated_workloads)] if simulated else []),
        *(_SIMULATORS if simulated else []),
    ]
    return table_of("The suite", columns, lines, [_TABLE4, *([SIMULATED] if simulated else [])])


_Entry = TypeVar("_Entry")


def simulated_columns(of: Callable[[_Entry], SuiteSimulated | SimulatedEntry | None]) -> list[Filled[_Entry]]:
    """The simulator's columns of PKA's Table 4."""

    return [
        numbers(
            "simulator error (active)", lambda entry: _of_cycles(of(entry), "simulator_error_percent"), "%"
        ),
        numbers("PKS error (active)", lambda entry: _of_cycles(of(entry), "pks_error_percent"), "%"),
        numbers("PKA error (active)", lambda entry: _of_cycles(of(entry), "pka_error_percent"), "%"),
        numbers("PKS speedup", lambda entry: _speedup(of(entry), "pks_speedup")),
        numbers("PKA speedup", lambda entry: _speedup(of(entry), "pka_speedup")),
    ]


_SIMULATORS: list[Filled[SuiteEntry]] = simulated_columns(lambda entry: entry.simulated)


def _of_cycles(entry: SuiteSimulated | SimulatedEntry | None, name: str) -> str:
    """An error in all simulated cycles, and in brackets in active ones where it is known."""
    if entry is None:
        return ABSENT
    active = getattr(entry, f"active_{name}")
    return f"{percent(getattr(entry, name))}{'' if active is None else f' ({percent(active)})'}"


def _speedup(entry: SuiteSimulated | SimulatedEntry | None, name: str) -> str:
    if entry is None:
        return ABSENT
    over = " over PKS" if name == "pka_speedup" and entry.pka_speedup_over == "pks" else ""
    return f"{ratio(getattr(entry, name))}{over}"


def _simulated_workloads(entry: SuiteEntry) -> str:
    if entry.simulated is None:
        return ABSENT
    of = entry.workloads + entry.without_number
    return f"{entry.simulated.workloads:,} of {of:,}" if of else count(entry.simulated.workloads)


def _within(entry: SuiteEntry) -> str:
    return f"{entry.within_target:,} of {entry.workloads:,}" if entry.workloads else ABSENT


def _marked(value: float | None, verdicts: Verdicts) -> Cell:
    above = value is not None and value > verdicts.target_error_percent
    return Cell(percent(value), mark="above" if above else "")


def intervals_text(entry: SuiteEntry) -> str:
    """``5 held, 2 missed``; ``no interval`` where no workload has one."""
    if not entry.workloads:
        return ABSENT
    missed = entry.intervals - entry.intervals_held
    return f"{entry.intervals_held:,} held, {missed:,} missed" if entry.intervals else "no interval"


def _part(entry: SuiteEntry) -> str:
    if entry.largest_part is None or entry.largest_part_points is None:
        return ABSENT
    return f"{PART_NAMES[entry.largest_part]}, {percent(entry.largest_part_points)} {POINTS}"


_BEST: list[Filled[BestMethod]] = [
    names("GPU", lambda entry: entry.device, clips=True),
    names("method", lambda entry: entry.method or "no method"),
    numbers("best for", lambda entry: f"{len(entry.workloads):,} of {entry.of:,}"),
    numbers("on target", lambda entry: count(entry.within_target)),
]


def best_table(verdicts: Verdicts) -> Table:
    """Which method to take; empty where no two methods were compared."""
    note = (
        "For how many workloads it is the method to take, by its selection's scores on the other GPUs (where "
        "there are none, by its fair error), and for how many of these the worst is on target "
        "('assay docs comparing')."
    )
    return table_of("Best method", _BEST, verdicts.best, [note])


def _what(entry: Excluded) -> str:
    unit = "run without data" if entry.what == "runs" else f"row {entry.status}"
    several = "runs without data" if entry.what == "runs" else f"rows {entry.status}"
    return f"{entry.number:,} {unit if entry.number == 1 else several}"


_EXCLUDED: list[Filled[Excluded]] = [
    names("GPU", lambda entry: text(entry.device), clips=True),
    sentences("workloads", lambda entry: some(entry.workloads)),
    names("what", _what),
    sentences("why", lambda entry: entry.reason),
    sentences("what to do", lambda entry: text(entry.remedy), optional=True),
]


def excluded_table(verdicts: Verdicts) -> Table:
    """What has no number, and why."""
    return table_of("Excluded, and why", _EXCLUDED, verdicts.excluded)


_FLAGS: list[Filled[FlagCount]] = [
    names("flag", lambda entry: entry.name),
    numbers("rows", lambda entry: count(entry.rows)),
    names("numbers", lambda entry: "refused" if entry.invalidates else "given"),
]


def flags_table(verdicts: Verdicts) -> Table:
    """Validity flags of the rows."""
    return table_of("Validity", _FLAGS, verdicts.flags, ["'assay docs validity' says what each flag means."])


def shortfalls_table(verdicts: Verdicts) -> Table:
    """Every projection above the target, and why; the largest errors, where there are very many."""
    every = [each for gpu in verdicts.gpus for each in gpu.shortfalls]
    largest = sorted(every, key=lambda each: -each.error_percent)[:_SHORTFALLS]
    shortfalls = [each for each in every if len(every) <= _SHORTFALLS or each in largest]
    more = (
        [f"The {len(shortfalls):,} with the largest errors of {len(every):,}."]
        if len(shortfalls) < len(every)
        else []
    )
    title = f"Above {verdicts.target_error_percent:g} %, and why"
    return table_of(title, _SHORT, shortfalls, more)


_SHORT: list[Filled[Shortfall]] = [
    names("GPU", lambda entry: entry.device, clips=True),
    names("workload", lambda entry: entry.workload, clips=True),
    names("method", lambda entry: entry.method),
    numbers("error", lambda entry: Cell(percent(entry.error_percent), mark="above"), "%"),
    sentences("what happened", lambda entry: entry.sentence),
]


def some(names_of: Sequence[str]) -> str:
    """The first names, and how many more."""
    more = len(names_of) - _NAMED
    if more <= 1:
        return ", ".join(names_of) or ABSENT
    return f"{', '.join(names_of[:_NAMED])} and {more:,} more"


def first_tables(verdicts: Verdicts) -> list[Table]:
    """The tables of the first screen, in their order; the suite's is the first."""
    tables = (best_table(verdicts), flags_table(verdicts), excluded_table(verdicts))
    return [suite_table(verdicts), *filled(*tables)]
