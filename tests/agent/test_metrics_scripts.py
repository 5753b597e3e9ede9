"""What ``assay metrics`` prints, run to its last line by the stand-ins of ncu and nsys: a selection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_client.cli.main import main
from assay_sampling.methods.registry import samplers
from tests.support.agent.stand_ins import PROCESS_0, PROCESS_1, WORKLOAD, Bench

RATIO = ("-p", "estimator=ratio")
RELEASES = ("2022.3.0", "2024.1.1")
CASES: list[tuple[str, ...]] = [
    *[(method,) for method in samplers() if method != "photon"],
    *[(method, *RATIO) for method in ("random", "systematic", "stratified")],
    ("pks", "--first", "9", "--skip", "2"),
    ("pks", "-p", "features=artifact12"),
]
# Nsight Compute numbers the launches of all processes in one row, Nsight Systems those of each.
SEVERAL = [("pks",), ("tbpoint",), ("sieve",), ("random", *RATIO)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("arguments", CASES)
def test_the_script_ends_in_a_selection(
    release: str,
    arguments: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path, variables={"ASSAY_VIRTUAL_NCU_VERSION": f"{release}.0"})
    bench.workload.write_text(WORKLOAD.replace("processes = 2\n", "").replace("processes = [0]\n", ""))
    selection = _selected(bench, capfd, *arguments, "--tool-version", release)
    assert (selection["method"], selection["profile"]["launches"]) == (arguments[0], 27)


@pytest.mark.parametrize("arguments", SEVERAL)
def test_launches_of_several_processes_are_joined(
    arguments: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    selection = _selected(Bench(tmp_path), capfd, *arguments)
    assert (selection["method"], selection["profile"]["launches"]) == (arguments[0], PROCESS_0 + PROCESS_1)


def _selected(bench: Bench, capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The selection that the last command makes."""
    assert main(["metrics", *arguments, "--gpu", bench.kind, "--json", "--", str(bench.workload)]) == 0
    for command in json.loads(capfd.readouterr().out)["commands"]:
        program, *words = command["argv"]
        if program == "assay":
            assert main([*words, "--json"]) == 0, capfd.readouterr().err
            break
        answer = getattr(bench, program)(*words)
        assert answer.status == 0, answer
        if command["output"]:
            (bench.folder / command["output"]).write_text(answer.output)
    selection: dict[str, Any] = json.loads(capfd.readouterr().out)
    return selection
