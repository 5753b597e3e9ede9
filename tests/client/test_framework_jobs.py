"""``assay export --to accel-sim-jobs``: what run_simulations.py and plot-correlation.py of Accel-Sim read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.client import hand_made
from tests.support.client.silicon_pages import METRICS, write_silicon
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed

Assay = Callable[..., Any]
COPY = "MemcpyHtoD,0x00007f5c40000000,1048576"
LAUNCHES = 6
CYCLES = [100.5 * (at + 1) for at in range(LAUNCHES)]


@dataclass(frozen=True)
class Launched:
    """A launch as :func:`write_silicon` takes it."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: int


@dataclass(frozen=True)
class Bench:
    """Six launches of two kernels: a page of silicon, a selection of launches 2 and 5, and traces."""

    page: Path
    selection: Path
    traces: Path


@pytest.fixture
def bench(tmp_path: Path, assay: Assay) -> Bench:
    launched = [
        Launched("_Z4evenPf" if at % 2 else "_Z3oddPf", (at + 1, 1, 1), (32, 1, 1), 1000)
        for at in range(LAUNCHES)
    ]
    page = write_silicon(tmp_path / "page.csv", launched, CYCLES)
    selection = tmp_path / "a--workload.json"
    ended = assay("select", "systematic", page, "-p", "launches=2", "-p", "start=1", "-o", selection)
    assert ended.code == 0, ended.stderr
    chosen = [r for g in json.loads(selection.read_text())["groups"] for r in g["representatives"]]
    assert [each["sim_id"] for each in chosen] == [2, 5]
    listed = [Listed(at + 1, each.kernel, each.grid, each.block) for at, each in enumerate(launched)]
    return Bench(page, selection, write_listed(tmp_path / "traces", listed, copies=[COPY]).parent)


def suites(path: Path) -> dict[str, dict[str, list[str]]]:
    """Arguments by suite and program, as ``parse_app_definition_yaml`` of util/job_launching/common.py
    reads them."""
    defined = yaml.safe_load(path.read_text())
    assert all(each["exec_dir"] and each["data_dirs"] for each in defined.values())
    return {
        suite: {
            next(iter(program)): [each["args"] for each in next(iter(program.values()))]
            for program in defined[suite]["execs"]
        }
        for suite in defined
    }


def hardware(path: Path) -> tuple[str, list[dict[str, float]]]:
    """The card and the metrics of each launch by its position, as ``parse_hw_csv_2`` of
    util/plotting/plot-correlation.py reads them."""
    assert "gpc__cycles_elapsed" in path.name
    card, found, position, begun = "", [], 0, False
    for row in csv.reader(path.read_text().splitlines()):
        if not begun:
            begun = row[0] == "ID"
        elif row[-3] == "device__attribute_display_name":
            card = row[-1]
        else:
            while len(found) <= position:
                found.append({})
            found[position][row[-3]] = float(row[-1].replace(",", ""))
            position = int(row[0]) + 1
    return card, found


def test_each_launch_is_a_job_and_one_more_has_them_all(bench: Bench, assay: Assay, tmp_path: Path) -> None:
    out = tmp_path / "jobs"
    places = ("--traces", bench.traces, "--recording", bench.page, "-o", out)
    ended = assay("export", bench.selection, "--to", "accel-sim-jobs", *places, "--warm-up", 2)
    assert ended.code == 0, ended.stderr
    app = "a-workload"
    assert suites(out / f"define-{app}.yml") == {
        f"{app}-selected": {app: ["selected"]},
        app: {app: ["launch_2", "launch_5"]},
    }

    def listed(job: str) -> list[str]:
        folder = out / "traces" / app / job / "traces"
        lines = (folder / "kernelslist.g").read_text().split()
        assert all((folder / line).is_file() for line in lines if line.startswith("kernel"))
        return lines

    first = [COPY] if COPY in (bench.traces / "kernelslist.g").read_text().split()[:1] else []
    assert listed("selected") == [*first, "kernel-2.traceg", "kernel-5.traceg"]
    assert listed("launch_2") == [*first, "kernel-mem-1.traceg", "kernel-2.traceg"]
    assert listed("launch_5") == ["kernel-mem-3.traceg", "kernel-mem-4.traceg", "kernel-5.traceg"]
    measured = {
        job: [each.get(METRICS[0]) for each in hardware(path)[1]]
        for job in ("selected", "launch_2", "launch_5")
        for path in (out / "hardware" / app / job).iterdir()
    }
    assert measured == {
        "selected": [CYCLES[1], CYCLES[4]],
        "launch_2": [None, CYCLES[1]],
        "launch_5": [None, None, CYCLES[4]],
    }
    card, _ = hardware(out / "hardware" / app / "selected" / "gpc__cycles_elapsed.csv")
    assert card


def test_a_recording_without_cycles_or_of_another_workload_is_refused(
    bench: Bench, assay: Assay, tmp_path: Path
) -> None:
    words = (
        "export",
        bench.selection,
        "--to",
        "accel-sim-jobs",
        "--traces",
        bench.traces,
        "-o",
        tmp_path / "o",
    )
    other = assay(*words, "--recording", hand_made.write_raw_page(tmp_path / "other.csv", LAUNCHES))
    assert other.code == 7, other.stderr
    launched = [
        logs.Launch(name=name, traced_id=at + 1, grid=(at + 1, 1, 1), block=(32, 1, 1))
        for at, name in enumerate(("_Z3oddPf", "_Z4evenPf") * 3)
    ]
    log = tmp_path / "log.out"
    log.write_text(logs.output(launched))
    chosen = tmp_path / "simulated.json"
    assert assay("select", "systematic", log, "-p", "launches=2", "-p", "start=1", "-o", chosen).code == 0
    words = (words[0], chosen, *words[2:])
    ended = assay(*words, "--recording", log)
    assert (ended.code, "gpc__cycles_elapsed.avg" in ended.stderr) == (3, True), ended.stderr
    assert not (tmp_path / "o").exists()
    lacking = next(bench.traces.glob("kernel-1.*"))
    lacking.unlink()
    text = (bench.traces / "kernelslist.g").read_text().replace(f"{lacking.name}\n", "")
    (bench.traces / "kernelslist.g").write_text(text)
    ended = assay(*words[:1], bench.selection, *words[2:], "--warm-up", 1)
    assert (ended.code, "kernel-1.traceg is not in the list" in ended.stderr) == (7, True), ended.stderr
