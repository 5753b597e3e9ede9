"""The share of a launch's addresses that the next one touches again, which shows the cost of a cold start.

    forward reuse of launch i = |M_i and M_(i+1)| / |M_i|,   M: what launch i touches

at the granularity of byte addresses (the first byte of each lane, as traces list them), of 32-byte sectors,
which are what a simulator's L2 fetches, and of 128-byte lines.

Source: Quantifying and mitigating the cold-start problem, equations 1 to 3. The authors' tool reads only the
first ``width`` lanes of each instruction, joins by position and counts earlier launches' DRAM traffic; we do
not (docs/methods/cold-start.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.simulators.accel_sim.trace import TraceHeader, read_blocks, read_header

GRANULE_BYTES = {"byte": 1, "sector": 32, "line": 128}
DEFAULT_MEMORY_LIMIT_BYTES = 8 << 30
# Addresses collected between two passes that remove duplicates.
_PENDING = 1 << 21
# A launch's addresses, those of the previous one, and the memory that np.unique needs to merge.
_BYTES_PER_ADDRESS = 64


@dataclass(frozen=True)
class Footprint:
    """The addresses that one launch touches: sorted and distinct, uint64, by granularity."""

    header: TraceHeader
    path: Path
    pieces: dict[str, np.ndarray]
    memory_requests: int
    thread_instructions: int


@dataclass
class _Distinct:
    """Collects addresses and removes duplicates from time to time."""

    limit_bytes: int
    addresses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    pending: list[np.ndarray] = field(default_factory=list)
    waiting: int = 0

    def add(self, addresses: np.ndarray) -> None:
        self.pending.append(addresses)
        self.waiting += len(addresses)
        if self.waiting > _PENDING + len(self.addresses):
            self.merge()

    def merge(self) -> np.ndarray:
        self.addresses = np.unique(np.concatenate([self.addresses, *self.pending]))
        self.pending, self.waiting = [], 0
        if len(self.addresses) * _BYTES_PER_ADDRESS > self.limit_bytes:
            raise RefusedError(
                "footprint",
                f"more than {len(self.addresses):,} addresses exceed the limit of {self.limit_bytes:,} bytes",
                "look at sectors only, or raise --memory-limit",
            )
        return self.addresses


def footprint(
    path: Path,
    *,
    granularities: Iterable[str] = GRANULE_BYTES,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Footprint:
    """Addresses that a launch touches in global and local memory, from its ``kernel-N.traceg`` in any mode.

    Raises InputError as :func:`read_blocks`, ParameterError for an unknown granularity, RefusedError where
    the distinct addresses do not fit into ``memory_limit_bytes``.
    """
    names = list(granularities)
    unknown = [name for name in names if name not in GRANULE_BYTES]
    if unknown:
        raise ParameterError("granularity", f"{unknown[0]!r} is unknown", "use byte, sector or line")
    collected = {name: _Distinct(memory_limit_bytes) for name in names}
    requests, instructions = 0, 0
    for block in read_blocks(path):
        requests += block.memory_requests
        instructions += block.thread_instructions
        if block.memory is not None:
            for name, distinct in collected.items():
                distinct.add(block.memory.granules(GRANULE_BYTES[name])[1])
    pieces = {name: distinct.merge() for name, distinct in collected.items()}
    return Footprint(read_header(path), path, pieces, requests, instructions)


@dataclass(frozen=True)
class LaunchReuse:
    """One launch, without its addresses, and its forward reuse by granularity.

    ``footprint`` counts distinct addresses; ``forward_reuse`` is None for the last launch and for one that
    touches nothing.
    """

    header: TraceHeader
    path: Path
    memory_requests: int
    thread_instructions: int
    footprint: dict[str, int]
    forward_reuse: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """The entry of this launch in the document of ``assay reuse --json``."""
        return {
            "trace": str(self.path),
            "launch": self.header.kernel_id,
            "kernel": self.header.kernel_name,
            "thread_instructions": self.thread_instructions,
            "memory_requests": self.memory_requests,
            "footprint": self.footprint,
            "forward_reuse": self.forward_reuse,
        }


def forward_reuse(footprints: Iterable[Footprint]) -> Iterator[LaunchReuse]:
    """The reuse of each launch by the next one of the stream; two launches' addresses are held at a time."""
    before: Footprint | None = None
    for after in footprints:
        if before is not None:
            yield _reuse(before, after)
        before = after
    if before is not None:
        yield _reuse(before, None)


def _reuse(launch: Footprint, following: Footprint | None) -> LaunchReuse:
    shares: dict[str, float | None] = {}
    for name, pieces in launch.pieces.items():
        shares[name] = None
        if following is not None and len(pieces):
            both = np.intersect1d(pieces, following.pieces[name], assume_unique=True)
            shares[name] = len(both) / len(pieces)
    return LaunchReuse(
        header=launch.header,
        path=launch.path,
        memory_requests=launch.memory_requests,
        thread_instructions=launch.thread_instructions,
        footprint={name: len(pieces) for name, pieces in launch.pieces.items()},
        forward_reuse=shares,
    )
