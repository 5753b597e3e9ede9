"""The commands of the page on hand-over work, in its order, on a workload of six launches."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from assay_client.cli.main import main
from tests.support.client import hand_made
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.macsim_traces import write_warps

PAGE = Path(__file__).resolve().parents[2] / "docs" / "handover.md"
LAUNCHES = 6


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def prepare(work: Path) -> None:
    """What the page's reader has: a recording, traces of two kinds, and logs of the simulator."""
    hand_made.write_raw_page(work / "profile.csv", LAUNCHES)
    hand_made.write_kineto(work / "light.json", LAUNCHES)
    kinds = hand_made.kinds(LAUNCHES)
    grids = [(hand_made.GRIDS[kind], 1, 1) for kind in kinds]
    names = [("_Z4copyPf", "_Z4gemmIfEvPT_i", "_Z6reducePfS_")[kind] for kind in kinds]
    listed = [Listed(at + 1, names[at], grids[at], (128, 1, 1)) for at in range(LAUNCHES)]
    write_listed(work / "traces", listed, copies=["MemcpyHtoD,0x00007f0000000000,64"])
    macsim = work / "macsim-traces"
    for at in range(LAUNCHES):
        (macsim / f"Kernel{at}").mkdir(parents=True)
        write_warps(macsim / f"Kernel{at}" / "Trace.txt", grids[at], (128, 1, 1))
    paths = "".join(f"/here/Kernel{at}/Trace.txt\n" for at in range(LAUNCHES))
    (macsim / "kernel_config.txt").write_text(f"-1 newptx\n{paths}")
    made = [
        logs.Launch(name=names[at], traced_id=at + 1, grid=grids[at], block=(128, 1, 1), cycles=900 + at)
        for at in range(LAUNCHES)
    ]
    (work / "full.out").write_text(logs.output(made))
    (work / "sampled.out").write_text(logs.output(made))


def test_every_command_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    prepare(work)
    monkeypatch.chdir(work)
    first = "assay select pks profile.csv -p k=2 -o selection.json"
    for line in [first, *(line for block in blocks() for line in block.splitlines())]:
        program, *words = shlex.split(line)
        assert (program, main(words)) == ("assay", 0), line
    assert "DYNAMIC_KERNEL_RANGE" in (work / "tracing" / "tracer.env").read_text()
    assert (work / "handed" / "warm-kernelslist.g").is_file()
    assert (work / "jobs" / "define-app.yml").is_file()
    assert (work / "handed-macsim" / "kernel_config.txt").read_text().startswith("-1 newptx\nKernel")
    assert json.loads((work / "simulated.json").read_text())["simulation_version"] == 1
    assert (work / "selection.trace.json.gz").is_file()
    assert (work / "weights.txt").read_text().startswith("# assay-weights 1\n")


def test_the_page_names_every_form() -> None:
    text = PAGE.read_text()
    for form in ("nvbit", "accel-sim", "accel-sim-jobs", "macsim", "perfetto", "weights"):
        assert f"--to {form}" in text


def test_the_cold_start_of_the_page_is_that_of_the_logs() -> None:
    # The cycles of `reuse`: launches 1 to 4 together, and launch 3 alone.
    full, alone = [19008, 14043, 16541, 14104], 19263
    total = sum(full)
    text = PAGE.read_text()
    assert f"{100 * abs(total - 4 * alone) / total:.1f} %" in text
    assert f"{100 * 4 * (alone - full[2]) / total:.1f} %" in text
