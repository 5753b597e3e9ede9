"""A verb that is given a file of another kind says what it is and names the verbs that read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.readers.known_files import known_file
from assay_sampling.readers.opening import what_is_this
from tests.support.client import hand_made
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed

Assay = Callable[..., Any]
SIX = [logs.Launch(traced_id=at + 1) for at in range(6)]


@pytest.fixture
def files(tmp_path: Path, assay: Assay) -> dict[str, Path]:
    """A file of each kind, as the tools and our own verbs write it."""
    found = {name: tmp_path / name for name in (
        "page.csv", "selection.json", "selection.csv", "weights.txt", "simulator.out", "intervals.log",
        "series.csv", "table.csv", "campaign.yaml", "workload.toml", "rows.json", "simulated.json",
        "evaluation.json", "labels.csv", "stats.csv", "light.json", "report.json",
    )}  # fmt: skip
    hand_made.write_raw_page(found["page.csv"], 6)
    hand_made.write_kineto(found["light.json"], 6)
    found["simulator.out"].write_text(logs.output(SIX))
    found["intervals.log"].write_text(logs.sample(100, 50, 1))
    found["series.csv"].write_text("cycles,instructions,ctas\n100,5,1\n")
    found["table.csv"].write_text("workload,size,size_unit,ipc,mpki,f_mem\na,8,sm,1.0,,\n")
    found["campaign.yaml"].write_text("campaign: a\nworkloads:\n  - {name: w, command: [./w]}\n")
    found["workload.toml"].write_text('workload = "w"\n[kernels.k]\nname = "k"\n')
    found["labels.csv"].write_text("process,launch,group,origin\n0,0,0,window\n")
    found["stats.csv"].write_text("kernel id, kernel mangled name, grid_dimX\n")
    found["report.json"].write_text(json.dumps({"format_version": 2, "campaign": {"id": "a-1"}}))
    selection, log = found["selection.json"], found["simulator.out"]
    for arguments in (
        ("select", "random", log, "-p", "launches=2", "-o", selection),
        ("select", "random", log, "-p", "launches=2", "-o", found["selection.csv"]),
        ("export", selection, "--to", "weights", "-o", found["weights.txt"]),
        ("pka-table", "row", selection, log, "-o", found["rows.json"]),
        ("import", "accel-sim", log, "--selection", selection, "-o", found["simulated.json"]),
    ):
        assert assay(*arguments).code == 0
    found["evaluation.json"].write_text(assay("evaluate", selection, log, "--json").stdout)
    found["list"] = write_listed(tmp_path / "traces", [Listed(1)])
    found["trace"] = tmp_path / "traces" / "kernel-1.traceg"
    return found


KINDS = {
    "page.csv": "recording", "light.json": "recording", "selection.json": "selection",
    "selection.csv": "selection_csv", "weights.txt": "weights", "simulator.out": "simulator_output",
    "intervals.log": "intervals", "series.csv": "series", "table.csv": "scaling_table",
    "campaign.yaml": "campaign", "workload.toml": "workload", "rows.json": "pka_rows",
    "simulated.json": "simulation", "evaluation.json": "evaluation", "labels.csv": "labels",
    "stats.csv": "tracer_statistics", "report.json": "report", "list": "kernels_list", "trace": "trace",
}  # fmt: skip


def test_every_kind_of_file_is_told(files: dict[str, Path], tmp_path: Path) -> None:
    found = {name: what_is_this(path) for name, path in files.items()}
    assert {name: kind.code if kind else None for name, kind in found.items()} == KINDS
    assert what_is_this(tmp_path / "nothing") is None
    (tmp_path / "text").write_text("hello\n")
    assert what_is_this(tmp_path / "text") is None


# What is typed, which file stands for FILE, and a command that the message must name.
WRONG = [
    (("inspect", "FILE"), "intervals.log", "assay project"),
    (("inspect", "FILE"), "selection.json", "assay evaluate"),
    (("inspect", "FILE"), "weights.txt", "assay export"),
    (("inspect", "FILE"), "list", "assay export SELECTION --to accel-sim --traces"),
    (("inspect", "FILE"), "campaign.yaml", "assay plan"),
    (("inspect", "FILE"), "report.json", "assay report"),
    (("inspect", "FILE"), "series.csv", "assay project"),
    (("select", "pks", "FILE"), "selection.json", "assay evaluate"),
    (("select", "pks", "FILE"), "trace", "assay reuse"),
    (("evaluate", "FILE", "page.csv"), "page.csv", "assay inspect"),
    (("evaluate", "FILE", "page.csv"), "simulator.out", "assay import accel-sim"),
    (("evaluate", "FILE", "page.csv"), "selection.csv", "-o selection.json"),
    (("export", "FILE", "--to", "weights"), "page.csv", "assay inspect"),
    (("project", "FILE"), "page.csv", "assay inspect"),
    (("project", "FILE"), "selection.json", "assay evaluate"),
    (("project", "FILE"), "table.csv", "assay scale-model"),
    (("pka-table", "suites", "FILE"), "simulator.out", "assay project"),
    (("reuse", "FILE"), "simulator.out", "assay project"),
    (("scale-model", "evaluate", "FILE"), "series.csv", "assay project"),
    (("import", "accel-sim", "FILE", "--selection", "selection.json"), "intervals.log", "--intervals"),
    (("import", "accel-sim", "FILE", "--selection", "selection.json"), "page.csv", "assay inspect"),
    (("import", "accel-sim", "simulator.out", "--selection", "FILE"), "rows.json", "assay pka-table"),
    (("import", "FILE", "--workload", "w", "--device", "V100"), "selection.json", "assay evaluate"),
    (("plan", "FILE"), "page.csv", "assay inspect"),
    (("run", "FILE"), "selection.json", "assay evaluate"),
]  # fmt: skip


def test_a_file_of_another_kind_names_the_verb_that_reads_it(files: dict[str, Path], assay: Assay) -> None:
    for words, given_file, named in WRONG:
        ended = assay(*(files[given_file] if word == "FILE" else files.get(word, word) for word in words))
        assert ended.code in (3, 4), words
        assert ended.stdout == ""
        assert f"{files[given_file]}: it is " in ended.stderr, words
        assert named in ended.stderr, words


def test_inspecting_a_simulators_log_names_what_else_reads_it(files: dict[str, Path], assay: Assay) -> None:
    shown = " ".join(assay("inspect", files["simulator.out"]).stdout.split())
    assert f"assay project {files['simulator.out']}" in shown
    assert "assay import accel-sim" in shown


@given(st.binary(max_size=300))
def test_any_bytes_have_at_most_one_kind(head: bytes) -> None:
    for text in (head, b"{" + head, b'{"method": 1, "groups": ' + head):
        known_file(text)
