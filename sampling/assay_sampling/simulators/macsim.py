"""Traces of MacSim: the list of a workload's launches, and how many warps and blocks a launch has.

``kernel_config.txt`` has a first part (the version of the traces where there is one, -1 because a list
follows, and the kind of trace), then one path to a ``Trace.txt`` for each launch, in order of launch. MacSim
takes the last folder of each path and looks for it in the folder of the list. ``Trace.txt`` begins with the
version, the number of warps, the kind, and for ``newptx`` the blocks that an SM may hold; then each warp has
its id, 65,536 x block + warp, and the instruction at which it starts. Nothing names a kernel.

Source: docs/simulator-files.md, "MacSim"; MacSim's process_manager_c::create_process and setup_process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_blocks, reading, require_file

LIST_NAME = "kernel_config.txt"
TRACE_NAME = "Trace.txt"
_AGAIN = "name the folder with the kernel_config.txt of the traces"
_TRACE_AGAIN = "copy the trace again from where it was made"
_KINDS = (b"newptx", b"ptx")
# Version, number and kind are the first words.
_HEAD_WORDS = 4
_BLOCK_SHIFT = 16
_READ_BYTES = 1 << 16
_MOST_DIGITS = 30


@dataclass(frozen=True)
class TracedWarps:
    """The size of a traced launch: all its warps, and those of its first block."""

    warps: int
    warps_per_block: int


def read_kernel_config(path: Path) -> tuple[str, list[str]]:
    """The first part of a ``kernel_config.txt``, and the paths of its launches in order.

    Raises InputError for a file that is not such a list.
    """
    require_file(path, _AGAIN)
    with reading(path):
        lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    first = next((at for at, line in enumerate(lines) if line.strip().endswith(TRACE_NAME)), len(lines))
    head = [line for line in lines[:first] if line.strip()]
    if "-1" not in " ".join(head).split():
        raise InputError(path, "it is not a list of kernels: it does not say '-1'", _AGAIN, line=1)
    paths = [line.strip() for line in lines[first:] if line.strip()]
    for number, line in enumerate(lines[first:], first + 1):
        if line.strip() and not line.strip().endswith(TRACE_NAME):
            raise InputError(path, f"{line[:60]!r} is not the path of a Trace.txt", _AGAIN, line=number)
    if not paths:
        raise InputError(path, "it lists no launch", _AGAIN)
    return "\n".join(head), paths


def read_traced_warps(path: Path) -> TracedWarps:
    """The size of the launch of a ``Trace.txt``; only its first block is read.

    Raises InputError for a file that is not the list of a GPU launch's warps.
    """
    require_file(path, _TRACE_AGAIN)
    words = _words(path)
    head: list[bytes] = []
    for word in words:
        if word in _KINDS:
            break
        head.append(word)
        if len(head) == _HEAD_WORDS:
            break
    if not head or len(head) == _HEAD_WORDS:
        cause = "it is not a list of warps: its first words name neither 'newptx' nor 'ptx'"
        raise InputError(path, cause, _TRACE_AGAIN, line=1)
    warps = _number(path, head[-1], "number of warps")
    if warps < 1:
        raise InputError(path, "it says that the launch has no warp", _TRACE_AGAIN, line=1)
    if word == b"newptx":
        _number(path, next(words, b""), "blocks of an SM")
    return TracedWarps(warps, _of_first_block(path, words, warps))


def _of_first_block(path: Path, words: Iterator[bytes], warps: int) -> int:
    """How many warps have the block of the first one; MacSim counts them so, too."""
    block, count = None, 0
    for at in range(warps):
        warp = _number(path, next(words, b""), f"warp {at}")
        _number(path, next(words, b""), f"start of warp {at}")
        block = warp >> _BLOCK_SHIFT if block is None else block
        if warp >> _BLOCK_SHIFT != block:
            break
        count += 1
    return count


def _words(path: Path) -> Iterator[bytes]:
    rest = b""
    for piece in read_blocks(path, _READ_BYTES):
        text = rest + piece
        end = max(text.rfind(b" "), text.rfind(b"\n"), text.rfind(b"\t")) + 1
        yield from text[:end].split()
        rest = text[end:]  # a word may go on in the next piece
        if len(rest) > _READ_BYTES:
            raise InputError(path, "it is not text", _TRACE_AGAIN)
    yield from rest.split()


def _number(path: Path, word: bytes, field: str) -> int:
    if not word:
        raise InputError(path, "it ends before that", _TRACE_AGAIN, field=field)
    if not word.isdigit() or len(word) > _MOST_DIGITS:
        shown = word.decode(errors="replace")[:40]
        raise InputError(path, f"{shown!r} is not a whole number", _TRACE_AGAIN, field=field)
    return int(word)
