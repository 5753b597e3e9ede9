"""Runs that were ended within a launch: interval log and trace make it a projected launch."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay_sampling.errors import InputError
from assay_sampling.notes.registry import make_note
from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.projection.summary import summary_of
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces, launch_work
from assay_sampling.simulators.accel_sim.run import SimulatorRun
from assay_sampling.simulators.accel_sim.trace import read_blocks
from tests.support.sampling.accel_sim_logs import Launch, header, output, sample
from tests.support.sampling.accel_sim_traces import EXIT as EXIT_LINE
from tests.support.sampling.accel_sim_traces import MOV, Listed, block_text, write_trace, write_traced

# 32 blocks on 8 SMs of one block: four waves of 8. After a latency of 200 cycles each wave takes 200 cycles
# at an IPC of 50. The launch is ended at cycle 900, after three waves of it.
FIRST = Launch(traced_id=2, cycles=60, instructions=32 * 40)
STOPPED = Launch(traced_id=6, cycles=1000, instructions=40_000, printed_ctas_per_sm=1)
SAMPLES = "".join(
    sample(cycle, 50 * max(cycle - 200, 0), 4 if cycle > 200 else 0, before=FIRST.instructions)
    for cycle in range(100, 1000, 100)
)
# A block of 1,250 thread instructions: 32 blocks execute 40,000.
BLOCK = [MOV] * 39 + ["0000 00000003 1 R1 MOV 0 0 0 "]


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    text = output([FIRST], "") + header(STOPPED, 2)
    (tmp_path / "out").write_text(text)
    (tmp_path / "log").write_text(SAMPLES)
    return tmp_path / "out", tmp_path / "log"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    launch = Listed(6, STOPPED.name, STOPPED.grid, STOPPED.block)
    return write_traced(tmp_path / "traces" / "kernel-6.traceg", launch, [BLOCK])


def project_all(
    logs: tuple[Path, Path], traces: LaunchTraces | None = None, rule: str | None = None
) -> list[LaunchProjection]:
    return list(
        project_run(SimulatorRun(*logs), ProjectionParameters.model_validate({"rule": rule}), traces=traces)
    )


def test_a_stopped_launch_with_its_trace_is_projected_as_the_finished_one(
    logs: tuple[Path, Path], traces: Path
) -> None:
    given = LaunchTraces.of([traces])
    (finished,) = [each for each in project_all(_finished(logs), given) if each.launch.uid == 2]
    first, found = project_all(logs, given)
    assert first.launch.complete
    assert (found.launch.complete, found.launch.traced_id, found.launch.uid) == (False, 6, 2)
    assert (found.total_instructions, found.projection.rule) == (40_000, "waves")
    assert found.stop == finished.stop
    assert found.stop is not None
    assert (found.simulated_cycles, found.projected_cycles) == (900, pytest.approx(1040))
    assert (found.true_cycles, found.signed_error_percent) == (None, None)
    assert found.to_dict()["total_instructions"] == 40_000
    summary = summary_of([found])
    assert (summary["stopped"], summary["projected_cycles"]) == (1, found.projected_cycles)
    assert summary["simulated_cycles"] == 900
    assert (summary["true_cycles"], summary["saved_percent"]) == (None, None)


def _finished(logs: tuple[Path, Path]) -> tuple[Path, Path]:
    out = logs[0].with_name("finished")
    out.write_text(output([FIRST, STOPPED]))
    return out, logs[1]


def test_without_its_trace_a_stopped_launch_is_not_projected_by_instructions(
    logs: tuple[Path, Path],
) -> None:
    (_, found) = project_all(logs)
    assert (found.total_instructions, found.projection.rule, found.stop) == (None, "paper", None)
    # It never ended: the cycles of its last sample are not those of the launch.
    assert (found.projected_cycles, found.simulated_cycles) == (None, 900)
    assert found.to_dict()["projected_cycles"] is None
    (_, asked) = project_all(logs, rule="waves")
    assert (asked.projection, asked.reason) == (None, make_note("instructions_unknown"))


def test_a_launch_that_a_limit_ended_takes_its_trace_too(logs: tuple[Path, Path], traces: Path) -> None:
    limited = replace(STOPPED, cycles=950, instructions=36_250, issued=30)
    logs[0].write_text(output([FIRST, limited]))
    (_, found) = project_all(logs, LaunchTraces.of([traces]))
    assert (found.launch.complete, found.projection.rule) == (False, "waves")
    assert found.projected_cycles == pytest.approx(1040)


def test_only_launches_that_did_not_end_need_a_trace(logs: tuple[Path, Path], tmp_path: Path) -> None:
    missing = LaunchTraces.of([tmp_path / "kernel-2.traceg"])
    assert [each.total_instructions for each in project_all(_finished(logs), missing)] == [1280, 40_000]
    (_, found) = project_all(logs, missing)
    assert (found.total_instructions, found.stop) == (None, None)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (Listed(6, "_Z5otherv", STOPPED.grid, STOPPED.block), "the kernel '_Z5otherv'"),
        (Listed(6, STOPPED.name, (9, 1, 1), STOPPED.block), "the grid (9, 1, 1)"),
        (Listed(6, STOPPED.name, STOPPED.grid, (64, 1, 1)), "the block (64, 1, 1)"),
    ],
)
def test_the_trace_of_another_launch_is_refused(
    logs: tuple[Path, Path], tmp_path: Path, changed: Listed, what: str
) -> None:
    trace = write_traced(tmp_path / "kernel-6.traceg", changed, [[EXIT_LINE]])
    with pytest.raises(InputError) as caught:
        project_all(logs, LaunchTraces.of([trace]))
    assert what in str(caught.value)
    assert caught.value.path == str(trace)


def test_the_replay_of_a_launch_s_last_blocks_is_not_taken_for_the_launch(
    logs: tuple[Path, Path], tmp_path: Path
) -> None:
    """It has the id of the launch, and as many blocks as are replayed: four waves, so the rule stops it."""
    listed = Listed(6, STOPPED.name, (96, 1, 1), STOPPED.block)
    trace = write_traced(tmp_path / "kernel-6.traceg", listed, [BLOCK])
    text = _finished(logs)[0].read_text()
    loaded = "Header info loaded for kernel command : ./{}.traceg\n"
    parts = text.split("Processing kernel")
    assert len(parts) == 3
    names = loaded.format("kernel-2"), loaded.format("kernel-mem-6")
    (tmp_path / "replayed").write_text(
        f"{parts[0]}{names[0]}Processing kernel{parts[1]}{names[1]}Processing kernel{parts[2]}"
    )
    *_, replay = project_all((tmp_path / "replayed", logs[1]), LaunchTraces.of([trace]))
    assert replay.stop is not None
    assert replay.projected_cycles == pytest.approx(1040)
    with pytest.raises(InputError, match="it is of the grid"):
        project_all(_finished(logs), LaunchTraces.of([trace]))


def test_the_interval_log_of_another_run_is_refused(logs: tuple[Path, Path], traces: Path) -> None:
    logs[1].write_text(SAMPLES.replace(f"globaltotinsncount: {FIRST.instructions}", "globaltotinsncount: 99"))
    with pytest.raises(InputError, match="not of the same run"):
        project_all(logs, LaunchTraces.of([traces]))


def test_a_launch_ended_before_its_first_sample_is_left_out(logs: tuple[Path, Path], traces: Path) -> None:
    logs[1].write_text(sample(50, 100, 0))  # of the launch before
    assert [each.launch.uid for each in project_all(logs, LaunchTraces.of([traces]))] == [1]


def test_counted_instructions_are_those_of_the_blocks(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "kernel-1.traceg",
        block_text("0,0,0", [MOV, "0010 0000000f 1 R6 LDG.E.SYS 1 R2 4 1 0x7f5c40000000 4 0", EXIT_LINE], []),
        block_text("1,0,0", [EXIT_LINE], [EXIT_LINE]),
        grid="(2,1,1)",
    )
    assert launch_work(path).thread_instructions == 4 * 32 + 4
    assert launch_work(path).thread_instructions == sum(
        each.thread_instructions for each in read_blocks(path)
    )


@pytest.mark.parametrize(
    ("find", "put", "cause"),
    [
        ("insts = 3", "insts = 4", "4 instructions, and has 3"),
        ("thread block = 1,0,0", "thread block = 2,0,0", "outside the grid"),
        ("#END_TB\n\n#BEGIN_TB", "#END_TB\n\n#BEGIN_", "ends within|thread blocks"),
        ("ffffffff 1 R1 MOV", "fffffffff 1 R1 MOV", "instructions, and has"),
    ],
)
def test_damaged_traces_are_never_counted(tmp_path: Path, find: str, put: str, cause: str) -> None:
    path = write_trace(
        tmp_path / "kernel-1.traceg",
        block_text("0,0,0", [MOV, MOV, EXIT_LINE]),
        block_text("1,0,0", [MOV, EXIT_LINE]),
        grid="(2,1,1)",
    )
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, put) if "BEGIN" not in find else text[: text.rfind("#BEGIN_TB")])
    with pytest.raises(InputError, match=cause):
        launch_work(path)


def test_traces_are_known_by_name_or_header_and_replays_are_passed_over(tmp_path: Path, traces: Path) -> None:
    odd = tmp_path / "odd.traceg"
    odd.write_bytes(traces.read_bytes())
    replay = tmp_path / "kernel-mem-6.traceg"
    replay.write_text("not read")
    assert LaunchTraces.of([replay, odd]).path_of(6) == odd
    assert LaunchTraces.of([replay, traces]).path_of(6) == traces
    assert LaunchTraces.of([replay, traces]).path_of(7) is None


@pytest.mark.shared_data
def test_the_real_stopped_run_is_projected_as_online(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "accel_sim_parts"
    tool = shared_data.parent / "tools" / "accel_sim" / "solver_traces.py"
    made = [sys.executable, str(tool), str(tmp_path), "--steps", "1", "--scale", "0.5", "--only", "1"]
    subprocess.run(made, check=True, timeout=120, stdout=subprocess.DEVNULL)
    traces = LaunchTraces.of([tmp_path / "kernel-1.traceg"])
    run = SimulatorRun(
        folder / "solver.10sm.stopped-1.out.gz", folder / "solver.10sm.stopped-1.visualizer.gz"
    )
    (found,) = project_run(run, traces=traces)
    with gzip.open(folder / "solver.10sm.cold-1.out.gz", "rt") as whole:
        assert f"gpu_sim_insn = {found.total_instructions:.0f}\n" in list(whole)
    assert (found.simulated_cycles, round(found.projected_cycles or 0)) == (50_500, 53_809)
    # Finished, the same launch takes 54,088 cycles.
    finished = SimulatorRun(folder / "solver.10sm.cold-1.out.gz", folder / "solver.10sm.cold-1.visualizer.gz")
    (whole_launch,) = project_run(finished, traces=traces)
    assert (whole_launch.stop, whole_launch.true_cycles) == (found.stop, 54_088)
