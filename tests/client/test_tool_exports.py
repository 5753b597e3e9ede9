"""Reports of Nsight are read through the tools in the PATH; each way in which these fail has its sentence."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_core.processes import tool_exports as exports
from assay_core.processes import tool_run
from assay_virtual.tools.scripts import write_tool_scripts
from tests.support.agent.stand_ins import PROCESS_0, PROCESS_1, Bench
from tests.support.sampling import ncu_reports

Assay = Callable[..., Any]

LAUNCHES = PROCESS_0 + PROCESS_1
VERSION = 'echo "NVIDIA Nsight, Version 2024.1.1.4"'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with no tool in it; NVIDIA's package is not installed either."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ncu_report" else find(name)
    )
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "sleep"):
        (folder / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def stand_ins(path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """NVIDIA's tools as stand-ins."""
    write_tool_scripts(path)
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)


def tool(path: Path, name: str, body: str, version: str = VERSION) -> None:
    """A tool that answers the question for its version, and else does as ``body`` says."""
    script = path / name
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ {version}; exit 0; }}\n{body}\n')
    script.chmod(0o755)


def nsys_report(bench: Bench) -> Path:
    report = bench.folder / "-light.nsys-rep"  # a name that a tool would take for an option
    assert bench.nsys("profile", "--cuda-graph-trace=node", "-o", report, bench.workload).status == 0
    return report


def whole_report(bench: Bench, name: str = "report.ncu-rep") -> Path:
    """A container as Nsight Compute 2022.3 frames it, of three launches."""
    report = bench.folder / name
    report.write_bytes(b"".join(ncu_reports.report(["a", "b", "c"])))
    return report


def refusal(assay: Assay, report: Path, code: int = 3) -> dict[str, str]:
    ended = assay("inspect", report, "--json")
    assert (ended.code, ended.stdout) == (code, "")
    error: dict[str, str] = json.loads(ended.stderr)["error"]
    return error


@pytest.mark.usefixtures("stand_ins")
def test_a_report_of_nsight_systems_is_exported(assay: Assay, bench: Bench) -> None:
    report = nsys_report(bench)
    (file,) = json.loads(assay("inspect", "--json", "--", report).stdout)["files"]
    assert (file["path"], file["format"], file["launches"]) == (str(report), "nsys-sqlite", LAUNCHES)
    assert file["synthetic"] is True
    assert sorted(bench.folder.glob("assay-*")) == []


@pytest.mark.usefixtures("stand_ins")
def test_a_report_of_nsight_compute_is_imported_and_selected_from(assay: Assay, bench: Bench) -> None:
    report = bench.folder / "counters.ncu-rep"
    metrics = "gpc__cycles_elapsed.max,gpu__time_duration.sum"
    assert bench.ncu("--metrics", metrics, "-f", "-o", report, bench.workload).status == 0
    (file,) = json.loads(assay("inspect", report, "--json").stdout)["files"]
    assert (file["path"], file["format"]) == (str(report), "ncu-raw-csv")
    assert file["launches"] == LAUNCHES
    ended = assay("select", "random", report, "--param", "launches=4", "--json")
    assert json.loads(ended.stdout)["profile"]["launches"] == LAUNCHES


@pytest.mark.processes
@pytest.mark.usefixtures("stand_ins")
def test_reports_are_imported_and_played_back_in_campaigns(assay: Assay, bench: Bench) -> None:
    report = nsys_report(bench)
    named = ("--workload", "w", "--device", "RTX 3070", "--state", bench.folder / "state", "--json")
    ended = assay("import", "--light", report.rename(bench.folder / "light.nsys-rep"), *named)
    assert (ended.code, ended.stderr) == (0, "")
    [run] = json.loads(ended.stdout)["campaign"]["runs"]
    assert (run["level"], run["state"], run["launches"]) == ("light", "done", LAUNCHES)


@pytest.mark.usefixtures("path")
def test_a_report_without_its_tool_is_not_imported(assay: Assay, bench: Bench) -> None:
    report = nsys_report(bench).rename(bench.folder / "light.nsys-rep")
    named = ("--workload", "w", "--device", "RTX 3070", "--state", bench.folder / "state", "--json")
    ended = assay("import", "--light", report, *named)
    error = json.loads(ended.stderr)["error"]
    assert error["cause"] == "it is a report of Nsight Systems, and nsys is not in the PATH to export it"
    assert error["remedy"].startswith("put nsys into the PATH")


