"""Reader of Accel-Sim's grouped SASS traces (``kernel-N.traceg``, plain, ``.xz``, ``.gz`` or ``.zst``).

A trace is text: a header, then thread blocks of warps of instruction lines. It streams: one thread block is
held at a time. A line is

    [line] PC mask destinations [Rn] OPCODE sources [Rn ...] width [mode addresses] [immediate]

and its addresses come in three modes: 0 lists one for every active lane, 1 is a base and a stride, 2 a base
and popcount(mask) - 1 differences. (Accel-Sim's own reader takes one number too many in mode 2 and so
swallows the immediate of version 5.) A memory instruction whose lanes are all masked off is written as mode 1
at address 0 and counts as touching nothing. Generic loads and stores (``LD``, ``ST``) count as device memory.

Source: docs/simulator-files.md, "Traces"; accel-sim-framework (NVBit tracer, post-processing, trace parser).
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np

from assay_sampling.errors import InputError, ParameterError
from assay_sampling.simulators.accel_sim.addresses import addresses_of
from assay_sampling.simulators.accel_sim.trace_text import (
    HEADER_BYTES,
    WARP,
    TraceHeader,
    block_texts,
    instruction_pattern,
    open_trace,
    parse_header,
    read_header,
)

__all__ = [
    "MemoryInstructions",
    "ThreadBlock",
    "TraceHeader",
    "block_counts",
    "read_blocks",
    "read_header",
]

_AGAIN = "copy the trace again, or trace the launch again"

# Shared memory, constants and textures have other address spaces: 0x40 there is not 0x40 in global memory.
_DEVICE_MEMORY = re.compile(rb"(?:LDG|STG|LD|ST|RED|REDG|ATOM|ATOMG|LDL|STL|LDGSTS|CCTL)(?:\.|$)")
_INSTRUCTIONS = re.compile(rb"^insts *= *(\d+)[ \r]*$", re.MULTILINE)
_BLOCK = re.compile(rb"^thread block *= *(\d{1,10}) *, *(\d{1,10}) *, *(\d{1,10})[ \r]*$", re.MULTILINE)
_MOST_DIGITS = 9


@dataclass(frozen=True)
class MemoryInstructions:
    """The m memory instructions of one thread block, by warp, in each warp's order.

    Args:
        warp: warp within the block, int32 of shape (m,).
        position: ordinal among the warp's memory instructions, int32 of shape (m,).
        opcode: SASS opcode with its modifiers, m texts.
        device_memory: global or local memory (True), or shared, constant or texture, shape (m,).
        width_bytes: bytes for each thread, int32 of shape (m,).
        offsets: addresses of instruction i are ``addresses[offsets[i]:offsets[i + 1]]``, int64, (m + 1,).
        addresses: first byte of every active lane, in order of lanes, uint64 of shape (a,).
    """

    warp: np.ndarray
    position: np.ndarray
    opcode: tuple[str, ...]
    device_memory: np.ndarray
    width_bytes: np.ndarray
    offsets: np.ndarray
    addresses: np.ndarray

    def granules(self, granule_bytes: int) -> tuple[np.ndarray, np.ndarray]:
        """Aligned pieces of device memory that instructions touch: sectors of 32 bytes, lines of 128.

        Returns the instruction, int64, and the piece, uint64 (address / ``granule_bytes``), both of shape
        (k,): each piece once for an instruction, as after coalescing; by instruction, then piece.
        ``granule_bytes`` is a power of 2, else ParameterError; 1 gives the first byte of each lane.
        """
        if granule_bytes < 1 or granule_bytes & (granule_bytes - 1):
            raise ParameterError("granule", f"{granule_bytes} bytes is not a power of two", "give 32 or 128")
        lanes = np.diff(self.offsets)
        chosen = np.repeat(self.device_memory, lanes)
        owner = np.repeat(np.arange(len(lanes)), lanes)[chosen]
        first = self.addresses[chosen]
        shift = np.uint64(granule_bytes.bit_length() - 1)
        piece = first >> shift
        if granule_bytes > 1:
            # A wide or unaligned access may cross into the next piece.
            last = first + np.maximum(self.width_bytes[owner], 1).astype(np.uint64) - np.uint64(1)
            crosses = (last >> shift) != piece
            owner = np.concatenate([owner, owner[crosses]])
            piece = np.concatenate([piece, (last >> shift)[crosses]])
        order = np.lexsort((piece, owner))
        owner, piece = owner[order], piece[order]
        new = np.ones(len(owner), bool)
        new[1:] = (owner[1:] != owner[:-1]) | (piece[1:] != piece[:-1])
        return owner[new], piece[new]


@dataclass(frozen=True)
class ThreadBlock:
    """One thread block: where it is in the grid and what it executes.

    ``index`` = x + grid_x (y + grid_y z). Thread instructions count the lanes of each line's mask; memory
    requests are memory instructions of a warp on global or local memory with at least one active lane.
    ``memory`` is None unless it was asked for.
    """

    position: tuple[int, int, int]
    index: int
    warp_instructions: int
    thread_instructions: int
    memory_requests: int
    memory: MemoryInstructions | None


def read_blocks(path: Path, *, memory: bool = True) -> Generator[ThreadBlock, None, None]:
    """The thread blocks of a trace in the order of the file, one at a time.

    Without ``memory`` addresses are not parsed, which is several times faster. Raises InputError, naming the
    line, for a line that is not an instruction, for a warp with fewer instructions than it says, and for a
    file that ends before its last block or does not hold each block of the grid once.
    """
    indices: set[int] = set()
    with open_trace(path) as file:
        head = file.read(HEADER_BYTES)
        header, start = parse_header(path, head)
        parser = _BlockParser(path, header, memory)
        line = head.count(b"\n", 0, start) + 1
        for text in block_texts(path, file, head[start:]):
            block = parser.parse(text, line)
            if block.index in indices:
                raise InputError(path, f"thread block {block.position} appears twice", _AGAIN, line=line)
            indices.add(block.index)
            line += text.count(b"\n")
            yield block
    if len(indices) != header.blocks:
        raise InputError(
            path, f"it holds {len(indices):,} of the {header.blocks:,} thread blocks of its grid", _AGAIN
        )


def block_counts(path: Path, *, line_bytes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Warp instructions and memory requests of each thread block, int64 of shape (blocks,), by block index.

    A memory request is a warp's memory instruction on global or local memory with at least one active lane:
    what Nsight Compute counts as a request, so that requests / instructions is at most 1. With ``line_bytes``
    each line that such an instruction touches is a request, so that a warp makes 1 to 32 of them, as in
    TBPoint, section III. Raises InputError as :func:`read_blocks` does.
    """
    # The header's grid is trusted only once all its blocks were read.
    rows = array("q")
    for block in read_blocks(path, memory=line_bytes is not None):
        requests = block.memory_requests
        if line_bytes is not None and block.memory is not None:
            requests = len(block.memory.granules(line_bytes)[0])
        rows.extend((block.index, block.warp_instructions, requests))
    table = np.frombuffer(rows, np.int64).reshape(-1, 3)
    table = table[np.argsort(table[:, 0])]
    return table[:, 1].copy(), table[:, 2].copy()


