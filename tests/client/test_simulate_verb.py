"""``assay simulate`` with a stand-in for the simulator: processes, results, failures, and the table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.simulating.designs import Design
from tests.support.agent.fake_server import wait_for
from tests.support.client import simulate_bench
from tests.support.client.simulate_bench import BLOCKS, Bench, made_bench, processes_in
from tests.support.sampling.stand_in_simulator import CLUSTERS, cycles_of

Assay = Callable[..., Any]
BOTH = ("--design", "big=BIG", "--design", "small=SMALL")


@pytest.fixture
def bench(tmp_path: Path, assay: Assay) -> Bench:
    """With two launches drawn of each of three strata, or more."""
    return made_bench(tmp_path, assay, "stratified", "launches_per_group=2")


@pytest.fixture
def small(tmp_path: Path, assay: Assay) -> Bench:
    """With three launches."""
    return made_bench(tmp_path, assay, "random", "launches=3")


def document_of(ended: Any, code: int = 0) -> dict[str, Any]:
    assert ended.code == code, ended.stderr
    return dict(json.loads(ended.stdout))


def total(bench: Bench, design: str, name: str) -> float:
    """The weighted total that the stand-in's numbers give by hand."""
    found = {"cycles": lambda blocks: cycles_of(blocks, CLUSTERS[design]), "instructions": lambda b: 1000 * b}
    return sum(weight * found[name](BLOCKS[number - 1]) for number, weight in bench.weights.items())


def test_the_table_of_two_designs_is_what_their_launches_add_up_to(bench: Bench, assay: Assay) -> None:
    document = document_of(assay(*bench.command(*BOTH, "--json")))
    assert 1 < len(bench.weights) < len(BLOCKS)
    for entry, name in zip(document["designs"], ("BIG", "SMALL"), strict=True):
        assert entry["simulated"] == len(bench.weights)
        assert entry["cycles"] == pytest.approx(total(bench, name, "cycles"))
        assert entry["active_cycles"] == pytest.approx(entry["cycles"] - 200 * sum(bench.weights.values()))
        assert entry["ipc"] == pytest.approx(total(bench, name, "instructions") / entry["cycles"])
        assert entry["l2_accesses"] == 100 * sum(bench.weights.values())
        assert entry["l2_miss_percent"] == pytest.approx(40)
        assert entry["dram_reads"] == 60 * sum(bench.weights.values())
        assert entry["options"][:2] == ["-ptx_opcode_latency_int", "4,4,4,4,21,21"]
    (speedup,) = document["speedups"]
    assert speedup["speedup"] == pytest.approx(
        total(bench, "BIG", "cycles") / total(bench, "SMALL", "cycles")
    )
    assert speedup["interval"]["low"] < speedup["speedup"] < speedup["interval"]["high"]
    assert not any(each["resumed"] for each in document["launches"])
    shown = assay(*bench.command(*BOTH))
    assert "vouched" in shown.stdout and "cold caches" in shown.stdout


def test_called_again_it_runs_only_what_is_missing(small: Bench, assay: Assay) -> None:
    first = document_of(assay(*small.command(*BOTH, "--json")))
    lost = small.output / "small" / f"launch-{min(small.weights)}" / "result.json"
    lost.write_text(lost.read_text()[:40])
    again = document_of(assay(*small.command(*BOTH, "--json")))
    resumed = {(each["design"], each["sim_id"]): each["resumed"] for each in again["launches"]}
    assert [key for key, kept in resumed.items() if not kept] == [("small", min(small.weights))]
    assert again["speedups"] == first["speedups"]


def test_the_longest_launch_is_simulated_first(small: Bench, assay: Assay) -> None:
    for number in range(1, len(BLOCKS) + 1):
        (trace,) = small.traces.glob(f"kernel-{number}.traceg*")
        trace.write_text(trace.read_text() + "\n" * 100 * number)
    document_of(assay(*small.command("--design", "big=BIG", "--jobs", 1, "--json")))
    ended = {
        number: (small.output / "big" / f"launch-{number}" / "result.json").stat().st_mtime_ns
        for number in small.weights
    }
    assert sorted(ended, key=ended.__getitem__) == sorted(small.weights, reverse=True)


def test_a_warm_up_is_replayed_and_shows_what_starting_cold_costs(small: Bench, assay: Assay) -> None:
    design = ("--design", "big=BIG", "--json")
    cold = document_of(assay(*small.command(*design)))
    for kind in ("whole", "tail"):
        warm = document_of(assay(*small.command(*design, "--warm-up", kind)))
        replayed = {each["sim_id"]: each["replayed_instructions"] for each in warm["launches"]}
        assert replayed == {n: 1000 * BLOCKS[n - 2] if n > 1 else 0 for n in replayed}
        more = sum(50 * weight for number, weight in small.weights.items() if number > 1)
        found = {each["warm_up"]: each for each in warm["designs"][0]["cold_start"]}[kind]
        assert warm["designs"][0]["cycles"] == pytest.approx(cold["designs"][0]["cycles"] - more)
        assert found["percent"] == pytest.approx(100 * more / warm["designs"][0]["cycles"])
        assert found["launches"] == found["of"] == len(small.weights)
    folder = small.output / "big" / f"launch-{max(small.weights)}-tail"
    assert folder.is_dir() and not list(folder.glob("kernel-mem-*"))


