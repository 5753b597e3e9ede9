"""A small report document, complete in form, with numbers that are easy to look for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

BASELINE = {"cache": "none", "clock": "none", "sm_percent": 100.0}
HOSTILE = "void f<script>alert('x')</script>(int*, char const&) | `code` ![i](http://evil.example/x.png)"


def row(device: str, method: str, error: float | None, **changes: Any) -> dict[str, Any]:
    ok = error is not None
    return {
        "workload": "training", "device": device, "condition": dict(BASELINE), "method": method,
        "asked_parameters": {}, "parameters": {"features": "table2"}, "seed": 0,
        "status": "ok" if ok else "not applicable", "reason": "" if ok else "PKS not applicable: no counters",
        "error": None,
        "selected_on": {"device": "V100", "condition": dict(BASELINE)} if ok else None,
        "selection": f"training/{method}" if ok else None,
        "launches": 12345, "kernels": 7, "groups": 3 if ok else None, "representatives": 3 if ok else None,
        "cost": {"quantity": "duration_ns", "unit": "ns", "condition": dict(BASELINE), "total": 2e9,
                 "projected": 2.1e9} if ok else None,
        "error_percent": error, "signed_error_percent": error, "group_error_percent": error,
        "speedup": 512.5 if ok else None,
        "match": {"percent": 98.999, "kind": "exact", "between": "levels", "exact": 98.999,
                  "name_block": 99.5, "position": 100.0, "at_least": []} if ok else None,
        "model": None, "window": None, "unknown": None, "overlap": None, "flags": [], "runs": ["demo-1.0000"],
        "notes": [], **changes,
    }  # fmt: skip


def summary_entry(source: dict[str, Any]) -> dict[str, Any]:
    model, unknown = source["model"] or {}, source["unknown"] or {}
    names = ("workload", "device", "condition", "method", "status", "reason", "error", "selected_on",
             "launches", "kernels", "groups", "error_percent", "group_error_percent", "speedup")  # fmt: skip
    return {
        **{name: source[name] for name in names},
        "cost_quantity": "duration_ns",
        "match_percent": (source["match"] or {}).get("percent"),
        "match_kind": "exact",
        "model": model.get("chosen"),
        **{
            f"{split}_{kind}_percent": model.get(f"{split}_{kind}_percent")
            for split in ("chronological", "grouped")
            for kind in ("accuracy", "balanced_accuracy")
        },
        "agreement_percent": model.get("agreement_percent"),
        "ambiguous_percent": model.get("ambiguous_percent"),
        "unknown_launches": unknown.get("launches"),
        "unknown_percent": None,
        "flags": [],
    }


MODEL = {
    "chosen": "gaussian_nb", "chronological_accuracy_percent": 91.25, "grouped_accuracy_percent": 77.5,
    "chronological_balanced_accuracy_percent": 83.375, "grouped_balanced_accuracy_percent": 61.125,
    "agreement_percent": 88.75, "ambiguous_percent": 6.5,
    "models": [
        {"name": name, "chronological_accuracy_percent": accuracy, "grouped_accuracy_percent": 77.5,
         "chronological_balanced_accuracy_percent": 83.375, "grouped_balanced_accuracy_percent": 61.125,
         "error_percent": 3.25, "group_error_percent": 4.5, "speedup": 99.5}
        for name, accuracy in (("sgd", 81.5), ("gaussian_nb", 91.25), ("mlp", 90.25))
    ],
}  # fmt: skip
WINDOW = {"launches": 1500, "k": 4, "cost": {"quantity": "cycles_gpc_avg"}, "error_percent": 2.75,
          "group_error_percent": 3.5, "speedup": 41.5}  # fmt: skip
UNKNOWN = {"launches": 28, "groups": 3, "percent": 0.2}


@pytest.fixture
def report() -> dict[str, Any]:
    pks = row("V100", "pks", 4.125, model=MODEL, window=WINDOW, unknown=UNKNOWN)
    rows = [pks, row("V100", "random", 0.5), row("A100", "pks", 40.0), row("A100", "random", None)]
    flag = {"run_id": "demo-1.0001", "name": "units_assumed", "detail": HOSTILE, "invalidates": False}
    representative = {"process": 0, "launch": 17, "sim_id": 18, "kernel": HOSTILE, "grid": [4, 2, 1],
                      "block": [256, 1, 1], "weight": 12300.0}  # fmt: skip
    document = {
        "format_version": 2,
        "campaign": {"id": "demo-1", "name": "demo", "synthetic": True, "seed": 7},
        "versions": {"assay": "0.1.0", "numpy": "2.0"},
        "runs": [
            {"run_id": "demo-1.0001", "workload": "training", "device": "V100", "level": "light",
             "condition": dict(BASELINE), "repeat": 0, "under_mps": False, "launches": 12345,
             "content_hash": "abc123def",
             "flags": [flag], "synthetic": True}
        ],
        "failed_runs": [
            {"run_id": "demo-1.0002", "workload": "training", "device": "A100", "level": "detailed",
             "condition": dict(BASELINE), "repeat": 0, "reason": HOSTILE}
        ],
        "summary": [summary_entry(rows[0]), summary_entry(rows[2])],
        "rows": rows,
        "selections": {
            "training/pks": {
                "method": "pks", "parameters": {}, "seed": 7,
                "profile": {"launches": 12345, "kernels": 7, "devices": ["V100"], "sources": ["demo-1.0001"],
                            "synthetic": True},
                "groups": [{"id": 0, "launches": 45, "instruction_share": 0.25,
                            "representatives": [representative]},
                           {"id": 1, "launches": 12300, "instruction_share": 0.75,
                            "representatives": [representative, representative]}],
            }
        },
    }  # fmt: skip
    return copy.deepcopy(document)