@pytest.mark.usefixtures("path")
def test_without_the_tool_both_ways_are_named(assay: Assay, bench: Bench) -> None:
    error = refusal(assay, nsys_report(bench))
    assert error["cause"] == ("it is a report of Nsight Systems, and nsys is not in the PATH to export it")
    error = refusal(assay, whole_report(bench), 9)
    assert error["remedy"].endswith(", or put the ncu of Nsight Compute into the PATH")


def test_a_tool_that_fails_is_quoted_and_one_older_than_the_report_is_named(
    assay: Assay, bench: Bench, path: Path
) -> None:
    tool(path, "ncu", "echo '==ERROR== Failed to load report file.'; echo; exit 1")
    error = refusal(assay, whole_report(bench))
    assert "failed (exit status 1); it says: ==ERROR== Failed to load report file." in error["cause"]
    assert "newer" not in error["cause"]
    report = whole_report(bench)
    report.write_bytes(report.read_bytes().replace(b"2022.3.0", b"2025.1.0"))
    cause = refusal(assay, report)["cause"]
    assert cause.endswith("the report was written by Nsight Compute 2025.1.0.0, which is newer")


def test_a_tool_without_a_version_or_too_old_for_our_options_is_refused(
    assay: Assay, bench: Bench, path: Path
) -> None:
    report = nsys_report(bench)
    tool(path, "nsys", "exit 1", version='echo "cannot load libfoo.so"')
    assert "does not answer as Nsight Systems does" in refusal(assay, report)["cause"]
    tool(path, "ncu", "exit 1", version='echo "Version 2021.1.0.0"')
    cause = refusal(assay, whole_report(bench))["cause"]
    assert cause.endswith("Assay does not know the options of Nsight Compute 2021.1.0.0")


def test_a_tool_that_writes_nothing_is_refused(assay: Assay, bench: Bench, path: Path) -> None:
    tool(path, "nsys", "exit 0")
    assert "ended well and wrote nothing" in refusal(assay, nsys_report(bench))["cause"]
    tool(path, "ncu", "exit 0")
    assert "ended well and wrote nothing" in refusal(assay, whole_report(bench))["cause"]


def test_a_tool_that_hangs_is_ended(
    assay: Assay, bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "LEAST_SECONDS", 0.5)
    monkeypatch.setitem(tool_run.run_tool.__kwdefaults__, "ending", tool_run.EndingSteps(0.2, 0.2))
    tool(path, "nsys", "sleep 600")
    cause = refusal(assay, nsys_report(bench))["cause"]
    assert cause.endswith("had not ended after 1 seconds, and was ended")


def test_an_export_with_other_launches_than_the_report_is_refused(
    assay: Assay, bench: Bench, path: Path
) -> None:
    """The report holds three results; the tool prints a page of all launches of the workload."""
    other = bench.folder / "other.ncu-rep"
    metrics = "gpc__cycles_elapsed.max,gpu__time_duration.sum"
    assert bench.ncu("--metrics", metrics, "-f", "-o", other, bench.workload).status == 0
    page = bench.folder / "page.csv"
    page.write_text(bench.ncu("--import", other, "--csv", "--page", "raw", "--print-units", "base").output)
    tool(path, "ncu", f"cat {page}")
    error = refusal(assay, whole_report(bench))
    assert error["cause"] == f"the report holds 3 results, but its tool gives {LAUNCHES} of them"


def test_a_fault_in_the_export_is_told_of_the_report(assay: Assay, bench: Bench, path: Path) -> None:
    tool(path, "ncu", "echo 'no page at all'")
    report = whole_report(bench)
    error = refusal(assay, report)
    assert error["subject"] == str(report)
    assert error["cause"].startswith("its export cannot be read: ")


def test_a_compressed_report_is_given_to_the_tool_as_it_was(assay: Assay, bench: Bench, path: Path) -> None:
    report = whole_report(bench)
    content = report.read_bytes()
    report.write_bytes(gzip.compress(content))
    tool(path, "ncu", f'while [ "$1" != --import ]; do shift; done; cat "$2" > {bench.folder / "given"}')
    assert "ended well and wrote nothing" in refusal(assay, report)["cause"]
    assert (bench.folder / "given").read_bytes() == content


def test_a_cut_report_is_refused_before_any_tool_runs(assay: Assay, bench: Bench, path: Path) -> None:
    tool(path, "ncu", f"echo > {bench.folder / 'ran'}")
    report = whole_report(bench)
    report.write_bytes(report.read_bytes()[:-100])
    assert "cut off or damaged" in refusal(assay, report)["cause"]
    assert not (bench.folder / "ran").exists()