@dataclass
class _BlockParser:
    """Turns the text of one thread block into its columns."""

    path: Path
    header: TraceHeader
    memory: bool
    _line: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._line = instruction_pattern(self.header)

    def parse(self, text: bytes, first_line: int) -> ThreadBlock:
        where = _BLOCK.search(text)
        if where is None:
            raise InputError(self.path, "a thread block has no index", _AGAIN, line=first_line)
        x, y, z = (int(part) for part in where.groups())
        grid = self.header.grid
        if x >= grid[0] or y >= grid[1] or z >= grid[2]:
            raise InputError(
                self.path, f"thread block {(x, y, z)} is outside the grid {grid}", _AGAIN, line=first_line
            )
        warps, rows = self._rows(text, first_line)
        masks = _hexadecimal([row[0] for row in rows])
        of_memory = [i for i, row in enumerate(rows) if row[2] != b"0"]
        opcodes = [rows[i][1] for i in of_memory]
        is_device: dict[bytes, bool] = {op: bool(_DEVICE_MEMORY.match(op)) for op in set(opcodes)}
        device = np.array([is_device[op] for op in opcodes], bool)
        lanes = np.bitwise_count(masks)
        memory = None
        if self.memory:
            warp = np.array(warps, np.int32)[of_memory]
            offsets = np.concatenate([[0], np.cumsum(lanes[of_memory], dtype=np.int64)])
            memory = MemoryInstructions(
                warp=warp,
                position=_ordinals(warp),
                opcode=tuple(op.decode("ascii", "replace") for op in opcodes),
                device_memory=device,
                width_bytes=np.array([int(rows[i][2]) for i in of_memory], np.int32),
                offsets=offsets,
                addresses=self._addresses(rows, of_memory, lanes[of_memory], text, first_line),
            )
        return ThreadBlock(
            position=(x, y, z),
            index=x + grid[0] * (y + grid[1] * z),
            warp_instructions=len(rows),
            thread_instructions=int(lanes.sum(dtype=np.int64)),
            memory_requests=int((device & (lanes[of_memory] > 0)).sum()),
            memory=memory,
        )

    def _rows(self, text: bytes, first_line: int) -> tuple[list[int], list[tuple[bytes, ...]]]:
        """The warp of each instruction and its parts."""
        parts = WARP.split(text)
        warps: list[int] = []
        rows: list[tuple[bytes, ...]] = []
        for warp, body in zip(parts[1::2], parts[2::2], strict=True):
            declared = _INSTRUCTIONS.search(body)
            instructions = self._line.findall(body)
            if max(len(warp), len(declared[1]) if declared else 0) > _MOST_DIGITS:
                raise InputError(self.path, "a number of a warp is too large", _AGAIN, line=first_line)
            if declared is None or len(instructions) != int(declared[1]):
                self._blame(text, first_line, int(warp), len(instructions))
            warps.extend([int(warp)] * len(instructions))
            rows.extend(instructions)
        return warps, rows

    def _blame(self, text: bytes, first_line: int, warp: int, instructions: int) -> NoReturn:
        """Name the first line that is not an instruction; if all are, the warp's number of them is wrong."""
        pattern = re.compile(rb"#|warp *=|insts *= *\d+ *$|thread block *=|\s*$")
        for number, line in enumerate(text.splitlines(), first_line):
            if not pattern.match(line) and not self._line.match(line):
                shown = line[:60].decode("ascii", "backslashreplace")
                raise InputError(self.path, f"{shown!r} is not an instruction", _AGAIN, line=number)
        raise InputError(
            self.path,
            f"warp {warp} has {instructions:,} instructions, but its 'insts' gives another number",
            _AGAIN,
            line=first_line,
        )

    def _addresses(
        self,
        rows: list[tuple[bytes, ...]],
        of_memory: list[int],
        lanes: np.ndarray,
        text: bytes,
        first_line: int,
    ) -> np.ndarray:
        """The addresses of all lanes of the memory instructions, uint64, one instruction after the other."""
        addresses = []
        for row, count in zip(of_memory, lanes.tolist(), strict=True):
            payload = rows[row][3]
            try:
                addresses.append(addresses_of(payload, count))
            except ValueError:
                match = next(itertools.islice(self._line.finditer(text), row, None))
                raise InputError(
                    self.path,
                    f"its addresses cannot be read for {count} active lanes",
                    _AGAIN,
                    line=first_line + text.count(b"\n", 0, match.start()),
                ) from None
        return np.concatenate(addresses) if addresses else np.zeros(0, np.uint64)


def _hexadecimal(texts: list[bytes]) -> np.ndarray:
    """Masks as uint32 of shape (n,); each distinct text is parsed once."""
    values = {text: int(text, 16) for text in set(texts)}
    return np.array([values[text] for text in texts], np.uint32)


def _ordinals(warp: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... within each run of equal values, int32 of shape (m,)."""
    if not len(warp):
        return np.zeros(0, np.int32)
    starts = np.flatnonzero(np.concatenate([[True], warp[1:] != warp[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(warp)]]))
    return (np.arange(len(warp)) - np.repeat(starts, lengths)).astype(np.int32)
