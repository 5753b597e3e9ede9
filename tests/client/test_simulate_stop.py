"""``assay simulate --stop waves``: ended online, with what ``assay project`` says of the finished log."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from assay_client.simulating.designs import Design
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.stopping import OnlineStop, StopRule
from assay_client.simulating.watching import GrowingIntervals
from assay_sampling.handover.isolated import IsolatedLaunch, Replay
from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import MOV, Listed, write_traced
from tests.support.sampling.solver_traces import write_solver_traces
from tests.support.sampling.stand_in_simulator import write_stand_in

Assay = Callable[..., Any]


@dataclass(frozen=True)
class Bench:
    """One selected launch of ``solver``, its trace, and the stand-in that replays its finished logs."""

    command: tuple[object, ...]
    log: Path
    output: Path
    trace: Path

    def design(self, hold: int = 0) -> str:
        return f"ten=BIG:-stand_in_replay {self.log} -stand_in_hold {hold}"

    def launch_folder(self, name: str) -> Path:
        return self.output / "ten" / name


def made_bench(shared_data: Path, folder: Path, assay: Assay, number: int) -> Bench:
    parts = shared_data / "accel_sim_parts"
    traces = write_solver_traces(shared_data, folder / "traces", only=number)
    selection = folder / "one.json"
    start = ("-p", "launches=1", "-p", f"start={number - 1}")
    made = assay("select", "systematic", parts / "solver.10sm.out.gz", *start, "-o", selection)
    assert made.code == 0, made.stderr
    root = write_stand_in(folder / "accel-sim")
    places = ("--traces", traces, "--accel-sim", root, "-o", folder / "sim", "--json")
    log = parts / f"solver.10sm.cold-{number}.out.gz"
    trace = traces / f"kernel-{number}.traceg"
    return Bench(("simulate", selection, *places), log, folder / "sim", trace)


@pytest.fixture
def bench(shared_data: Path, tmp_path: Path, assay: Assay) -> Bench:
    """With launch 1, which ``waves`` stops at cycle 50,500 of 54,088."""
    return made_bench(shared_data, tmp_path, assay, 1)


def document_of(ended: Any, code: int = 0) -> dict[str, Any]:
    assert ended.code == code, ended.stderr
    return dict(json.loads(ended.stdout))


def projected_later(bench: Bench, assay: Assay) -> dict[str, Any]:
    """What ``assay project`` says of the finished logs."""
    intervals = bench.log.with_name(bench.log.name.replace(".out.gz", ".visualizer.gz"))
    command = ("project", bench.log, "--intervals", intervals, "--traces", bench.trace, "--json")
    (launch,) = document_of(assay(*command))["launches"]
    return dict(launch)


@pytest.mark.parametrize("hold", [600, 0])
def test_a_launch_that_is_stopped_online_is_what_project_says_of_the_finished_log(
    bench: Bench, assay: Assay, hold: int
) -> None:
    later = projected_later(bench, assay)
    design = bench.design(hold)
    document = document_of(assay(*bench.command, "--design", design, "--stop", "waves"))
    (launch,) = document["launches"]
    assert launch["stop_cycles"] == later["stop_cycles"] == 50_500
    assert launch["cycles"] == round(later["projected_cycles"])
    assert launch["active_cycles"] == launch["cycles"] - 5000
    assert launch["instructions"] == later["total_instructions"] == 1_837_432
    assert (launch["l2_accesses"], launch["dram_reads"], launch["resumed"]) == (None, None, False)
    if hold:  # the simulator would have gone on, and was ended
        assert "kernel_launch_uid" not in (bench.launch_folder("launch-1-waves") / "output.log").read_text()
        assert launch["executed_instructions"] < launch["instructions"]
    (entry,) = document["designs"]
    assert (entry["simulated"], entry["projected"]) == (1, 1)
    assert entry["cycles"] == 16 * launch["cycles"]
    assert entry["simulated_cycles_percent"] == pytest.approx(100 * 50_500 / launch["cycles"])
    assert (document["stop"], entry["l2_accesses"]) == ("waves", None)
    assert "designs_projected" in {note["code"] for note in document["notes"]}
    drawn = assay(*bench.command[:-1], "--design", design, "--stop", "waves")
    assert "50,500" in drawn.stdout and f"{launch['cycles']:,}" in drawn.stdout


def test_projected_launches_are_kept_beside_those_simulated_whole(bench: Bench, assay: Assay) -> None:
    command = (*bench.command, "--design", bench.design())
    stopped = document_of(assay(*command, "--stop", "waves"))
    again = document_of(assay(*command, "--stop", "waves"))
    (launch,) = again["launches"]
    assert launch == {**stopped["launches"][0], "resumed": True}
    (whole,) = document_of(assay(*command))["launches"]
    assert (whole["cycles"], whole["stop_cycles"], whole["resumed"]) == (54_088, None, False)
    kept = bench.launch_folder("launch-1-waves") / "result.json"
    result = json.loads(kept.read_text())
    result["key"]["rule that stops it"] = "another"
    kept.write_text(json.dumps(result))
    refused = assay(*command, "--stop", "waves")
    assert (refused.code, "another rule that stops it" in refused.stderr) == (7, True)


def test_a_launch_that_the_rule_does_not_stop_is_simulated_whole(
    shared_data: Path, tmp_path: Path, assay: Assay
) -> None:
    """Of launch 3 the interval log is cut off before the rule stops it at cycle 45,000."""
    bench = made_bench(shared_data, tmp_path, assay, 3)
    log, intervals = tmp_path / "half.out.gz", tmp_path / "half.visualizer.gz"
    log.write_bytes(bench.log.read_bytes())
    whole = bench.log.with_name("solver.10sm.cold-3.visualizer.gz").read_bytes()
    intervals.write_bytes(whole[: len(whole) // 2])
    bench = replace(bench, log=log)
    assert projected_later(bench, assay)["stop_cycles"] is None
    document = document_of(assay(*bench.command, "--design", bench.design(), "--stop", "waves"))
    (launch,) = document["launches"]
    assert (launch["cycles"], launch["stop_cycles"], launch["l2_accesses"]) == (48_048, None, 72_000)
    assert document["designs"][0]["projected"] == 0
    assert document["designs"][0]["simulated_cycles_percent"] == 100


def test_a_damaged_trace_and_an_unknown_rule_are_named(bench: Bench, assay: Assay) -> None:
    unknown = assay(*bench.command, "--design", bench.design(), "--stop", "paper")
    assert (unknown.code, "none or waves" in unknown.stderr) == (2, True)
    text = bench.trace.read_bytes()
    bench.trace.write_bytes(text[: len(text) // 2])
    ended = assay(*bench.command, "--design", bench.design(), "--stop", "waves")
    (failure,) = document_of(ended, code=6)["failures"]
    assert failure["kind"] == "damaged_trace"
    assert "kernel-1.traceg" in failure["cause"]


@pytest.mark.parametrize("replayed", [False, True])
def test_samples_of_a_replay_do_not_count_as_the_launch(tmp_path: Path, replayed: bool) -> None:
    """32 blocks on 8 SMs, a wave in 200 cycles after a latency of 200: three and a half by cycle 900."""
    before = logs.Launch(traced_id=5, cycles=260, instructions=900)
    own = logs.Launch(traced_id=6, cycles=1000, instructions=40_000, printed_ctas_per_sm=1)
    listed = Listed(6, own.name, own.grid, own.block)
    warp = [MOV] * 39 + ["0000 00000003 1 R1 MOV 0 0 0 "]
    trace = write_traced(tmp_path / "kernel-6.traceg", listed, [warp])
    text, samples, first = logs.options(), [], 0
    if replayed:
        text += f"Header info loaded for kernel command : ./kernel-mem-5.traceg\n{logs.header(before, 1)}"
        text += logs.statistics(before, 1, logs.Totals())
        # Of the 32 blocks replayed 27 end within its samples, and 5 in the first sample of the launch.
        samples, first = [logs.sample(100, 300, 9), logs.sample(200, 700, 18)], 900
    text += f"Header info loaded for kernel command : ./kernel-6.traceg\n{logs.header(own, 1 + replayed)}"
    for cycle in range(100, 1100, 100):
        blocks = 4 if cycle > 200 else 5 if replayed and cycle == 100 else 0
        samples.append(logs.sample(cycle, 50 * max(cycle - 200, 0), blocks, before=first))
    replay = Replay(trace, None) if replayed else None
    launch = IsolatedLaunch(5, 6, trace, 64 if replayed else 32, (), replay, 32 if replayed else 0)
    folder = LaunchFolder(tmp_path / "run", Design("d", tmp_path, (), ()), launch, {})
    folder.path.mkdir()
    folder.log.write_text(text)
    written = folder.path / "gpgpusim_visualizer__now.log.gz"
    rule = StopRule(ProjectionParameters(rule="waves"), LaunchTraces({6: trace}))
    online, growing = OnlineStop(folder, rule), GrowingIntervals(written)
    reached = []
    for number in range(len(samples)):
        with written.open("ab") as file:
            file.write(gzip.compress(samples[number].encode()))
        growing.look()
        reached.append(online.reached(growing.samples()))
    # A sample is whole once the next one has begun: that of cycle 1,000.
    assert reached.index(True) == 9 + 2 * replayed
    found = rule.projection(folder)
    assert found is not None and found.stop is not None
    assert (found.launch.traced_id, found.stop.cycles) == (6, 900)
    assert found.projected_cycles == pytest.approx(1040)
