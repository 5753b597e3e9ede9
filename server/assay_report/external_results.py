"""Read tables of published results, and documents of simulations, to set beside a report.

A table is CSV with a header. ``workload`` is required; ``method``, ``suite``, ``device`` and ``source`` are
optional. Errors are in percent, in a column ``error`` (or ``error_percent``, ``error_pct``); speedups are in
``speedup``. With a GPU's name before, as in ``volta_error_pct``, they are of that GPU. Other columns are left
alone. An empty cell is a missing value.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay_report.model.external_results import PublishedEntry, SimulatedEntry
from assay_report.model.report import Report
from assay_report.verdicts.verdicts import judge
from assay_sampling.documents.handover import SimulationDocument
from assay_sampling.errors import InputError, ParameterError, RefusedError

_VALUE = re.compile(r"(?:(?P<device>.+)_)?(?P<what>error|speedup)(?:_percent|_pct)?", re.IGNORECASE)
_NAMES = ("workload", "method", "suite", "device", "source")
_FORM = "'assay docs report-format' says how such a table looks"
_MOST_BYTES = 32 << 20
_ERRORS = ("simulator_error_percent", "pks_error_percent", "pka_error_percent")
_OF_SELECTIONS = {"suite", "application", "method", "parameters", "silicon_devices", "simulator", "means"}


def read_published(path: Path) -> list[PublishedEntry]:
    """The results in a table; raises InputError naming the line."""
    rows = csv.DictReader(_text(path, _FORM).splitlines())
    header = [name for name in rows.fieldnames or () if name]
    values = {name: match for name in header if (match := _VALUE.fullmatch(name.strip())) is not None}
    if "workload" not in header or not values:
        has = ", ".join(header[:8]) or "nothing"
        cause = f"it has no columns 'workload' and 'error' or 'speedup', but {has}"
        raise InputError(str(path), cause, _FORM)
    try:
        return [
            entry for row in rows for entry in _entries(row, values, path, f"line {rows.line_num} of {path}")
        ]
    except csv.Error as error:
        raise InputError(f"line {rows.line_num} of {path}", f"it is not CSV ({error})", _FORM) from error


def _entries(
    row: Mapping[str, str | None], values: Mapping[str, re.Match[str]], path: Path, where: str
) -> Iterator[PublishedEntry]:
    """One entry for each GPU that the line has numbers of."""
    texts = {name: (row.get(name) or "").strip() for name in _NAMES}
    if not texts["workload"]:
        raise InputError(where, "it names no workload", _FORM)
    by_device: dict[str, dict[str, float]] = {}
    for name, match in values.items():
        text = (row.get(name) or "").strip()
        if text:
            of_device = by_device.setdefault(match["device"] or texts["device"], {})
            of_device[match["what"].lower()] = _number(text, f"{where}, column {name}")
    texts["source"] = texts["source"] or path.name
    for device, numbers in by_device.items():
        yield PublishedEntry(
            **{**texts, "device": device},
            error_percent=numbers.get("error"),
            speedup=numbers.get("speedup"),
        )


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(where, f"{text!r} is not a number", _FORM)
    return value


def set_beside(
    report: Report, published: Sequence[PublishedEntry], simulated: Sequence[SimulatedEntry]
) -> None:
    """Set numbers from elsewhere beside a report, in place of what was there.

    Raises ParameterError for a selection whose simulations are given twice, RefusedError for simulations
    against synthetic cycles beside measured ones.
    """
    made_up = [entry.application for entry in simulated if entry.synthetic]
    if made_up and not report.campaign.synthetic:
        raise RefusedError(
            made_up[0],
            "it was simulated against synthetic cycles, and the campaign was measured on silicon",
            "give assay import accel-sim a --recording of silicon",
        )
    seen = set()
    for entry in simulated:
        key = entry.model_dump_json(include=_OF_SELECTIONS)
        if key in seen:
            raise ParameterError(
                "--simulated", f"{entry.application} is given twice", "give each simulated selection once"
            )
        seen.add(key)
    report.published, report.simulated = list(published), list(simulated)
    judge(report)


def read_simulated(path: Path) -> list[SimulatedEntry]:
    """The rows of a document of ``assay pka-table`` or ``assay import accel-sim``; raises InputError."""
    again = "write one with: assay import accel-sim LOG --selection SELECTION -o FILE"
    try:
        document = json.loads(_text(path, again))
        if "simulation_version" in document:
            return [_imported(SimulationDocument.model_validate(document))]
        return [_of_table(row, document.get("synthetic", False)) for row in document["rows"]]
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise InputError(
            str(path), "it is not a document of assay pka-table or assay import accel-sim", again
        ) from error


def _imported(document: SimulationDocument) -> SimulatedEntry:
    errors, active = document.all_cycles, document.active_cycles
    return SimulatedEntry(
        application=document.workload,
        method=document.selection.method,
        parameters=document.selection.parameters,
        synthetic=document.synthetic,
        silicon_devices=document.silicon_devices or document.selection.profile.devices,
        simulator=document.simulator.gpu,
        **{name: getattr(errors, name) for name in _ERRORS},
        **{f"active_{name}": getattr(active, name) for name in _ERRORS},
        pks_speedup=errors.pks_speedup,
        pka_speedup=errors.pka_speedup,
        pka_speedup_over=errors.pka_speedup_over,
    )


def _of_table(row: Mapping[str, Any], synthetic: object) -> SimulatedEntry:
    """A row of PKA's table, which does not say how its launches were selected."""
    return SimulatedEntry.model_validate({**row, "synthetic": synthetic, "means": row["known"] is not None})


def _text(path: Path, remedy: str) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(str(path), f"it is larger than {_MOST_BYTES >> 20} MiB", remedy)
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"it cannot be read as text ({error})", remedy) from error