def test_a_tail_is_as_long_as_each_design_needs(
    tmp_path: Path, assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of 400 blocks is before it, of 256 threads: 8 are on an SM of 2,048 threads."""
    monkeypatch.setattr(simulate_bench, "BLOCKS", (8, 400) * 12)
    bench = made_bench(tmp_path, assay, "systematic", "launches=1")
    (number,) = bench.weights
    sizes = "-gpgpu_n_cores_per_cluster 1 -gpgpu_shader_core_pipeline 2048:32 -gpgpu_shader_registers 65536"
    options = f"{sizes} -gpgpu_shader_cta 32 -gpgpu_shmem_size 98304"
    designs = ("--design", f"big=BIG:{options} -gpgpu_n_clusters 20", "--design", "small=SMALL")
    document = document_of(assay(*bench.command(*designs, "--warm-up", "tail", "--json")))
    replayed = {each["design"]: each["replayed_instructions"] for each in document["launches"]}
    assert number == 3
    assert replayed == {"big": 1000 * 240, "small": 1000 * 160}


def test_options_of_a_design_stand_above_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "gpgpusim.config"
    path.write_text(
        "# -gpgpu_n_clusters 7\n-gpgpu_n_clusters 80 # -gpgpu_n_mem 3\n-gpgpu_n_cores_per_cluster 1\n"
    )
    plain = Design("plain", tmp_path, (), (("gpgpusim.config", path),)).gpu()
    assert (plain.sms, plain.memory_channels, plain.threads_per_sm) == (80, None, None)
    options = ("-gpgpu_n_clusters", "20", "-gpgpu_n_mem", "8")
    changed = Design("changed", tmp_path, options, (("gpgpusim.config", path),)).gpu()
    assert (changed.sms, changed.memory_channels) == (20, 8)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("crash", "crashed"),
        ("deadlock", "deadlock"),
        ("hang", "hung"),
        ("memory", "out_of_memory"),
        ("kill", "killed"),
        ("refuse", "refused"),
        ("silent", "incomplete"),
        ("part", "incomplete"),
    ],
)
def test_a_simulator_that_fails_is_a_failure_class_and_the_others_go_on(
    small: Bench, assay: Assay, what: str, kind: str
) -> None:
    bad = max(small.weights)
    options = f"big=BIG:-stand_in_at {bad},{what}"
    ended = assay(
        *small.command("--design", options, "--hang-after", 1.5, "--process-memory", "2GiB", "--json")
    )
    document = document_of(ended, code=6)
    failures = {each["sim_id"]: each for each in document["failures"]}
    expected = set(small.weights) if what == "refuse" else {bad}
    assert set(failures) == expected
    assert failures[bad]["kind"] == kind
    assert Path(failures[bad]["log"]).is_file()
    if what in ("crash", "deadlock", "refuse"):
        words = {"crash": "Assertion", "deadlock": "deadlock detected", "refuse": "unknown option"}
        assert any(words[what] in line for line in failures[bad]["last_lines"])
    assert document["designs"][0]["cycles"] is None
    assert document["designs"][0]["simulated"] == len(small.weights) - len(expected)
    assert kind in json.loads(ended.stderr.splitlines()[-1])["error"]["cause"]


def test_results_of_another_configuration_are_not_replaced_unless_it_is_said(
    small: Bench, assay: Assay
) -> None:
    document_of(assay(*small.command("--design", "big=BIG", "--json")))
    refused = assay(*small.command("--design", "big=SMALL", "--json"))
    assert refused.code == 7
    assert "another configuration" in refused.stderr
    forced = document_of(assay(*small.command("--design", "big=SMALL", "--force", "--json")))
    assert forced["designs"][0]["cycles"] == pytest.approx(total(small, "SMALL", "cycles"))


def other_program(bench: Bench) -> None:
    program = bench.simulator / "bin" / "release" / "accel-sim.out"
    program.write_text(program.read_text() + "# another release\n")


def other_trace(bench: Bench) -> None:
    (trace,) = bench.traces.glob(f"kernel-{min(bench.weights)}.traceg*")
    trace.write_text(trace.read_text() + "\n")


@pytest.mark.parametrize(("change", "what"), [(other_program, "simulator"), (other_trace, "trace")])
def test_results_of_another_simulator_or_trace_are_not_taken_for_these(
    small: Bench, assay: Assay, change: Callable[[Bench], None], what: str
) -> None:
    document_of(assay(*small.command("--design", "big=BIG", "--json")))
    change(small)
    refused = assay(*small.command("--design", "big=BIG", "--json"))
    assert (refused.code, f"simulated with another {what}" in refused.stderr) == (7, True), refused.stderr


def other_binary(bench: Bench) -> str:
    """The kernel of a selected launch has another name."""
    (trace,) = bench.traces.glob(f"kernel-{min(bench.weights)}.traceg*")
    text = trace.read_text()
    trace.write_text(text.replace("_Z4evenPf", "_Z5thirdPf").replace("_Z3oddPf", "_Z5thirdPf"))
    return "third"


def missing_trace(bench: Bench) -> str:
    (trace,) = bench.traces.glob(f"kernel-{min(bench.weights)}.traceg*")
    (listed,) = bench.traces.glob("kernelslist.g")
    listed.write_text(listed.read_text().replace(f"{trace.name}\n", ""))
    return f"kernel-{min(bench.weights)}.traceg is not in the list"


@pytest.mark.parametrize("by_recording", [False, True])
def test_launches_after_one_that_the_tracer_missed_are_found_by_their_names(
    small: Bench, assay: Assay, by_recording: bool
) -> None:
    small.miss_launch(1)
    recording = ("--recording", small.selection.with_name("recorded.out")) if by_recording else ()
    document = document_of(
        assay(*small.command("--design", "big=BIG", "--stop", "none", *recording, "--json"))
    )
    assert {each["sim_id"] for each in document["launches"]} == set(small.weights)
    assert document["designs"][0]["cycles"] == pytest.approx(total(small, "BIG", "cycles"))
    (note,) = (each for each in document["notes"] if each["code"] == "launch_ids_realigned")
    assert (note["moved"], note["least"], note["most"]) == (len(small.weights), 1, 1)


@pytest.mark.parametrize("spoil", [other_binary, missing_trace])
def test_traces_that_are_not_those_of_the_selection_are_refused_before_anything_runs(
    small: Bench, assay: Assay, spoil: Callable[[Bench], str]
) -> None:
    words = spoil(small)
    refused = assay(*small.command("--design", "big=BIG"))
    assert (refused.code, words in refused.stderr) == (7, True), refused.stderr
    assert not small.output.exists()


def test_a_folder_of_another_workload_is_refused(small: Bench, assay: Assay) -> None:
    document_of(assay(*small.command("--design", "big=BIG", "--json")))
    claim = json.loads((small.output / "workload.json").read_text())
    (small.output / "workload.json").write_text(json.dumps({**claim, "sequence": "another"}))
    ended = assay(*small.command("--design", "big=BIG"))
    assert (ended.code, "another workload" in ended.stderr) == (7, True)


@pytest.mark.parametrize(
    ("design", "words"),
    [
        ("x", "NAME=CONFIG"),
        ("x=NONE", "BIG, SMALL"),
        ("x=BIG:rubbish", "not an option"),
        ("x=BIG:-trace other", "not an option of a design"),
        ("../x=BIG", "NAME=CONFIG"),
    ],
)
def test_a_design_that_cannot_be_is_refused(small: Bench, assay: Assay, design: str, words: str) -> None:
    ended = assay(*small.command("--design", design))
    assert ended.code == 2
    assert words in ended.stderr
    assert not (small.output / "x").exists()


def test_without_a_design_or_a_simulator_the_message_says_what_there_is(small: Bench, assay: Assay) -> None:
    ended = assay(*small.command())
    assert (ended.code, "BIG, SMALL" in ended.stderr) == (2, True)
    other = assay(*small.command("--design", "b=BIG", "--accel-sim", small.traces))
    assert (other.code, "accel-sim.out" in other.stderr) == (2, True)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_is_ended_leaves_nothing_behind_and_goes_on(
    small: Bench, assay: Assay, number: signal.Signals
) -> None:
    slow = "big=BIG:-stand_in_slow 1"
    words = [str(each) for each in small.command("--design", slow, "--json")]
    program = Path(sys.executable).with_name("assay")
    driver = subprocess.Popen([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    logged = [small.output / "big" / f"launch-{sim_id}" / "output.log" for sim_id in small.weights]
    wait_for(lambda: any(each.is_file() and each.stat().st_size for each in logged))
    os.kill(driver.pid, number)
    driver.communicate(timeout=30)
    assert driver.returncode in (128 + number, -number)
    wait_for(lambda: not processes_in(small.output)), "no simulator outlives its driver"
    document = document_of(assay(*words))
    assert document["designs"][0]["cycles"] == pytest.approx(total(small, "BIG", "cycles"))
