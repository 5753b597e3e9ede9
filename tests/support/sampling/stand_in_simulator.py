"""A stand-in for Accel-Sim, for tests of what runs it: a program in the layout of an installed simulator.

It simulates nothing. It echoes the headers of the traces in its list and prints statistics in the layout of
the real one: a launch latency of 200 cycles, and 100 cycles a thread block divided by the SM clusters; a
launch after the replay of another takes 50 less. Options of ours make it misbehave at a launch:

    -stand_in_slow SECONDS      every launch takes so long
    -stand_in_at ID,WHAT        at this launch: crash, deadlock, hang, memory, kill, refuse, silent, part
    -stand_in_replay LOG        write this log and its intervals (LOG without .out.gz, with .visualizer.gz),
                                these in pieces that end anywhere
    -stand_in_hold SECONDS      before the last of these pieces; 0: all are written at once
"""

from __future__ import annotations

import gzip
import os
import re
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LATENCY_CYCLES = 200
CLUSTERS = {"BIG": 4, "SMALL": 2}
# The real one names it by the date, whatever -visualizer_outputfile says.
INTERVALS = "gpgpusim_visualizer__Wed-Nov-25-19-25-34-2026.log.gz"
PIECES, PIECE_SECONDS = 37, 0.05


def write_stand_in(root: Path) -> Path:
    """An installation whose program is the stand-in, with the configurations BIG and SMALL."""
    program = root / "bin" / "release" / "accel-sim.out"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!{sys.executable} -S\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.support.sampling.stand_in_simulator import main\nmain(sys.argv[1:])\n"
    )
    program.chmod(0o755)
    for name, clusters in CLUSTERS.items():
        folder = root / "gpgpu-sim" / "configs" / "tested-cfgs" / name
        folder.mkdir(parents=True)
        text = f"-gpgpu_n_clusters {clusters}\n-ptx_opcode_latency_int 4,4,4,4,21\n"
        (folder / "gpgpusim.config").write_text(text)
        (folder / "network.icnt").write_text("use_map = 0;\n")
        traces = root / "configs" / "tested-cfgs" / name / "trace.config"
        traces.parent.mkdir(parents=True)
        traces.write_text("-trace_opcode_latency_initiation_int 4,2\n")
    return root


def cycles_of(blocks: int, clusters: int, *, after_replay: bool = False) -> int:
    """The cycles that the stand-in prints."""
    return LATENCY_CYCLES + 100 * blocks // clusters - (50 if after_replay else 0)


def main(arguments: list[str]) -> None:
    """Be the simulator."""
    from tests.support.sampling import accel_sim_logs as logs  # noqa: PLC0415 - the program's own start

    given = _options(arguments)
    listed = Path(given["trace"])
    at, _, what = given.get("stand_in_at", "0,").partition(",")
    if what == "refuse":
        sys.exit("GPGPU-Sim: ERROR: unknown option")
    if "stand_in_replay" in given:
        _replay(Path(given["stand_in_replay"]), given)
        return
    clusters = given["gpgpu_n_clusters"]
    print(logs.options(gpgpu_n_clusters=clusters, gpgpu_n_cores_per_cluster="1"), end="", flush=True)
    totals, replayed = logs.Totals(), False
    names = [line for line in listed.read_text().split() if line.startswith("kernel")]
    for uid, name in enumerate(names, start=1):
        launch = _launch(listed.parent / name, int(clusters), after_replay=replayed)
        replayed = name.startswith("kernel-mem-")
        print(f"Header info loaded for kernel command : ./{name}")
        print(logs.header(launch, uid), end="", flush=True)
        with gzip.open(INTERVALS, "ab") as intervals:
            intervals.write(logs.sample(launch.cycles, launch.instructions, launch.ctas // 2).encode())
        time.sleep(float(given.get("stand_in_slow", "0")))
        if launch.traced_id == int(at) and not replayed:
            _misbehave(what)
        if what == "part" and launch.traced_id == int(at):
            return
        print(logs.statistics(launch, uid, totals), end="", flush=True)
    print(logs.EXIT, end="", flush=True)


def _replay(log: Path, given: dict[str, str]) -> None:
    """Write the logs of a simulator that ran earlier."""
    text = gzip.decompress(log.read_bytes()).decode()
    ended = text.index("\nkernel_name = ") + 1
    print(text[:ended], end="", flush=True)
    intervals = log.with_name(log.name.replace(".out.gz", ".visualizer.gz")).read_bytes()
    size, hold = len(intervals) // PIECES + 1, float(given["stand_in_hold"])
    with Path(INTERVALS).open("ab", buffering=0) as output:
        for start in range(0, len(intervals), size):
            if start + size >= len(intervals):
                time.sleep(hold)
            output.write(intervals[start : start + size])
            time.sleep(PIECE_SECONDS if hold else 0)
    print(text[ended:], end="", flush=True)


def _options(arguments: list[str]) -> dict[str, str]:
    """Options by name, those of configurations first, as the simulator reads them."""
    found: dict[str, str] = {}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if name == "-config":
            found |= {line.split()[0][1:]: line.split()[1] for line in Path(value).read_text().splitlines()}
        else:
            found[name[1:]] = value
    return found


def _launch(trace: Path, clusters: int, *, after_replay: bool) -> object:
    from tests.support.sampling import accel_sim_logs as logs  # noqa: PLC0415

    text = trace.read_text()

    def of(name: str) -> str:
        found = re.search(rf"^-{name} = (.*)$", text, re.MULTILINE)
        assert found is not None
        return found[1]

    grid, block = (tuple(map(int, of(f"{what} dim").strip("()").split(","))) for what in ("grid", "block"))
    blocks = grid[0] * grid[1] * grid[2]
    return logs.Launch(
        name=of("kernel name"),
        traced_id=int(of("kernel id")),
        grid=grid,  # type: ignore[arg-type]
        block=block,  # type: ignore[arg-type]
        cycles=cycles_of(blocks, clusters, after_replay=after_replay),
        instructions=1000 * blocks,
    )


def _misbehave(what: str) -> None:
    if what == "crash":
        print("trace_parser.cc:437: Assertion `inst_count' failed.", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if what == "deadlock":
        print("\n\nGPGPU-Sim uArch: ERROR ** deadlock detected: last writeback core 3", flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if what == "hang":
        time.sleep(600)
    if what == "memory":
        try:
            print(len(bytearray(1 << 36)))
        except MemoryError:
            print(
                "terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True
            )
            os.kill(os.getpid(), signal.SIGABRT)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "silent":
        sys.exit(0)
