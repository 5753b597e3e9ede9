"""Reports made up from the typed model, of any number of workloads; every number in them is synthetic."""

from __future__ import annotations

import json
import math
from typing import Any

from assay_report.data import report_parquet
from assay_report.reading import parse_report

GPUS = ("V100", "RTX 2060", "RTX 3070")
METHODS = ("pks", "random", "systematic")
BASELINE = {"cache": "none", "clock": "none", "sm_percent": 100.0}
HOSTILE = "void f<script>alert('x')</script>(int*, char const&) | `c` $x_1$ \\input{y} 50% #1 {a} ~^ =1+1"
_TOTAL_NS = 2.0e9


def made_report(
    workloads: int = 7, *, kernel: str = "void gemm<float, 128, 64>(float const*, float*, int)",
    prefix: str = "workload", gpus: tuple[str, ...] = GPUS,
) -> dict[str, Any]:  # fmt: skip
    """A report document in today's format, of these GPUs and three methods: every 13th workload does not
    carry over to the second GPU, every 17th is refused there, and the names of kernels are ``kernel``."""
    names = [f"{prefix}-{number:03d}" for number in range(workloads)]
    rows = [
        _row(
            number,
            {"workload": name, "device": gpus[gpu], "condition": dict(BASELINE), "method": method},
            gpu,
            kernel,
        )
        for number, name in enumerate(names)
        for gpu in range(len(gpus))
        for method in METHODS
    ]
    return {
        "format_version": 2,
        "campaign": {"id": "made-1", "name": "made up", "synthetic": True, "seed": 0},
        "versions": {"assay": "0.1.0"},
        "runs": [run for number, name in enumerate(names) for run in _runs(number, name, gpus)],
        "summary": [_summed(row) for row in rows if row["method"] == "pks"],
        "rows": rows,
        "recommendations": [_recommended(name) for name in names],
        "selections": {
            f"{name}/{method}": _selection(method, kernel) for name in names for method in METHODS
        },
    }


def made_rows(report: dict[str, Any]) -> bytes:
    """The Parquet file of a made-up report."""
    return report_parquet(parse_report(json.dumps(report).encode()))


def _spread(number: int, gpu: int, method: str) -> float:
    """A signed error in percent that looks drawn, and is the same everywhere."""
    seed = math.sin(12.9898 * (number + 1) + 78.233 * (gpu + 1) + 37.7 * len(method)) * 43758.5453
    return (seed - math.floor(seed) - 0.5) * 10.0


def _row(number: int, place: dict[str, Any], gpu: int, kernel: str) -> dict[str, Any]:
    name, method = place["workload"], place["method"]
    if gpu == 1 and number % 17 == 16:
        differing = f"launch 0: {kernel} instead of g"
        cause = "only 98.11 % of the launches match (name_block; 4,992 of 5,088), and 99 % are needed"
        error = {"code": "misaligned", "subject": f"run {number} and run {number + 1}", "cause": cause,
                 "remedy": "compare the launches", "differences": [differing]}  # fmt: skip
        return {**place, "status": "refused", "reason": f"{error['subject']}: {cause}", "error": error}
    carried = gpu == 1 and number % 13 == 12 and method == "pks"
    signed = 114.0 if carried else _spread(number, gpu, method)
    projected = _TOTAL_NS * (1.0 + signed / 100.0)
    interval = (
        {"low": projected * 0.97, "high": projected * 1.03, "confidence": 0.95,
         "expected_error_percent": 1.5, "basis": "known_design"}
        if method == "random" else None
    )  # fmt: skip
    group = {"group": 0, "kernel": kernel, "grid": [10, 12, 1], "launches": 6000, "ratio": 1.6,
             "representative_ratio": 3.6, "spread_percent": 48.0, "misfit_points": 48.0,
             "error_points": signed}  # fmt: skip
    return {
        **place, "status": "ok", "launches": 12345, "kernels": 7, "groups": 10, "representatives": 10,
        "selected_on": {"device": GPUS[0], "condition": dict(BASELINE)}, "selection": f"{name}/{method}",
        "parameters": {"target_error_percent": 5.0}, "weights": "launches",
        "cost": {"quantity": "duration_ns", "unit": "ns", "condition": dict(BASELINE),
                 "total": _TOTAL_NS, "projected": projected},
        "error_percent": abs(signed), "signed_error_percent": signed,
        "group_error_percent": abs(signed) + 1.0,
        "speedup": 100.0 + number, "interval": interval,
        "decomposition": {"representatives": signed * 0.8, "labels": None,
                          "not_separated": signed * 0.2,
                          "not_separated_parts": ["representatives", "labels"]},
        "match": {"percent": 100.0, "kind": "exact", "between": "levels", "exact": 100.0,
                  "name_block": 100.0, "position": 100.0},
        "star": gpu == 0 and method == "pks",
        "widest_groups": [group] if carried else [],
        "flags": [{"run_id": f"made-1.{number:04d}", "name": "concurrent_launches", "detail": "3 % overlap"}]
        if number % 11 == 10 else [],
        "runs": [f"made-1.{number:04d}"],
    }  # fmt: skip


def _summed(row: dict[str, Any]) -> dict[str, Any]:
    names = ("workload", "device", "condition", "method", "status", "reason", "error", "launches", "kernels",
             "groups", "error_percent", "group_error_percent", "speedup", "selection")  # fmt: skip
    return {name: row[name] for name in names if name in row}


def _recommended(name: str) -> dict[str, Any]:
    reason = {"code": "fastest_within_target", "text": "pks is the fastest within 5 %", "method": "pks",
              "error_percent": 2.5, "speedup": 100.0, "target_error_percent": 5.0}  # fmt: skip
    return {"workload": name, "device": GPUS[0], "condition": dict(BASELINE), "method": "pks",
            "reason": reason, "selection": f"{name}/pks"}  # fmt: skip


def _runs(number: int, name: str, gpus: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"run_id": f"made-1.{number:04d}-{gpu}{level}", "workload": name, "device": gpus[gpu], "level": level,
         "condition": dict(BASELINE), "launches": 12345, "content_hash": f"{number:04x}{gpu}" * 8,
         "synthetic": True}
        for gpu in range(len(gpus))
        for level in ("light", "detailed")
    ]  # fmt: skip


def _selection(method: str, kernel: str) -> dict[str, Any]:
    representative = {"process": 0, "launch": 17, "sim_id": 18, "kernel": kernel, "grid": [4, 2, 1],
                      "block": [256, 1, 1], "weight": 1234.5}  # fmt: skip
    return {
        "method": method, "parameters": {}, "seed": 0,
        "profile": {"launches": 12345, "kernels": 7, "devices": ["V100"], "sources": ["made-1.0001"],
                    "synthetic": True},
        "groups": [{"id": at, "launches": 1234 + at, "instruction_share": 0.1,
                    "representatives": [representative]} for at in range(10)],
    }  # fmt: skip
