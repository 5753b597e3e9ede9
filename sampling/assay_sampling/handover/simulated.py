"""Simulated launches joined to the selection that they were simulated for: errors, speedups, cold starts.

    H    cycles of the whole workload on silicon     S    simulated cycles of all its launches
    g_k  weight of representative k                  s_k  its simulated cycles, p_k projected

    simulator error = 100 |H - S| / H     PKS error = 100 |H - sum g_k s_k| / H
    PKA error = 100 |H - sum g_k p_k| / H

Of a selection by operation the launches of a representative all have its weight, so that its cycles are the
sum of theirs. Cycles of launches that only warmed caches are part of what was simulated, in both speedups.
The formulas are those of :mod:`assay_sampling.projection.pka_table`; here they are also taken over S in place
of H, and in active cycles, which leave out each launch's latency. Where the representatives were simulated
apart from the full run, the difference of their cycles is what starting cold costs.

Source: PKA (MICRO'21) 5.2.3, Table 4; docs/handover.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.handover import SimulationDocument
from assay_sampling.errors import MisalignedError, RefusedError
from assay_sampling.handover.comparing.shapes import refuse_another_sequence, refuse_other_launches
from assay_sampling.handover.simulated_logs import ReadLog, refuse_mixed
from assay_sampling.handover.target import Inputs, of_one_process
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.notes.registry import Note, distinct_notes, make_note
from assay_sampling.parameters import WeightKind
from assay_sampling.projection.pka_table import SimulatedWorkload, application_row, totals_of
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN
from assay_sampling.scoring.saved_selection import SavedSelection


@dataclass(frozen=True)
class Silicon:
    """Cycles of the whole workload on silicon, None if unknown; where they are from, whether they are
    synthetic, and the GPUs."""

    cycles: float | None
    recording: Path | None = None
    synthetic: bool = False
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Joined:
    """What is joined: a selection's file and weights, its logs, and the cycles of silicon.

    Args:
        selection: the selection's file.
        saved: the selection.
        weights: the kind of weights that cycles are multiplied by.
        workload: its name in the document.
        logs: what was read, ``full`` logs of all launches and ``sampled`` ones.
        silicon: the cycles of silicon.
        match: how closely launches are compared with the selection's.
        made_by: the program and its version.
    """

    selection: Path
    saved: SavedSelection
    weights: WeightKind
    workload: str
    logs: Sequence[ReadLog]
    silicon: Silicon
    match: MatchKind = "exact"
    made_by: str = "assay"


@dataclass(frozen=True)
class _Runs:
    """Simulated cycles of one kind: of all launches (None: unknown), and of the representatives."""

    whole: SimulatedWorkload | None
    sampled: SimulatedWorkload


def join_simulated(join: Joined) -> SimulationDocument:
    """The document of simulated launches.

    Raises RefusedError for logs that were not simulated alike, of a selection of several processes, or that
    lack launches that are needed; MisalignedError with the first differences for logs of another workload.
    """
    operations = join.saved.operation_labels()
    join = replace(join, saved=join.saved.by_launch())
    launches = of_one_process(join.saved, Inputs(join.selection))
    refuse_mixed(join.logs)
    notes = [note for log in join.logs for note in _checked(join, log)]
    full_logs = [log for log in join.logs if log.source.kind == "full"]
    sampled_logs = [log for log in join.logs if log.source.kind == "sampled"]
    _refuse_twice(full_logs)
    _refuse_twice(sampled_logs)
    of_sampled = sampled_logs or full_logs
    most = join.saved.document.profile.launches
    if full_logs:
        _refuse_missing(join, np.arange(most), full_logs, "the full run lacks {} of its {} launches")
    _refuse_missing(join, np.sort(launches), of_sampled, "{} of the {} selected launches were not simulated")
    runs = _Runs(_together(full_logs) if full_logs else None, _together(of_sampled))
    apart = bool(full_logs and sampled_logs)
    if not full_logs and runs.sampled.every_row(most) is not None:
        runs = _Runs(runs.sampled, runs.sampled)
    active = _active(full_logs or (of_sampled if runs.whole else []), of_sampled)
    weights = join.saved.weights_of(join.weights)
    notes += _notes(join, runs, apart=apart)
    return SimulationDocument.model_validate(
        {
            "made_by": join.made_by,
            "workload": join.workload,
            "selection": _selection(join),
            "recording": None if join.silicon.recording is None else str(join.silicon.recording),
            "silicon_devices": list(join.silicon.devices),
            "synthetic": join.silicon.synthetic,
            "simulator": _simulator(join.logs[0]),
            "logs": [log.document() for log in join.logs],
            "all_cycles": _errors(join, weights, runs, apart=apart),
            "active_cycles": _errors(join, weights, active, apart=apart),
            "representatives": _representatives(join, weights, runs, active, operations, apart=apart),
            "notes": [NoteEntry.of(note) for note in distinct_notes(notes)],
        }
    )


def _checked(join: Joined, log: ReadLog) -> Iterable[Note]:
    """Compare a log's launches with the selection's; notes on how."""
    subject = f"{log.source.path} and {join.selection}"
    notes = refuse_other_launches(subject, join.saved, log.by_number(), join.match)
    if len(set(log.numbers)) == join.saved.document.profile.launches == len(log.launches):
        refuse_another_sequence(subject, join.saved, read_launches(log.source.path), join.match)
    return notes


def _together(logs: Sequence[ReadLog]) -> SimulatedWorkload:
    workload = SimulatedWorkload.of([each for log in logs for each in log.launches])
    return replace(workload, replayed_cycles=float(sum(log.replayed_cycles for log in logs)))


def _active(full: Sequence[ReadLog], sampled: Sequence[ReadLog]) -> _Runs:
    """Cycles without each launch's latency; ``full`` is empty where not all launches were simulated."""

    def without(logs: Sequence[ReadLog]) -> SimulatedWorkload:
        active = _together(logs).without(np.concatenate([log.latencies() for log in logs]))
        return replace(active, replayed_cycles=float(sum(log.active_replayed_cycles() for log in logs)))

    return _Runs(without(full) if full else None, without(sampled))


