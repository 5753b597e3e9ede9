"""Figures: millions of launches binned and drawn, and the figures of a report of 200 workloads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from assay_report.figures import forms, gallery
from assay_report.figures.drawn import drawn
from assay_report.figures.kinds.timeline import timeline
from assay_report.reading import read_report
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from tests.bench.made_data import light_table, names_for
from tests.bench.measure import Measurement

_KERNELS = 300
CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100.0}


def timeline_bins(count: int) -> Measurement:
    """The columns of a selection to the bins of its figure."""
    return _timeline(count, draw=False)


def timeline_svg(count: int) -> Measurement:
    """The columns of a selection to its figure as SVG, the start of the engine included."""
    return _timeline(count, draw=True)


def _timeline(count: int, *, draw: bool) -> Measurement:
    launches = Launches(light_table(count, kernels=_KERNELS, shapes=2), names_for(_KERNELS), ("generated",))
    selection = registry.select("stem", Profile(launches), {}, 0)
    begun = time.perf_counter()
    data = drawn(selection, launches)
    figure = timeline("timeline", "Launches in order", data)
    size = len(forms.svg(figure)) if draw else len(figure.spec_bytes())
    return Measurement(count, time.perf_counter() - begun, {"bytes": float(size)})


def figures_of_report(workloads: int) -> Measurement:
    """The figures that a page of so many workloads draws."""
    rows = [row for number in range(workloads) for row in _rows(f"workload {number}", number)]
    report = read_report(
        {
            "format_version": 2,
            "campaign": {"id": "c-1", "name": "c", "synthetic": True, "seed": 0},
            "rows": rows,
            "summary": [row for row in rows if row["method"] == "pks"],
        }
    )
    begun = time.perf_counter()
    figures = gallery.of_report(report)
    shown = gallery.drawn_at_once(figures)
    size = sum(len(forms.svg(figure)) for figure in figures if figure.name in shown)
    extra = {
        "bytes": float(size),
        "figures": float(len(shown)),
        "not_drawn": float(len(figures) - len(shown)),
    }
    return Measurement(workloads, time.perf_counter() - begun, extra)


def _rows(workload: str, seed: int) -> list[dict[str, Any]]:
    values = np.random.default_rng(seed)
    return [
        {
            "workload": workload, "device": device, "condition": CONDITION, "method": method, "status": "ok",
            "error_percent": float(values.gamma(1.0, 4.0)), "speedup": float(values.gamma(2.0, 100.0)),
        }
        for device in ("V100", "A100")
        for method in ("pks", "sieve", "stem")
    ]  # fmt: skip
