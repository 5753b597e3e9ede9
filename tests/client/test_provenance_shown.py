"""Where numbers come from, on the terminal: the facts of an attempt, the table of a report, its sequences."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay_sampling.running.attempt_facts import (
    AttemptFacts,
    ConditionFacts,
    CounterFacts,
    LibraryFact,
    LibraryFacts,
    ProgramFact,
    ToolFact,
)
from tests.support.client.scripted_server import FakeServer, Script
from tests.support.client.server_answers import REPORT, Assay, run_detail

BASELINE = {"cache": "none", "clock": "none", "sm_percent": 100.0}
FACTS = AttemptFacts(
    gpu="H100",
    driver="550.163.01",
    cuda="12.4",
    tools=(ToolFact("ncu", "2024.1.1", "/opt/ncu"),),
    libraries=LibraryFacts(
        "found",
        (
            LibraryFact(
                "libcublas", "12", "nvidia-cublas-cu12 12.4.5.8", "/v/libcublas.so.12", 1_234_567, "edges:ab"
            ),
            LibraryFact("libcupti", "12", of_tool=True, path="/opt/libcupti.so.12"),
        ),
        3,
        "the runtime is linked statically",
    ),
    condition=ConditionFacts(
        "all", "ncu --cache-control all", 50.0, 50.0, 66, 132, "limit", "private", "550.163.01",
        "/usr/bin/mps", "base", "refused", "", "not permitted",
    ),
    counters=CounterFacts(("a", "b"), {"a": "smsp__a.sum"}, ("b",), 1, 3),
    environment_hash="00ff",
    program=ProgramFact("/opt/train", 4096, "ab" * 32),
)  # fmt: skip


@pytest.fixture(autouse=True)
def address(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ASSAY_SERVER", server.address)
    return server.address


def shown(assay: Assay, script: Script, facts: str) -> str:
    detail = run_detail()
    detail.attempts[0].facts_json = facts
    script.run = lambda _: detail
    ended = assay("explain", "c-1.0000")
    assert ended.code == 0
    return " ".join(ended.stdout.split())


def test_an_explained_run_draws_the_facts_of_an_attempt(assay: Assay, script: Script) -> None:
    text = shown(assay, script, FACTS.to_json())
    for part in (
        "rests on H100 driver 550.163.01, CUDA 12.4 tool ncu 2024.1.1, /opt/ncu",
        f"program /opt/train, 4,096 bytes, SHA-256 {'ab' * 32}",
        "cache all: ncu --cache-control all",
        "SM share 50 % asked, 50 % in force, 66 of 132 SMs as probed, private MPS daemon 550.163.01",
        "clock base asked, refused: not permitted",
        "counters 1 collected; missing: b; 1 to 3 passes a launch",
        "libraries 2 found, 3 more left out; the runtime is linked statically",
        "environment hash 00ff",
        "libcublas 12 nvidia-cublas-cu12 12.4.5.8 1,234,567 edges:ab workload /v/libcublas.so.12",
        "libcupti 12 - - - profiler /opt/libcupti.so.12",
    ):
        assert part in text, part
    document = json.loads(assay("explain", "c-1.0000", "--json").stdout)
    assert document["run"]["attempts"][0]["facts"] == json.loads(FACTS.to_json())


def test_a_program_without_a_hash_says_why_and_none_says_nothing(assay: Assay, script: Script) -> None:
    vanished = ProgramFact("/opt/[red]train", note="it cannot be read (Permission denied)")
    text = shown(assay, script, replace(FACTS, program=vanished).to_json())
    assert "program /opt/[red]train, no hash: it cannot be read (Permission denied)" in text
    assert "program" not in shown(assay, script, replace(FACTS, program=ProgramFact()).to_json())


def test_synthetic_and_recorded_attempts_say_what_they_are(assay: Assay, script: Script) -> None:
    text = shown(assay, script, replace(FACTS, synthetic=True, recording="nsys-sqlite").to_json())
    assert "rests on H100 (synthetic: no silicon produced these data)" in text
    assert "recording nsys-sqlite" in text


def test_attempts_of_other_releases_are_shown_without_facts(assay: Assay, script: Script) -> None:
    assert "rests on" not in shown(assay, script, "")
    assert json.loads(assay("explain", "c-1.0000", "--json").stdout)["run"]["attempts"][0]["facts"] is None
    assert "rests on facts of another release, see --json" in shown(assay, script, '{"version": 9}')


def entry(workload: str, device: str = "V100", **changes: Any) -> dict[str, Any]:
    return {
        "workload": workload, "device": device, "synthetic": False, "gpus": ["Tesla V100"],
        "drivers": ["550.163"], "tools": [{"name": "nsys", "version": "2023.4.4", "levels": ["light"]}],
        "libraries": [{"name": "libcublas", "versions": ["12.4", "12.5"]}], "library_notes": [],
        "measured_on": {"first": "2026-11-20", "last": "2026-11-20"}, "runs": [], "flags": [], **changes,
    }  # fmt: skip


def report_text(assay: Assay, script: Script, **parts: Any) -> str:
    script.report = lambda _, form: iter([json.dumps({**REPORT, **parts}).encode()])
    ended = assay("report", "c-1")
    assert ended.code == 0
    return " ".join(ended.stdout.split())


def test_a_report_says_once_what_its_workloads_rest_on(assay: Assay, script: Script) -> None:
    flag = {"run_id": "c-1.0003", "name": "libraries_differ", "detail": "libcublas", "invalidates": False}
    virtual = entry(
        "b", "Virtual", synthetic=True, gpus=["virtual V100"], measured_on=None, drivers=[], libraries=[],
        library_notes=["a virtual GPU runs no CUDA"],
    )  # fmt: skip
    text = report_text(assay, script, provenance=[entry("a"), entry("b", flags=[flag]), virtual])
    assert "What the numbers rest on" in text
    line = "V100 Tesla V100 550.163 2026-11-20 nsys 2023.4.4 (light) libcublas 12.4 and 12.5"
    assert f"all 2 {line}" in text
    assert text.count(line) == 1
    assert "b Virtual virtual V100 - synthetic nsys 2023.4.4 (light) a virtual GPU runs no CUDA" in text
    assert "run c-1.0003 is flagged libraries_differ: libcublas" in text


def test_a_report_of_before_says_nothing_of_it(assay: Assay, script: Script) -> None:
    assert "rest on" not in report_text(assay, script)


@pytest.mark.parametrize("status", ["ok", "refused"])
def test_launch_sequences_that_differ_stand_on_the_terminal(
    assay: Assay, script: Script, status: str
) -> None:
    first = {
        "process": 0,
        "launch": 1204,
        "reference": "gemm_a [8x1x1, 128x1x1]",
        "run": "gemm_b [4x1x1, 256x1x1]",
    }
    found = {"differing": 2, "first_difference": first} if status == "ok" else {}
    sequence = {
        "workload": "training", "device": "V100", "condition": BASELINE, "status": status, "reason": "",
        "level": "detailed", "under_mps": False, "run": "c-1.0002", "reference": "c-1.0001",
        "launches": 5000, "reference_launches": 6000, "differing": None, "first_difference": None,
        "flags": [], "runs": [], **found,
    }  # fmt: skip
    text = report_text(assay, script, sequences=[sequence])
    assert "Launch sequences that differ" in text
    assert "condition cache=none clock=none sm=100%" in text
    where = "training V100 detailed c-1.0002 c-1.0001 5,000 6,000"
    if status == "ok":
        assert (
            f"{where} 2 launch 1,204 of process 0: gemm_b [4x1x1, 256x1x1] instead of gemm_a [8x1x1, 128x1x1]"
        ) in text
    else:
        assert f"{where} refused" in text