def _refuse_twice(logs: Sequence[ReadLog]) -> None:
    """Raise RefusedError for a launch that two logs of one kind have, or one log twice."""
    by_number: dict[int, ReadLog] = {}
    for log in logs:
        for number in log.numbers:
            if number in by_number:
                raise RefusedError(
                    f"{by_number[number].source.path} and {log.source.path}",
                    f"launch {number + 1} was simulated twice",
                    "give each launch once; the run of all launches is given with --full",
                )
            by_number[number] = log


def _refuse_missing(join: Joined, needed: np.ndarray, logs: Sequence[ReadLog], cause: str) -> None:
    """Raise MisalignedError where launches are missing, naming the first, and what the logs hold."""
    missing = np.setdiff1d(needed, [number for log in logs for number in log.numbers])
    if not len(missing):
        return
    started = sorted({each for log in logs for each in log.started})
    contents = [f"{log.source.path.name} holds {log.counted_ids or 'no whole launch'}" for log in logs]
    ends = [f"it ends within launch {each}, which does not count" for each in started[:1]]
    kernels = {n + 1: k for n, k in zip(join.saved.launch.tolist(), join.saved.kernel, strict=True)}
    names = [
        f"launch {number} ({kernels[number][:60]})" if number in kernels else f"launch {number}"
        for number in (missing[:DIFFERENCES_SHOWN] + 1).tolist()
    ]
    raise MisalignedError(
        f"{', '.join(str(log.source.path) for log in logs)} and {join.selection}",
        cause.format(len(missing), len(needed)),
        "simulate them too, and give all logs"
        + ("; of runs that were ended within a launch also --intervals and --traces" if started else "")
        + "; where assay export found traces with other ids than their launches: --traces with its folder",
        (f"missing: {', '.join(names)}", *contents[:DIFFERENCES_SHOWN], *ends),
    )


def _notes(join: Joined, runs: _Runs, *, apart: bool) -> list[Note]:
    notes = []
    if join.silicon.cycles is None:
        notes.append(make_note("no_silicon_cycles"))
    if runs.whole is None:
        notes.append(make_note("no_full_simulation"))
    elif not apart:
        notes.append(make_note("representatives_of_the_full_run"))
    if not any(log.source.intervals for log in join.logs):
        notes.append(make_note("nothing_projected"))
    return notes


