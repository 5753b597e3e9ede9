"""MacSim's traces: the sizes that they say, and traces of other launches that an export refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.errors import InputError, MisalignedError
from assay_sampling.handover.macsim import MacSimTarget
from assay_sampling.handover.target import Inputs
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.macsim import TracedWarps, read_traced_warps
from tests.support.client import hand_made
from tests.support.sampling.macsim_traces import write_warps

TARGET = MacSimTarget()


def traced(tmp_path: Path, text: str) -> TracedWarps:
    (tmp_path / "Trace.txt").write_text(text)
    return read_traced_warps(tmp_path / "Trace.txt")


@pytest.mark.parametrize(
    "text",
    [
        "4 newptx 8\n0 0\n1 0\n65536 0\n65537 0\n",
        "11\n4 newptx 8\r\n0 0\r\n1 0\r\n65536 0\r\n65537 0\r\n",
        "14 4 ptx 0 0 1 0 65536 0 65537 0",
        "nvbit\n14\n4 newptx 1\n0 0\n1 0\n65536 0\n65537 0\n",
    ],
)
def test_warps_are_read_of_every_release(tmp_path: Path, text: str) -> None:
    assert traced(tmp_path, text) == TracedWarps(4, 2)


def test_a_launch_of_one_block_and_one_of_a_block_that_is_not_full(tmp_path: Path) -> None:
    write_warps(tmp_path / "Trace.txt", (1, 1, 1), (1000, 1, 1))
    assert read_traced_warps(tmp_path / "Trace.txt") == TracedWarps(32, 32)
    write_warps(tmp_path / "Trace.txt", (300, 200, 2), (33, 1, 1), head="13 ")
    assert read_traced_warps(tmp_path / "Trace.txt") == TracedWarps(240_000, 2)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "it is empty"),
        ("4 x86\n0 0\n", "name neither 'newptx' nor 'ptx'"),
        ("0 newptx 8\n", "no warp"),
        ("four newptx 8\n", "'four' is not a whole number"),
        ("4 newptx 8\n0 0\n1", "it ends before that"),
        ("4 newptx 8\n0 0\n-1 0\n", "'-1' is not a whole number"),
        ("newptx 8\n", "name neither"),
        ("x" * 200_000, "it is not text"),
    ],
)
def test_other_files_are_refused_with_what_is_wrong(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(InputError, match=cause):
        traced(tmp_path, text)


@pytest.fixture
def saved(tmp_path: Path) -> SavedSelection:
    light = read_launches(hand_made.write_kineto(tmp_path / "light.json", 40))
    made = registry.select("random", Profile(light=light), {"launches": 4}, 0)
    return SavedSelection.of(made.document(labels=True), "selection")


@pytest.fixture
def traces(saved: SavedSelection, tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    lines = [f"/where/they/were/Kernel{at}/Trace.txt" for at in range(40)]
    (folder / "kernel_config.txt").write_text("\n".join(["-1 newptx", *lines]) + "\n")
    for row, launch in enumerate(saved.launch.tolist()):
        (folder / f"Kernel{launch}").mkdir()
        write_warps(folder / f"Kernel{launch}" / "Trace.txt", saved.grid[row], saved.block[row])
    return folder


def refused(saved: SavedSelection, traces: Path, match: str = "exact") -> MisalignedError:
    with pytest.raises(MisalignedError) as caught:
        TARGET.hand_over(saved, Inputs(Path("selection.json"), traces=traces, match=match))  # type: ignore[arg-type]
    return caught.value


def test_launches_of_other_blocks_or_warps_are_refused_with_the_first(
    saved: SavedSelection, traces: Path
) -> None:
    row = int(saved.launch.argmin())
    launch = int(saved.launch[row])
    path = traces / f"Kernel{launch}" / "Trace.txt"
    grid, block = saved.grid[row].tolist(), saved.block[row].tolist()
    blocks, of_block = grid[0] * grid[1] * grid[2], -(-block[0] * block[1] * block[2] // 32)
    assert TARGET.hand_over(saved, Inputs(Path("s"), traces=traces)).links

    write_warps(path, (grid[0] + 1, *grid[1:]), block)
    error = refused(saved, traces)
    more = (blocks + grid[1] * grid[2]) * of_block
    assert error.differences == (
        f"Kernel{launch}/Trace.txt (launch {launch + 1}): {more:,} warps and not {blocks * of_block:,} "
        f"(grid {tuple(grid)})",
    )
    assert "1 of the 4 selected launches" in error.cause and "--match name_block" in error.remedy
    assert TARGET.hand_over(saved, Inputs(Path("s"), traces=traces, match="name_block")).links

    write_warps(path, grid, (block[0] + 32, *block[1:]))
    for match in ("exact", "name_block"):
        error = refused(saved, traces, match)
        assert "warps in a block and not" in error.differences[0] and "--match" not in error.remedy

    path.unlink()
    with pytest.raises(InputError, match="there is no such file"):
        TARGET.hand_over(saved, Inputs(Path("s"), traces=traces))
