"""PKA's Table 4: what selecting launches (PKS) and then projecting them (PKA) costs in accuracy and saves.

    H    silicon cycles of the workload            S    simulated cycles of all its launches
    g_k  launches that representative k stands for s_k  its simulated cycles, in full
    p_k  its projected cycles                      r_k  its cycles until the projection stops it

    simulator error = 100 |H - S| / H        PKS error = 100 |H - sum g_k s_k| / H
    PKA error = 100 |H - sum g_k p_k| / H    PKS speedup = S / sum s_k    PKA speedup = S / sum r_k

Source: PKA (MICRO'21) 5.2.3, Table 4. Unknown values are shown as missing and never remove a row. Unless all
launches were simulated there is no S: the speedup of PKA is then over PKS, as in the paper for MLPerf, and
marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.errors import RefusedError
from assay_sampling.projection.runs import LaunchProjection

# DRAM use is known only of launches with a sample: the rest may hold this share of the cycles.
_UNSAMPLED_SHARE = 0.01
ERRORS = ("simulator_error_percent", "pks_error_percent", "pka_error_percent")
SPEEDUPS = ("pks_speedup", "pka_speedup")
_AVERAGED = (*ERRORS, "pks_hours", "pka_hours", "dram_full_percent", "dram_pka_percent")


@dataclass(frozen=True)
class SimulatedWorkload:
    """Simulated launches as columns of shape (n,), float64 with NaN for missing.

    ``launch`` is the 0-based launch of the workload, int64; ``cycles`` in full, ``projected_cycles``,
    ``stopped_cycles`` until the projection stops; ``dram_percent`` in full and ``projected_dram_percent``.
    ``replayed_cycles`` went into launches that only warmed caches for these, NaN where unknown.
    """

    launch: np.ndarray
    cycles: np.ndarray
    projected_cycles: np.ndarray
    stopped_cycles: np.ndarray
    dram_percent: np.ndarray
    projected_dram_percent: np.ndarray
    replayed_cycles: float = 0.0

    @classmethod
    def of(cls, launches: Iterable[LaunchProjection]) -> SimulatedWorkload:
        """From the projections of runs; launches are known by their traced id, else by their uid."""
        projections = list(launches)
        ids = [f.launch.uid if f.launch.traced_id is None else f.launch.traced_id for f in projections]
        dram = [f.projection.metrics.get("dram_percent") if f.projection else None for f in projections]
        return cls(
            launch=np.array(ids, np.int64) - 1,
            cycles=_floats([f.true_cycles for f in projections]),
            projected_cycles=_floats([f.projected_cycles for f in projections]),
            stopped_cycles=_floats([f.simulated_cycles for f in projections]),
            dram_percent=_floats([d.over_all_samples if d else None for d in dram]),
            projected_dram_percent=_floats([d.projected if d else None for d in dram]),
        )

    def rows_of(self, launches: np.ndarray) -> np.ndarray | None:
        """Rows of the given launches, shape (r,); None if one was not simulated.

        Raises RefusedError if a launch was simulated twice.
        """
        order = np.argsort(self.launch, kind="stable")
        ids = self.launch[order]
        twice = np.flatnonzero(np.diff(ids) == 0)
        if len(twice):
            raise RefusedError("simulated launches", f"launch {ids[twice[0]]} is there twice", "give it once")
        places = np.searchsorted(ids, launches)
        if len(ids) == 0 or (places == len(ids)).any() or (ids[places] != launches).any():
            return None
        rows: np.ndarray = order[places]
        return rows

    def every_row(self, launches: int) -> np.ndarray | None:
        """Rows of the launches 0 to ``launches`` - 1, shape (launches,); None if one was not simulated."""
        # A selection may name more launches than memory holds; then not all of them were simulated.
        return self.rows_of(np.arange(launches)) if launches <= len(self.launch) else None

    def without(self, latency_cycles: np.ndarray) -> SimulatedWorkload:
        """Cycles without the launch latency, shape (n,): the active ones; NaN where it is unknown."""
        return replace(
            self,
            cycles=self.cycles - latency_cycles,
            projected_cycles=self.projected_cycles - latency_cycles,
            stopped_cycles=self.stopped_cycles - latency_cycles,
        )


@dataclass(frozen=True)
class SimulatedTotals:
    """Cycles: ``full`` S, ``pks`` sum g_k s_k, ``pka`` sum g_k p_k, and what had to be simulated for them,
    sum s_k and sum r_k, each with what was replayed to warm caches; None is unknown."""

    full: float | None
    pks: float | None = None
    pka: float | None = None
    pks_simulated: float | None = None
    pka_simulated: float | None = None


def totals_of(
    launches: int,
    selected: np.ndarray,
    weights: np.ndarray,
    simulated: SimulatedWorkload,
    full_run: SimulatedWorkload | None = None,
) -> SimulatedTotals:
    """The sums behind :func:`application_row`, with its arguments."""
    whole = full_run or simulated
    everything = whole.every_row(launches)
    full = None if everything is None else _finite_or_none(whole.cycles[everything].sum())
    rows = simulated.rows_of(np.asarray(selected, np.int64))
    if rows is None:
        return SimulatedTotals(full)
    with np.errstate(over="ignore"):
        return SimulatedTotals(
            full,
            pks=_finite_or_none((weights * simulated.cycles[rows]).sum()),
            pka=_finite_or_none((weights * simulated.projected_cycles[rows]).sum()),
            pks_simulated=_finite_or_none(simulated.cycles[rows].sum() + simulated.replayed_cycles),
            pka_simulated=_finite_or_none(simulated.stopped_cycles[rows].sum() + simulated.replayed_cycles),
        )


@dataclass(frozen=True)
class PkaRow:
    """An application, or the means of a suite; None is missing.

    ``pka_speedup_over`` is "full" or, where not all launches were simulated, "pks". In a suite's row
    ``applications`` is their number, and ``known`` the number that each column rests on.
    """

    suite: str
    application: str
    simulator_error_percent: float | None
    pks_error_percent: float | None
    pka_error_percent: float | None
    pks_hours: float | None
    pks_speedup: float | None
    pka_hours: float | None
    pka_speedup: float | None
    pka_speedup_over: str | None
    dram_full_percent: float | None
    dram_pka_percent: float | None
    applications: int = 1
    known: Mapping[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def application_row(
    suite: str,
    application: str,
    *,
    silicon_cycles: float | None,
    launches: int,
    selected: np.ndarray,
    weights: np.ndarray,
    simulated: SimulatedWorkload,
    cycles_per_second: float | None = None,
    full_run: SimulatedWorkload | None = None,
) -> PkaRow:
    """One line of the table.

    Args:
        suite: the suite's name.
        application: the application's name.
        silicon_cycles: cycles of the whole workload on silicon; None: not measured.
        launches: launches of the whole workload.
        selected: 0-based launches of the representatives, shape (r,).
        weights: their weights, shape (r,).
        simulated: what was simulated: all launches, or the selected ones.
        cycles_per_second: speed of the simulator; None: unknown.
        full_run: the simulation of all launches, where the selected ones were simulated apart.

    Raises RefusedError for silicon cycles that are not positive, or a launch simulated twice.
    """
    if silicon_cycles is not None and not silicon_cycles > 0:
        raise RefusedError(application, f"its silicon cycles are {silicon_cycles:g}", "profile it again")
    totals = totals_of(launches, selected, weights, simulated, full_run)
    full, pks, pka = totals.full, totals.pks, totals.pka
    pks_simulated, pka_simulated = totals.pks_simulated, totals.pka_simulated
    everything = (full_run or simulated).every_row(launches)
    rows = simulated.rows_of(np.asarray(selected, np.int64))
    dram_pka = None
    if rows is not None:
        with np.errstate(over="ignore"):
            stand_for = weights * simulated.projected_cycles[rows]
        dram_pka = _weighted(simulated.projected_dram_percent[rows], stand_for)
    dram_full = None
    if everything is not None:
        whole = full_run or simulated
        dram_full = _weighted(whole.dram_percent[everything], whole.cycles[everything])
    over = full if full is not None else pks_simulated
    return PkaRow(
        suite=suite,
        application=application,
        simulator_error_percent=_error(silicon_cycles, full),
        pks_error_percent=_error(silicon_cycles, pks),
        pka_error_percent=_error(silicon_cycles, pka),
        pks_hours=_hours(pks_simulated, cycles_per_second),
        pks_speedup=_quotient(full, pks_simulated),
        pka_hours=_hours(pka_simulated, cycles_per_second),
        pka_speedup=_quotient(over, pka_simulated),
        pka_speedup_over=None
        if over is None or not pka_simulated
        else ("full" if full is not None else "pks"),
        dram_full_percent=dram_full,
        dram_pka_percent=dram_pka,
    )


def suite_means(rows: Sequence[PkaRow]) -> list[PkaRow]:
    """A row of means for every suite, in the order in which the suites first appear.

    Errors, hours and DRAM use: arithmetic mean; speedups: geometric mean; each over the applications with a
    known value. Speedups of PKA over the full simulation and over PKS are not averaged together: if a suite
    has both, the mean is of the former.
    """
    by_suite: dict[str, list[PkaRow]] = {}
    for row in rows:
        by_suite.setdefault(row.suite, []).append(row)
    return [_means(suite, members) for suite, members in by_suite.items()]


def _means(suite: str, rows: Sequence[PkaRow]) -> PkaRow:
    bases = [row.pka_speedup_over for row in rows]
    base = "full" if "full" in bases else ("pks" if "pks" in bases else None)
    columns = {
        name: [
            value
            for row in rows
            if (value := getattr(row, name)) is not None
            and (name != "pka_speedup" or row.pka_speedup_over == base)
        ]
        for name in (*_AVERAGED, *SPEEDUPS)
    }
    means: dict[str, Any] = {
        name: (math.fsum(columns[name]) / len(columns[name]) if columns[name] else None) for name in _AVERAGED
    }
    for name in SPEEDUPS:
        values = columns[name]
        means[name] = math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
    return PkaRow(
        suite=suite,
        application="mean",
        pka_speedup_over=base,
        applications=len(rows),
        known={name: len(values) for name, values in columns.items()},
        **means,
    )


def pka_table(rows: Sequence[PkaRow]) -> list[PkaRow]:
    """The whole table: each suite's applications in their order, then its means."""
    table: list[PkaRow] = []
    for mean in suite_means(rows):
        table += [*(row for row in rows if row.suite == mean.suite), mean]
    return table


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _error(silicon: float | None, estimate: float | None) -> float | None:
    return None if silicon is None or estimate is None else 100.0 * abs(silicon - estimate) / silicon


def _quotient(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by


def _hours(cycles: float | None, cycles_per_second: float | None) -> float | None:
    seconds = _quotient(cycles, cycles_per_second)
    return None if seconds is None else seconds / 3600.0


def _weighted(percent: np.ndarray, weights: np.ndarray) -> float | None:
    finite = np.isfinite(percent) & np.isfinite(weights)
    total, of_known = float(np.nansum(weights)), float(weights[finite].sum())
    if not of_known > 0 or of_known < (1 - _UNSAMPLED_SHARE) * total:
        return None
    return float((percent[finite] * weights[finite]).sum() / of_known)
