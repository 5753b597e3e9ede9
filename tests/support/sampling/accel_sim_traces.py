"""Traces of Accel-Sim, made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEADER = """-kernel name = _Z4kernPf
-kernel id = {kernel_id}
-grid dim = {grid}
-block dim = (64,1,1)
-shmem = 2048
-nregs = 24
-binary version = 80
-cuda stream id = 7
-shmem base_addr = 0x00007f5c20000000
-local mem base_addr = 0x00007f5c1e000000
-nvbit version = 1.5.5
-accelsim tracer version = {version}
-enable lineinfo = {lineinfo}

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [mem_addresses]
"""
MOV = "0000 ffffffff 1 R1 MOV 0 0 0 "
EXIT = "00f0 ffffffff 0 EXIT 0 0 0 "


def block_text(where: str, *warps: list[str]) -> str:
    text = f"\n#BEGIN_TB\n\nthread block = {where}\n"
    for number, lines in enumerate(warps):
        text += f"\nwarp = {number}\ninsts = {len(lines)}\n" + "\n".join(lines) + "\n"
    return text + "\n#END_TB\n"


def write_trace(
    path: Path, *blocks: str, grid: str = "(1,1,1)", version: int = 5, lineinfo: int = 0, kernel_id: int = 1
) -> Path:
    head = HEADER.format(grid=grid, version=version, lineinfo=lineinfo, kernel_id=kernel_id)
    path.write_text(head + "".join(blocks))
    return path


TRACE = """-kernel name = k
-kernel id = 1
-grid dim = (1,1,1)
-block dim = (32,1,1)
-shmem = 0
-nregs = 8
-binary version = 70
-cuda stream id = 0
-accelsim tracer version = 4
#traces format = PC mask dest_num reg_dests opcode src_num reg_srcs mem_width addresses

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = 2
0000 ffffffff 1 R1 LDG.E 1 R2 4 1 0x7f0000000000 4
0010 ffffffff 0 EXIT 0 0

#END_TB
"""


def write_listed(folder: Path, launches: Sequence[Listed], *, copies: Sequence[str] = ()) -> Path:
    """Traces of launches without instructions, by their names, and their list; the copies come first."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in launches:
        write_header(folder / f"kernel-{each.kernel_id}.traceg", each)
    lines = [*copies, *(f"kernel-{each.kernel_id}.traceg" for each in launches)]
    listed = folder / "kernelslist.g"
    listed.write_text("".join(f"{line}\n" for line in lines))
    return listed


@dataclass(frozen=True)
class Listed:
    """A launch as the header of its trace has it."""

    kernel_id: int
    kernel: str = "_Z4kernPf"
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)
    tracer_version: int = 5


def write_header(path: Path, launch: Listed) -> None:
    """A trace of one launch: its header, and one thread block with one warp that loads and exits."""
    shape = "({},{},{})".format
    text = HEADER.format(
        grid=shape(*launch.grid), version=launch.tracer_version, lineinfo=0, kernel_id=launch.kernel_id
    )
    text = text.replace("block dim = (64,1,1)", f"block dim = {shape(*launch.block)}")
    text = text.replace("_Z4kernPf", launch.kernel)
    load = "0000 ffffffff 1 R1 LDG.E 1 R2 4 1 0x7f0000000000 4 0"
    path.write_text(text + block_text("0,0,0", [MOV, load, EXIT]))


def write_traced(path: Path, launch: Listed, warps: list[list[str]]) -> Path:
    """A trace of one launch: its header, and every thread block of its grid with the same warps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_header(path, launch)
    head = path.read_text().partition("#BEGIN_TB")[0]
    x, y, z = launch.grid
    places = [f"{i},{j},{k}" for k in range(z) for j in range(y) for i in range(x)]
    path.write_text(head + "".join(block_text(place, *warps) for place in places))
    return path