def _errors(join: Joined, weights: np.ndarray, runs: _Runs, *, apart: bool) -> dict[str, Any]:
    """Errors and speedups in one kind of cycles, from :func:`application_row`."""
    count, launches = join.saved.document.profile.launches, join.saved.launch.astype(np.int64)
    totals = totals_of(count, launches, weights, runs.sampled, runs.whole)

    def row(truth: float | None) -> dict[str, Any]:
        return application_row(
            "",
            join.workload,
            silicon_cycles=truth,
            launches=count,
            selected=launches,
            weights=weights,
            simulated=runs.sampled,
            full_run=runs.whole,
        ).to_dict()

    of_silicon = row(join.silicon.cycles)
    of_full = row(totals.full if totals.full and totals.full > 0 else None)
    names = (
        "simulator_error_percent", "pks_error_percent", "pka_error_percent", "pks_speedup", "pka_speedup",
        "pka_speedup_over",
    )  # fmt: skip
    return {
        "silicon_cycles": join.silicon.cycles,
        "full_cycles": totals.full,
        "pks_cycles": totals.pks,
        "pka_cycles": totals.pka,
        "replayed_cycles": _finite_or_none(runs.sampled.replayed_cycles),
        **{name: of_silicon[name] for name in names},
        "pks_error_of_full_percent": of_full["pks_error_percent"],
        "pka_error_of_full_percent": of_full["pka_error_percent"],
        "cold_start_percent": _cold_start(launches, weights, runs, totals.full) if apart else None,
    }


def _cold_start(launches: np.ndarray, weights: np.ndarray, runs: _Runs, total: float | None) -> float | None:
    apart = runs.sampled.rows_of(launches)
    within = None if runs.whole is None else runs.whole.rows_of(launches)
    if runs.whole is None or apart is None or within is None or not total:
        return None
    more = runs.sampled.cycles[apart] - runs.whole.cycles[within]
    return _finite_or_none(100.0 * float((weights * more).sum()) / total)


def _representatives(
    join: Joined,
    weights: np.ndarray,
    runs: _Runs,
    active: _Runs,
    operations: Sequence[str],
    *,
    apart: bool,
) -> list[dict[str, Any]]:
    order = np.argsort(join.saved.launch, kind="stable")
    launches = join.saved.launch[order].astype(np.int64)
    rows = runs.sampled.rows_of(launches)
    assert rows is not None
    within = None if runs.whole is None else runs.whole.rows_of(launches)
    unknown = np.full(len(order), np.nan)
    in_full = unknown if runs.whole is None or within is None else runs.whole.cycles[within]
    columns = {
        "cycles": runs.sampled.cycles[rows],
        "active_cycles": active.sampled.cycles[rows],
        "full_run_cycles": in_full,
        "cold_start_cycles": runs.sampled.cycles[rows] - in_full if apart else unknown,
        "projected_cycles": runs.sampled.projected_cycles[rows],
        "stopped_cycles": runs.sampled.stopped_cycles[rows],
    }
    return [
        {
            "launch": int(join.saved.launch[index]),
            "sim_id": int(join.saved.launch[index]) + 1,
            "group": int(join.saved.group[index]),
            **({"operation": operations[index]} if operations else {}),
            "kernel": join.saved.kernel[index],
            "weight": float(weights[index]),
            **{name: _finite_or_none(float(values[place])) for name, values in columns.items()},
        }
        for place, index in enumerate(order.tolist())
    ]


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _selection(join: Joined) -> dict[str, Any]:
    document = join.saved.document
    return {
        "path": str(join.selection),
        "method": document.method,
        "parameters": document.parameters,
        "seed": document.seed,
        "weights": join.weights,
        "profile": document.profile,
    }


def _simulator(log: ReadLog) -> dict[str, Any]:
    output = log.run.output
    return {
        "tool": output.tool,
        "version": output.version,
        "commits": dict(output.commits),
        "gpu": log.run.config.gpu_name(),
        "launch_latency_cycles": log.run.config.launch_latency_cycles,
    }
