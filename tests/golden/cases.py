"""The command lines of the golden set, by the name of the file that keeps what they gave."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from golden.running import agent, as_process, in_process, server

Steps = list[dict[str, Any]]
METHODS = ("pks", "random", "systematic", "stratified", "first_instructions", "single_iteration", "tbpoint",
           "proportional", "balanced", "photon", "sieve", "stem")  # fmt: skip

# Verbs that read files and write at most files: name -> command lines, with the files that each writes.
_Lines = list[tuple[str, list[str]]]
FILE_VERBS: dict[str, _Lines] = {
    "inspect": [
        ("inspect window.csv light.json light.sqlite faster.json", []),
        ("inspect rank1.json --synthetic", []),
    ],
    **{f"select_{method}": [(f"select {method} window.csv", [])] for method in METHODS},
    "select_two_levels": [
        ("select pks window.csv --light light.json -o selection.json", ["selection.json"]),
        ("select stem window.csv --light light.sqlite -o selection.csv", ["selection.csv"]),
        ("select random light.json -p launches=7 --seed 5", []),
        ("select systematic light.json rank1.json --ranks -p launches=9", []),
        ("select pks window.csv -p k=3 -p representative=center", []),
        ("select sieve window.csv -p theta_sweep=true", []),
        ("select tbpoint window.csv -p sweep=true", []),
        ("select stem window.csv -p epsilon_percent=5", []),
        ("select single_iteration periodic.json", []),
        ("select photon periodic.json -p bbv=vectors.csv", []),
    ],
    "compare": [
        ("compare window.csv", []),
        ("compare window.csv --light light.json -m pks -m random -p random.launches=6", []),
        ("compare light.json rank1.json --ranks -m systematic -m stem", []),
    ],
    "classify": [
        ("classify window.csv --light light.json -o groups.csv", ["groups.csv"]),
        ("classify window.csv --light light.sqlite -p abstain=true", []),
    ],
    "evaluate": [
        ("select pks window.csv --light light.json -o selection.json", []),
        ("evaluate selection.json faster.json", []),
        ("evaluate selection.json light.json faster.json", []),
        ("select sieve window.csv -o sieve.json", ["sieve.json"]),
        ("evaluate sieve.json flushed.csv", []),
        ("evaluate sieve.json flushed.csv --cost instructions", []),
        ("evaluate selection.json other.json", []),
        ("select systematic light.json rank1.json --ranks -p launches=9 -o ranks.json", []),
        ("evaluate ranks.json light.json rank1.json --ranks", []),
    ],
    "project": [
        ("project pkp.out --intervals pkp_intervals.txt", []),
        ("project pkp.out --intervals pkp_intervals.txt -p rule=artifact -p window_cycles=2000", []),
        ("project series.csv -p wave_ctas=32 -p total_ctas=320", []),
        ("project series.csv -p wave_ctas=32 -p total_ctas=320 -p total_instructions=2040000", []),
        ("project series.csv -p wave_ctas=3200 -p total_ctas=32000", []),
        ("project pkp.out --intervals pkp_intervals.txt --rule instructions", []),
    ],
    "scale_model": [
        ("scale-model evaluate table.csv", []),
        ("scale-model evaluate table.csv --weak-scaling", []),
        ("scale-model predict table.csv -w flat", []),
        ("scale-model predict table.csv -w flat -t 64 --rule linear --calibration table.csv", []),
        ("scale-model predict table.csv -w falls -t 32 --models 8,16 --level 0.5", []),
        ("scale-model miss-rates traces/kernelslist.g --capacity 256 --capacity 1KiB", []),
        (
            "scale-model miss-rates traces/kernel-1.traceg --capacity 256 --sampling-rate 0.5 "
            "--resident-blocks 2 --line 64 --sectors 2",
            [],
        ),
    ],
    "cold_start": [
        ("cold-start window.csv flushed.csv", []),
        ("cold-start window.csv flushed.csv --cost instructions", []),
        ("cold-start simulated.out simulated_flushed.out", []),
        ("cold-start simulated.out simulated_flushed.out --active-cycles", []),
    ],
    "reuse": [
        ("reuse traces/kernelslist.g", []),
        ("reuse traces/kernel-2.traceg traces/kernel-3.traceg", []),
        (
            "reuse traces/kernelslist.g --warm-up 3 --preceding 2 -o warm/list.g",
            ["warm/list.g", "warm/kernel-mem-1.traceg", "warm/kernel-mem-2.traceg"],
        ),
    ],
    "export": [
        ("select systematic simulated.out -p launches=2 -o selection.json", []),
        (
            "export selection.json --to accel-sim --traces simulated_traces --warm-up 1 -o accel",
            [
                "accel/kernelslist.g",
                "accel/warm-kernelslist.g",
                "accel/warm-up.txt",
                "accel/tracer.env",
                "accel/ids.txt",
                "accel/kernel_ids.txt",
                "accel/kernel-1.traceg",
                "accel/weights.txt",
            ],
        ),
        (
            "export selection.json --to macsim --traces macsim_traces -o macsim",
            ["macsim/kernel_config.txt", "macsim/trace_file_list", "macsim/weights.txt"],
        ),
        ("export selection.json --to nvbit --warm-up 1 -o nvbit", ["nvbit/tracer.env", "nvbit/ids.txt"]),
        ("export selection.json --to weights -o weights.txt", ["weights.txt"]),
        (
            "export selection.json --to perfetto --recording simulated.out -o selection.trace.json",
            ["selection.trace.json"],
        ),
        ("export weights.txt --to nvbit -o again", ["again/ids.txt", "again/weights.txt"]),
        ("export selection.json --to nvbit -o nvbit", []),
        ("export selection.json --to accel-sim --traces traces -o other", []),
        ("export selection.json --to accel-sim --traces macsim_traces -o other", []),
        ("export selection.json --to macsim --traces simulated_traces -o other", []),
        ("export selection.json --to accel-sim -o other", []),
        ("export selection.json --to gem5 -o other", []),
        ("export window.csv --to weights -o other.txt", []),
    ],
    "import_accel_sim": [
        ("select systematic simulated.out -p launches=2 -o selection.json", []),
        ("export selection.json --to weights -o weights.txt", []),
        ("import accel-sim simulated.out --selection selection.json -o joined.json", ["joined.json"]),
        ("import accel-sim simulated.out --selection weights.txt", []),
        ("import accel-sim simulated.out --selection selection.json --recording simulated_flushed.out", []),
        ("import accel-sim simulated_flushed.out --full simulated.out --selection selection.json", []),
        ("import accel-sim pkp.out --selection selection.json", []),
        ("import accel-sim window.csv --selection selection.json", []),
        ("import accel-sim simulated.out --selection window.csv", []),
        ("import accel-sim nowhere.out --selection selection.json", []),
    ],
    "metrics": [
        *((f"metrics {method}", []) for method in METHODS),
        (
            "metrics pks --gpu V100 --tool-version 2024.1.1 --first 500 --skip 20 -p features=artifact12",
            [],
        ),
        ("metrics sieve --gpu 9.0", []),
    ],
    "plan": [
        ("plan campaign.yaml", []),
        ("plan virtual.yaml", []),
        ("plan auto.yaml --assume launches=5000", []),
    ],
    "init": [("init made/campaign.yaml", ["made/campaign.schema.json"])],
    "docs": [("docs exit-codes", [])],
}

# Bad input of every kind, and what each verb ends with.
ERRORS = (
    "frobnicate",
    "inspect",
    "inspect --no-such-option window.csv",
    "inspect nowhere.csv",
    "inspect empty.csv",
    "inspect cut.json",
    "inspect bad.csv",
    "inspect mixed.toml",
    "inspect traces",
    "select nothing window.csv",
    "select pks window.csv -p k",
    "select pks window.csv -p kmax=3",
    "select pks window.csv -p k=many",
    "select pks window.csv -p k=2 -p k=3",
    "select pks window.csv -p k=0",
    "select pks light.json",
    "select pks window.csv --light other.json",
    "select pks window.csv -o selection.txt",
    "select pks window.csv -o nowhere/selection.json",
    "select pks window.csv --memory-limit much",
    "select pks window.csv --memory-limit 1K",
    "select pks window.csv --seed -1",
    "select pks window.csv faster.json",
    "select photon light.json",
    "compare light.json -m pks",
    "compare window.csv -m nothing",
    "compare window.csv -m pks -p pks.nothing=1",
    "classify window.csv",
    "classify window.csv --light other.json",
    "classify window.csv --light light.json -o groups.txt",
    "evaluate window.csv light.json",
    "evaluate empty.csv light.json",
    "evaluate table.csv light.json faster.json other.json",
    "project pkp.out",
    "project simulated.out --intervals pkp_intervals.txt",
    "project series.csv",
    "project series.csv -p rule=nothing",
    "project table.csv -p wave_ctas=32 -p total_ctas=320",
    "scale-model",
    "scale-model evaluate series.csv",
    "scale-model predict table.csv",
    "scale-model predict table.csv -w nothing",
    "scale-model predict table.csv -w flat --rule nothing",
    "scale-model predict table.csv -w flat --models 8",
    "scale-model miss-rates traces/kernelslist.g --capacity much",
    "scale-model miss-rates traces/kernelslist.g --capacity 256 --sectors 3",
    "cold-start window.csv simulated.out",
    "cold-start window.csv flushed.csv --active-cycles",
    "cold-start window.csv light.json",
    "reuse nowhere.g",
    "reuse traces/kernelslist.g --warm-up 9",
    "metrics nothing",
    "metrics pks --gpu nothing",
    "metrics pks --tool-version 1",
    "plan wrong.yaml",
    "plan nowhere.yaml",
    "plan campaign.yaml --assume nothing=3",
    "plan window.csv",
    "run wrong.yaml --state state",
    "run virtual.yaml --state /proc/nowhere",
    "init table.csv",
    "import --workload w --device V100",
    "import light.json faster.json --workload w --device V100 --state state",
    "import light.json --workload w --device V100 --condition cache=some --state state",
    "import light.json --workload w --device A100 --state state --server unix:socket",
    "docs nothing",
    "lab status --server nothing",
    "lab status --server unix:/nowhere",
    "lab status --server 192.0.2.1:5000",
    "report x-1 --server unix:/nowhere --format pdf",
    "explain x-1.0000 --server unix:/nowhere",
    "lab cancel x-1 --server unix:/nowhere",
    "lab status x-1 --follow --server unix:/nowhere",
    "lab submit campaign.yaml --server unix:/nowhere",
    "lab submit nowhere.yaml --server unix:/nowhere",
)


def _lines(lines: _Lines) -> Callable[[], Steps]:
    return lambda: [in_process([*line.split(), "--json"], files) for line, files in lines]


def _errors() -> Steps:
    return [in_process([*line.split(), "--json"]) for line in ERRORS]


def _run() -> Steps:
    return [
        as_process("assay", ["run", "failing.yaml", "--state", "state", "-o", "out", "--json"],
                   ["out/report.json"]),
        as_process("assay", ["import", "light.json", "--detailed", "window.csv", "--workload", "loop",
                             "--device", "V100", "--state", "state", "--json"]),
    ]  # fmt: skip


def _doctor() -> Steps:
    steps = [in_process(["doctor", "--for", "agent", "--json"])]
    steps += [
        as_process("assay-agent", words.split())
        for words in (
            "doctor --for client --state agent-state --json",
            "inventory --json",
            "probe --state agent-state --virtual V100:2 --json",
            "policy check --json -- /bin/true",
            "quarantine list --state agent-state --json",
            "quarantine clear GPU-1 --state agent-state --json",
            "new-identity --state agent-state --json",
        )
    ]
    return steps


CAMPAIGNS = ("campaign.yaml", "failing.yaml", "virtual.yaml", "auto.yaml")


def _lab() -> Steps:
    """A server and an agent with two virtual GPUs as processes; every verb that asks a server."""
    address = f"unix:{Path.cwd()}/socket"
    os.environ["ASSAY_SERVER"] = address
    with server(Path("server"), address):
        steps = [in_process(["lab", "status", "--json"])]
        steps += [in_process(["lab", "submit", name, "--json"]) for name in CAMPAIGNS]
        identifiers = [step["stdout"]["campaign_id"] for step in steps[1:]]
        steps.append(in_process(["plan", "wrong.yaml", "--json"]))
        steps.append(in_process(["lab", "submit", "wrong.yaml", "--json"]))
        with agent(Path("agent"), "--virtual", "V100", "--virtual", "RTX 3070"):
            for identifier in identifiers:
                steps.append(in_process(["lab", "status", "--follow", identifier, "--json"]))
        for identifier in identifiers:
            _wait_for_report(identifier)
            steps.append(in_process(["lab", "status", identifier, "--json"]))
            steps.append(in_process(["report", identifier, "--json"]))
            runs = steps[-2]["stdout"]["runs"]
            steps += [in_process(["explain", run["run_id"], "--json"]) for run in runs]
        steps.append(in_process(["report", identifiers[1], "-o", "out", "--json"], ["out/report.json"]))
        steps.append(in_process(["lab", "submit", "failing.yaml", "--json"]))
        second = steps[-1]["stdout"]["campaign_id"]
        steps += [
            in_process([*words.split(), "--json"])
            for words in (f"lab status {second}", f"report {second}", f"lab cancel {second}",
                          f"lab status {second} --follow", "lab status",
                          "lab status nothing-1", "explain nothing-1.0000", "report nothing-1",
                          "import light.json --workload later --device V100 --server " + address)
        ]  # fmt: skip
    records = sorted(Path("server/records").rglob("*.parquet"))
    steps += [in_process(["inspect", *map(str, records), "--json"])]
    return [*steps, *({"record": str(path), "columns": columns_of(path)} for path in records)]


def columns_of(path: Path) -> dict[str, str]:
    """A hash of the values of each column."""
    table = pq.read_table(path)
    return {
        name: hashlib.sha256(json.dumps(table[name].to_pylist()).encode()).hexdigest()[:16]
        for name in table.column_names
    }


def _wait_for_report(identifier: str) -> None:
    for _ in range(600):
        if in_process(["report", identifier, "--json"])["exit_code"] == 0:
            return
        time.sleep(0.1)


# The longest first: it runs beside the others.
CASES: dict[str, Callable[[], Steps]] = {
    "lab": _lab,
    **{name: _lines(lines) for name, lines in FILE_VERBS.items()},
    "errors": _errors,
    "run": _run,
    "doctor": _doctor,
}


def dumped(steps: Steps) -> str:
    """As it is kept: a line for each value, so that a change of one is a line of a diff."""
    return json.dumps(steps, indent=1, ensure_ascii=True) + "\n"
