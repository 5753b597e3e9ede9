"""Memory-only warm-up: the launches to replay before a selected one, as traces and as a list of kernels.

A launch that is simulated alone finds cold caches. Replaying only the memory instructions of the launch
before it warms them: measured, one predecessor brings `reuse` launch 3 to 16,587 cycles (warm 16,541, cold
19,263).

Source: Quantifying and mitigating the cold-start problem, section 4.1; docs/methods/cold-start.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay_sampling.errors import ParameterError
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList
from assay_sampling.simulators.accel_sim.trace_text import (
    HEADER_BYTES,
    PACKED_SUFFIX,
    WARP,
    block_texts,
    instruction_pattern,
    open_trace,
    parse_header,
)

_GRID = re.compile(rb"^-grid dim = \([^)]*\)", re.MULTILINE)


def memory_only_trace(path: Path, last_blocks: int | None = None) -> Iterator[bytes]:
    """The text of a trace with only memory instructions and EXIT, header first, block by block.

    EXIT stays because a warp without one never ends. The instructions that stay are copied unchanged. With
    ``last_blocks`` only so many blocks at the end of the trace stay, and the grid is as long as they are.
    Raises InputError for a file that is not a grouped trace or ends within a block.
    """
    with open_trace(path) as file:
        head = file.read(HEADER_BYTES)
        header, start = parse_header(path, head)
        line = instruction_pattern(header)
        skipped = 0 if last_blocks is None else max(header.blocks - last_blocks, 0)
        top = head[:start]
        yield _GRID.sub(b"-grid dim = (%d,1,1)" % (header.blocks - skipped), top) if skipped else top
        for text in block_texts(path, file, head[start:]):
            parts = WARP.split(text)
            if skipped and len(parts) > 1:
                skipped -= 1
                continue
            yield parts[0]
            for warp, body in zip(parts[1::2], parts[2::2], strict=True):
                instructions = [m[0] for m in line.finditer(body) if m[3] != b"0" or m[2].startswith(b"EXIT")]
                lines = b"".join(instruction + b"\n" for instruction in instructions)
                yield b"warp = %s\ninsts = %d\n%s\n" % (warp, len(instructions), lines)
            if len(parts) > 1:
                yield b"#END_TB"
        yield b"\n"


def memory_only_path(trace: Path) -> Path:
    """The path of ``kernel-N.traceg``'s memory-only trace: ``kernel-mem-N.traceg`` next to it."""
    stem = trace.name.removesuffix(".xz").removesuffix(".traceg").removesuffix(PACKED_SUFFIX)
    if not stem.startswith("kernel-"):
        raise ParameterError(str(trace), "it is not called kernel-N.traceg", "name it as the tracer does")
    return trace.with_name(f"kernel-mem-{stem.removeprefix('kernel-')}.traceg")


def warm_up_order(launches: int, selected: Sequence[int], preceding: int) -> list[tuple[int, bool]]:
    """What to simulate in one run: 0-based launches in order, and whether only their memory instructions.

    Each of ``selected`` follows its ``preceding`` launches; one that is simulated in full right there is not
    replayed. Raises ParameterError for a launch that does not exist, or if ``preceding`` is below 1.
    """
    if preceding < 1:
        raise ParameterError("preceding launches", f"{preceding} warm nothing", "give 1 or more")
    wrong = [launch for launch in selected if not 0 <= launch < launches]
    if wrong:
        raise ParameterError(
            f"launch {wrong[0] + 1}", f"the list holds {launches:,} launches", f"give 1 to {launches}"
        )
    order: list[tuple[int, bool]] = []
    for launch in sorted(set(selected)):
        before = max(0, launch - preceding)
        next_launch = order[-1][0] + 1 if order else 0
        # Launches that this run simulated since then are in the caches already.
        order += [(earlier, True) for earlier in range(max(before, next_launch), launch)]
        order.append((launch, False))
    return order


def warm_up_list(kernels: KernelsList, selected: Sequence[int], preceding: int = 1) -> list[str]:
    """Lines of a list for the simulator: memory-only traces, each followed by the launch that it warms.

    ``selected`` are 0-based launches of ``kernels``. Copies to the device are left out: they belong before
    the launches that are skipped. The list must be in the folder of the traces, because the simulator ignores
    lines that do not begin with ``kernel``. Raises ParameterError as :func:`warm_up_order`.
    """
    lines = []
    for launch, memory_only in warm_up_order(len(kernels.traces), selected, preceding):
        trace = kernels.traces[launch]
        lines.append((memory_only_path(trace) if memory_only else trace).name)
    return lines
