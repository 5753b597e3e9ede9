"""Workloads whose libraries launch other kernels on each virtual GPU, from the command lines to the scores.

The command lines of ``assay metrics --unit operation`` are run by the stand-ins of ncu and nsys; selections
of the V100 by operation are scored on the other GPUs, and selections by launch are refused there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay_client.cli.main import main
from assay_sampling.launches.in_memory import Launches
from assay_sampling.nsight.commands import Window
from assay_sampling.nsight.measuring import measuring
from assay_sampling.operations.collapsing import operations_of
from assay_sampling.readers.opening import read_launches
from tests.support.agent.stand_ins import Bench

WORKLOADS = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
GPUS = {"V100": "7.0", "RTX 2060": "7.5", "RTX 3070": "8.6"}
MODELS = ("sgd", "gaussian_nb", "mlp")
# Operations are equal on every GPU; launches, in the order of GPUS, need not be.
CALLS = {"finetuning": 976, "generation": 1350, "decoder": 5088}
LAUNCHES = {
    "finetuning": [1760, 1760, 1232],
    "generation": [1750, 1630, 1890],
    "decoder": [5088, 5088, 5088],
}
OTHERS = ("RTX 2060", "RTX 3070")
# Recording a workload takes long: one process does it once, and `make test` records the smallest.
pytestmark = pytest.mark.xdist_group("library_workloads")
RECORDED = [
    "finetuning",
    *(pytest.param(name, marks=pytest.mark.campaigns) for name in ("generation", "decoder")),
]


@dataclass(frozen=True)
class Recorded:
    """Files of one workload: a window with counters on the V100, and the light run of each GPU."""

    name: str
    window: Path
    light: dict[str, Path]


@pytest.fixture(scope="module", params=RECORDED)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp(request.param)
    light = {}
    with pytest.MonkeyPatch.context() as patch:
        for kind in GPUS:
            (folder / kind).mkdir()
            patch.chdir(folder / kind)
            record(Bench(folder / kind, kind=kind), WORKLOADS / f"{request.param}.toml")
            light[kind] = folder / kind / "light.sqlite"
    return Recorded(request.param, folder / "V100" / "counters.csv", light)


def record(bench: Bench, workload: Path) -> None:
    """Run the commands up to the selection: with counters for PKS on the V100, else a light run alone."""
    commands = measuring(
        "pks" if bench.kind == "V100" else "stem",
        {},
        compute_capability=GPUS[bench.kind],
        tool_version="2024.1",
        window=Window(count=600) if bench.kind == "V100" else Window(),
        command=[str(workload), "--emit-nvtx"],
        operations=True,
    ).commands
    for command in commands[:-1]:
        tool, *words = command.argv
        answer = getattr(bench, tool)(*words)
        assert answer.status == 0, answer
        if command.output:
            (bench.folder / command.output).write_text(answer.output)


def test_names_grids_and_numbers_of_launches_differ_and_operations_do_not(recorded: Recorded) -> None:
    runs = [read_launches(recorded.light[kind]) for kind in GPUS]
    assert [len(run) for run in runs] == LAUNCHES[recorded.name]
    kernels = [set(_names(run)) for run in runs]
    assert all(one - other and other - one for one, other in ((kernels[0], k) for k in kernels[1:]))
    operations = [operations_of(run) for run in runs]
    assert {len(each) for each in operations} == {CALLS[recorded.name]}
    called = [[each.identities[i] for i in each.identity.tolist()] for each in operations]
    assert called[0] == called[1] == called[2]
    assert all(one.kind == "operator" and one.shapes for one in set(called[0]))
    assert {one.thread for one in called[0]} == ({0, 1} if recorded.name == "finetuning" else {0})


def _names(launches: Launches) -> list[str]:
    return [launches.names[i] for i in set(launches.column("kernel_id").tolist())]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The document that a verb prints, or its error message."""

    def run(*words: object) -> Any:
        capfd.readouterr()
        code = main([*map(str, words), "--json"])
        printed = capfd.readouterr()
        return json.loads(printed.out) if code == 0 else printed.err

    return run


