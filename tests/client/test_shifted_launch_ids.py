"""Traces of a tracer that missed a launch: exported as the launches that they are, and joined again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.simulate_bench import Bench, made_bench
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed

Assay = Callable[..., Any]


@pytest.fixture
def bench(tmp_path: Path, assay: Assay) -> Bench:
    """Three launches are selected, and the tracer missed the first of all."""
    made = made_bench(tmp_path, assay, "random", "launches=3")
    made.miss_launch(1)
    return made


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def simulated(folder: Path) -> list[logs.Launch]:
    """A log of what the list in a folder names, each launch as its trace's header has it, and cycles that
    tell launches apart."""
    launches = []
    for name in (folder / "kernelslist.g").read_text().split():
        facts = dict(
            line[1:].split(" = ", 1)
            for line in (folder / name).read_text().splitlines()
            if line.startswith("-") and " = " in line
        )
        number = int(facts["kernel id"])
        x, y, z = map(int, facts["grid dim"].strip("()").split(","))
        launches.append(
            logs.Launch(name=facts["kernel name"], traced_id=number, grid=(x, y, z), cycles=6000 + number)
        )
    return launches


@pytest.mark.parametrize("to", ["accel-sim", "accel-sim-jobs"])
@pytest.mark.parametrize("by_recording", [False, True])
def test_launches_are_exported_by_their_names_and_joined_again(
    bench: Bench, tmp_path: Path, assay: Assay, to: str, by_recording: bool
) -> None:
    recording = ("--recording", bench.selection.with_name("recorded.out")) if by_recording else ()
    out = tmp_path / "handed"
    command = ("export", bench.selection, "--to", to, "--traces", bench.traces, "-o", out, "--force")
    given = recording if to == "accel-sim" else ()  # a simulator's run has no cycles of silicon
    document = document_of(assay(*command, *given, "--json"))
    launches = [each + 1 for each in document["launches"]]
    assert sorted(launches) == sorted(bench.weights)
    assert document["traced_ids"] == [each - 1 for each in launches]
    (note,) = (each for each in document["notes"] if each["code"] == "launch_ids_realigned")
    assert (note["moved"], note["least"], note["most"]) == (3, 1, 1)
    assert note["by_recording"] is bool(given)
    folder = out if to == "accel-sim" else next(out.glob("traces/*/selected/traces"))
    assert set((folder / "kernelslist.g").read_text().split()) == {
        f"kernel-{each - 1}.traceg" for each in launches
    }
    assert "--traces" in assay(*command, *given).stdout

    log = tmp_path / "sampled.out"
    log.write_text(logs.output(simulated(folder)))
    joining = ("import", "accel-sim", log, "--selection", bench.selection, "--json")
    for traces in (folder, folder / "kernelslist.g"):
        joined = document_of(assay(*joining, "--traces", traces))
        cycles = {each["sim_id"]: each["cycles"] for each in joined["representatives"]}
        assert cycles == {each: 6000 + each - 1 for each in bench.weights}
    refused = assay(*joining)
    assert refused.code == 7
    assert log.name in refused.stderr and "--traces with its folder" in refused.stderr


def test_what_was_exported_is_the_selection_s_traces(bench: Bench, tmp_path: Path, assay: Assay) -> None:
    handed = (tmp_path / "handed", tmp_path / "again")
    for traces, out in zip((bench.traces, *handed), handed, strict=False):
        words = ("export", bench.selection, "--to", "accel-sim", "--traces", traces, "-o", out, "--json")
        document = document_of(assay(*words))
        assert document["traced_ids"] == document["launches"]  # from 1, and one less
    texts = [(folder / "launch-ids.txt").read_text() for folder in handed]
    assert texts[0] == texts[1]
    table = document_of(
        assay("simulate", bench.selection, "--traces", handed[0], "--accel-sim", bench.simulator, "-o",
              bench.output, "--design", "big=BIG", "--json")
    )  # fmt: skip
    assert {each["sim_id"] for each in table["launches"]} == set(bench.weights)


@pytest.mark.parametrize(
    ("text", "words"),
    [("5\n", "launch-ids.txt:1"), ("5 4\n5 4\n", "launch-ids.txt:2"), ("5 4\n", "does not say which launch"),
     ("5 4\n5 3\n", "it names a launch twice")],
)  # fmt: skip
def test_launch_ids_that_do_not_fit_are_refused(
    bench: Bench, tmp_path: Path, assay: Assay, text: str, words: str
) -> None:
    (bench.traces / "launch-ids.txt").write_text(text)
    ended = assay(
        "export", bench.selection, "--to", "accel-sim", "--traces", bench.traces, "-o", tmp_path / "o"
    )
    assert ended.code == 3 and words in ended.stderr, ended.stderr


def test_the_recording_tells_what_names_leave_open(tmp_path: Path, assay: Assay) -> None:
    """Launches of one kernel and shape: either trace may be either launch."""
    kernels = [f"_Z1{letter}Pf" for letter in "abccdefg"]
    recorded = [logs.Launch(name=name, traced_id=at, cycles=100) for at, name in enumerate(kernels, 1)]
    recording = tmp_path / "recorded.out"
    recording.write_text(logs.output(recorded))
    selection = tmp_path / "selection.json"
    chosen = ("-p", "launches=2", "-p", "start=2")
    assert assay("select", "systematic", recording, *chosen, "-o", selection).code == 0
    selected = [
        each["sim_id"]
        for group in json.loads(selection.read_text())["groups"]
        for each in group["representatives"]
    ]
    traced = [each for each in recorded if each.traced_id != 1]
    listed = [Listed(at, each.name, each.grid, each.block) for at, each in enumerate(traced, 1)]
    traces = write_listed(tmp_path / "traces", listed).parent
    command = ("export", selection, "--to", "accel-sim", "--traces", traces, "-o", tmp_path / "o", "--json")
    refused = assay(*command)
    assert refused.code == 7
    assert "launch 3 ('_Z1cPf') may be any of 2 traces" in refused.stderr
    assert "--recording FILE" in refused.stderr
    document = document_of(assay(*command, "--recording", recording))
    assert [each + 1 for each in document["launches"]] == selected == [3, 7]
    assert document["traced_ids"] == [2, 6]
    replayed = assay(*command, "--recording", recording, "--warm-up", 1, "--force")
    assert replayed.code == 0, replayed.stderr
    assert (tmp_path / "o" / "warm-kernelslist.g").read_text().split()[-1] == "kernel-6.traceg"
