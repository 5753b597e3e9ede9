"""Reads facts about cold starts from a simulator's output: latencies, flushes, replays, DRAM requests.

Source: docs/simulator-files.md, "A flush is not a cold cache".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from assay_sampling.simulators.accel_sim.lines import matching_lines, starting_with

_LINES = starting_with(
    r"-gpgpu_(?:l2_rop_latency|flush_l2_cache|cache:dl2) |-dram_latency |"
    r"Header info loaded for kernel command : |launching kernel name: |\[COLD_START_DRAM_REQ\]: "
)
_REPLAY = re.compile(rb"(?:^|/)kernel-mem-[^/]*$")


@dataclass
class ColdStartDetails:
    """Details of one simulation.

    Args:
        l2_latency_cycles: configured latency of the L2, None where the log does not echo it.
        dram_latency_cycles: configured latency of DRAM.
        line_bytes: of the L2.
        flushes_l2: whether the simulator's own switch flushes it between launches.
        replays: uids of launches whose memory instructions alone were replayed.
        dram_requests: by uid, distinct addresses that a simulator with the authors' change printed.
    """

    l2_latency_cycles: int | None = None
    dram_latency_cycles: int | None = None
    line_bytes: int | None = None
    flushes_l2: bool = False
    replays: set[int] = field(default_factory=set)
    dram_requests: dict[int, int] = field(default_factory=dict)


def read_details(path: Path) -> ColdStartDetails:
    """Scan a standard output once, streaming, as far as it is there. Raises InputError where it cannot be
    read."""
    details = ColdStartDetails()
    traces: list[bytes] = []
    uid, addresses = 0, set[bytes]()
    for line in matching_lines(path, _LINES, on_cut=lambda _: None):
        if line.name.startswith(b"["):
            addresses.add(line.rest)
        elif line.name.startswith(b"-"):
            _option(details, line.name.strip(), line.rest)
        elif line.name.startswith(b"Header"):
            traces.append(line.rest)
        else:
            if addresses:
                details.dram_requests[uid] = len(addresses)
                addresses = set()
            match = re.search(rb" uid: (\d+)", line.rest)
            uid = int(match[1]) if match else uid + 1
            # Where launches overlap, several headers come before the first launch, in order.
            if traces and _REPLAY.search(traces.pop(0)):
                details.replays.add(uid)
    if addresses:
        details.dram_requests[uid] = len(addresses)
    return details


def _option(details: ColdStartDetails, name: bytes, text: bytes) -> None:
    if name.endswith(b"cache:dl2"):
        shape = re.match(rb"[A-Z]?:?(\d+):(\d+):(\d+)", text)
        details.line_bytes = int(shape[2]) if shape else None
        return
    number = re.match(rb"\d+", text)
    if number is None:
        return
    if name == b"-gpgpu_l2_rop_latency":
        details.l2_latency_cycles = int(number[0])
    elif name == b"-dram_latency":
        details.dram_latency_cycles = int(number[0])
    else:
        details.flushes_l2 = int(number[0]) != 0