@pytest.mark.parametrize("model", MODELS)
def test_labels_by_operation_carry_two_levels_to_gpus_with_other_kernels(
    recorded: Recorded, model: str, ask: Callable[..., Any], tmp_path: Path
) -> None:
    saved = tmp_path / "selection.json"
    made = _selected(ask, recorded, saved, "operation", "-p", f"model={model}")
    assert made["unit"] == "operation"
    assert made["operations"]["calls"] == CALLS[recorded.name]
    assert made["two_level"]["chosen_model"] == model
    assert sum(group["launches"] for group in made["groups"]) == CALLS[recorded.name]
    errors = {}
    for kind in OTHERS:
        scored = ask("evaluate", saved, recorded.light[kind])
        matched = scored["operations"]
        assert matched["calls_matched"] == matched["calls"] == CALLS[recorded.name]
        assert (matched["selection_time_percent"], matched["recording_time_percent"]) == (100, 100)
        errors[kind] = round(scored["error_percent"], 2)
    print(f"{recorded.name}, labels by {model}: errors in % {errors}")
    assert max(errors.values()) < 15


def test_a_selection_by_launch_is_refused_there(
    recorded: Recorded, ask: Callable[..., Any], tmp_path: Path
) -> None:
    saved = tmp_path / "selection.json"
    assert "unit" not in _selected(ask, recorded, saved, "launch")
    for kind in OTHERS:
        refused = ask("evaluate", saved, recorded.light[kind])
        assert "--unit operation" in refused


def _selected(ask: Callable[..., Any], recorded: Recorded, saved: Path, unit: str, *more: str) -> Any:
    light = recorded.light["V100"]
    made = ask("select", "pks", recorded.window, "--light", light, "--launch-offset", "0", "--unit", unit,
               "-o", saved, *more)  # fmt: skip
    assert isinstance(made, dict), made
    return made


def test_counters_and_times_know_the_same_operations(recorded: Recorded) -> None:
    """Nsight Compute tells ranges by name, Nsight Systems by time: both find the same calls."""
    window = read_launches(recorded.window)
    light = read_launches(recorded.light["V100"])
    by_name, by_time = operations_of(window), operations_of(light)
    whole = len(by_name) - 1  # the window may end within a call
    assert [by_name.identities[i] for i in by_name.identity[:whole].tolist()] == [
        by_time.identities[i] for i in by_time.identity[:whole].tolist()
    ]
    assert by_name.sizes()[:whole].tolist() == by_time.sizes()[:whole].tolist()


@pytest.mark.parametrize(
    ("release", "options", "found"),
    [
        ("2025.3.2.474", ["--pytorch=autograd-shapes-nvtx"], True),
        ("2025.3.2.474", ["--pytorch=autograd-nvtx"], True),
        ("2025.3.2.474", ["--pytorch=none"], False),
        ("2023.4.4.54", [], False),
    ],
)
def test_nsight_systems_can_make_a_program_announce_its_operators(
    tmp_path: Path, release: str, options: list[str], found: bool
) -> None:
    bench = Bench(tmp_path, kind="RTX 3070", variables={"ASSAY_VIRTUAL_NSYS_VERSION": release})
    program = WORKLOADS / "finetuning.toml"
    answer = bench.nsys("profile", "-t", "cuda,nvtx", *options, "-o", tmp_path / "a", program)
    assert answer.status == 0
    exported = bench.nsys("export", "-t", "sqlite", "-o", tmp_path / "a.sqlite", tmp_path / "a.nsys-rep")
    assert exported.status == 0
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        texts = [text for (text,) in connection.execute("SELECT text FROM NVTX_EVENTS ORDER BY start")]
    operators = [text for text in texts if ", seq = " in text]
    assert len(operators) == (1024 if found else 0)  # addmm is called by linear: 976 are outermost
    if found:
        shapes = ", sizes = [[32000, 512], [8, " if "shapes" in options[0] else ""
        assert operators[0].startswith(f"aten::embedding, seq = 0, op_id = 1{shapes}")
        assert (", sizes = " in operators[0]) == bool(shapes)
    threads = read_launches(tmp_path / "a.sqlite")
    assert len(threads) == 1232
