"""Miss-rate curves from memory traces: misses of a fully associative LRU cache of every size, in one pass.

The stack distance of an access is how many other lines were touched since its line was touched last; a cache
of c lines hits exactly where it is below c. The distance of access i, whose line was touched last at p(i), is
the number of accesses j in (p(i), i) that are the first of their line within that window, p(j) < p(i). All j
up to p(i) have p(j) < p(i) as well, so

    distance(i) = #{j < i : p(j) < p(i)} - (p(i) + 1),

and counting smaller values to the left takes O(n log n) with one stable partition a bit, each a few passes
over columns.

A sectored cache allocates lines but fetches sectors: a sector is there only if its line was not evicted since
the sector itself was touched. Its distance is therefore the largest distance of its line since then.

Where n accesses are too many, SHARDS samples **lines**, not accesses: a line belongs to the sample if its
hash is below a threshold, so that all its accesses do. Distances in the sample are divided by the rate.

We deviate from SHARDS in scaling the sample's misses to all accesses. SHARDS adds the accesses that the
sample has too few (or too many) to distance 0, which amounts to dividing sampled misses by the rate. That is
right if a few hot lines were left out; on GPUs' tables, where all lines are alike, the noise in the number of
sampled accesses goes straight into the curve (we measured ten times the error). We use the regression
estimator of a Poisson sample: misses / rate + beta (accesses - sampled accesses / rate), beta = sum m a / sum
a^2 over sampled lines with m misses in a accesses, which is close to the better of both everywhere.

Source: Mattson et al. 1970 (stack distances), Conte, Hirsch and Hwu 1998 (single pass), Waldspurger et al.,
FAST'15 (SHARDS and its adjustment); GPU Scale-Model Simulation, section V.A (use of the curve).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.simulators.accel_sim.trace import MemoryInstructions, read_blocks

LINE_BYTES = 128
DEFAULT_MEMORY_LIMIT_BYTES = 8 << 30
# Measured peak while distances are counted: 144 bytes for lines, 153 for sectors.
_BYTES_PER_ACCESS = 160
_HASH_BITS = 24


@dataclass(frozen=True)
class StackDistances:
    """Distances of (a sample of) the accesses.

    Args:
        distance: in lines of the whole trace, float64 of shape (k,); first touches have infinity.
        line: the line of each, as an ordinal, int64 of shape (k,).
        accesses: accesses of the whole trace.
        sampling_rate: share of the lines in the sample; 1: all.
    """

    distance: np.ndarray
    line: np.ndarray
    accesses: int
    sampling_rate: float

    @property
    def first_touches(self) -> float:
        """Distinct lines (sectors of a sectored cache): misses of any cache; estimated from a sample."""
        return float(np.isinf(self.distance).sum()) / self.sampling_rate

    def misses(self, capacity_lines: np.ndarray | Sequence[float]) -> np.ndarray:
        """Misses of a cache of each capacity, float64 of shape (c,); capacities in lines, at least 1."""
        if self.sampling_rate == 1.0:
            ordered = np.sort(self.distance)
            hits = np.searchsorted(ordered, np.asarray(capacity_lines, np.float64), side="left")
            return np.asarray(len(ordered) - hits, np.float64)
        return np.array([self._estimated(float(capacity)) for capacity in capacity_lines])

    def _estimated(self, capacity_lines: float) -> float:
        """Misses of all accesses, estimated from those of the sampled lines."""
        if not len(self.distance):
            return 0.0
        per_line = np.bincount(self.line).astype(np.float64)
        missed = np.bincount(self.line, weights=self.distance >= capacity_lines)
        slope = float(missed @ per_line) / float(per_line @ per_line)
        unsampled = self.accesses - len(self.distance) / self.sampling_rate
        estimate = float(missed.sum()) / self.sampling_rate + slope * unsampled
        return min(max(estimate, 0.0), float(self.accesses))

    def misses_per_thousand(
        self, capacity_bytes: Sequence[float], thread_instructions: int, line_bytes: int = LINE_BYTES
    ) -> np.ndarray:
        """MPKI of a cache of each capacity in bytes: misses per thousand thread instructions.

        Raises ParameterError without instructions to divide by, or for a capacity below a line.
        """
        if thread_instructions <= 0:
            raise ParameterError("thread instructions", f"{thread_instructions} is not positive")
        capacity_lines = np.floor(np.asarray(capacity_bytes, np.float64) / line_bytes)
        if (capacity_lines < 1).any():
            raise ParameterError("capacity", f"it is below a line of {line_bytes} bytes", "give a larger one")
        return np.asarray(1000.0 * self.misses(capacity_lines) / thread_instructions)


def exact_distances(lines: np.ndarray) -> np.ndarray:
    """Stack distance of every access, int64 of shape (n,); -1 for the first access to a line.

    ``lines``, shape (n,), are line addresses in order of access. O(n log n) time, O(n) memory.
    """
    previous = _previous(lines)
    # First accesses become 0, below every true predecessor: they are the first of their line in any window.
    smaller = _smaller_to_the_left(previous + 1)
    return np.where(previous < 0, -1, smaller - (previous + 1))


def sector_distances(sectors: np.ndarray, sectors_per_line: int) -> np.ndarray:
    """Distances, in lines, of accesses to sectors of a sectored cache, int64 of shape (n,); -1: first touch.

    ``sectors``, shape (n,), are sector addresses in order of access; a line is ``sectors_per_line`` of them.
    """
    lines = sectors // np.uint64(sectors_per_line)
    of_line = exact_distances(lines)
    previous = _previous(sectors)
    # In order of lines, the accesses to the line since the sector's last touch are one range.
    order = np.argsort(lines, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    again = np.flatnonzero(previous >= 0)
    distances = np.full(len(sectors), -1, np.int64)
    distances[again] = _range_maximum(of_line[order], place[previous[again]] + 1, place[again])
    return distances


def _range_maximum(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The largest of ``values[first[i]:last[i] + 1]`` for each i, by doubling windows (a sparse table)."""
    largest = np.zeros(len(first), values.dtype)
    # frexp gives the exponent above: 1 -> 1, 2 and 3 -> 2, so a window of 2^level fits in each range.
    levels = np.frexp((last - first + 1).astype(np.float64))[1] - 1
    window = values
    for level in range(int(levels.max(initial=-1)) + 1):
        at = np.flatnonzero(levels == level)
        largest[at] = np.maximum(window[first[at]], window[last[at] - (1 << level) + 1])
        half = 1 << level
        window = np.maximum(window[: len(window) - half], window[half:])
    return largest


def _previous(lines: np.ndarray) -> np.ndarray:
    """Index of the last access to each access's line, int64 of shape (n,); -1 for the first access."""
    order = np.argsort(lines, kind="stable")
    same = lines[order[1:]] == lines[order[:-1]]
    previous = np.full(len(lines), -1, np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _smaller_to_the_left(values: np.ndarray) -> np.ndarray:
    """For each i the number of j < i with values[j] < values[i], int64 of shape (n,).

    Radix by bits from the highest, each a stable partition of the groups that agree in all higher bits: for a
    1, every 0 of its group to its left is smaller. ``values`` are int64 in [0, n].
    """
    n = len(values)
    count = np.zeros(n, np.int64)
    order, ordered = np.arange(n), values.copy()
    start = np.zeros(n, np.int64)  # of each element's group
    index = np.arange(n)
    for bit in reversed(range(int(n).bit_length())):
        ones = (ordered >> bit & 1).astype(bool)
        zeros_before = np.concatenate([[0], np.cumsum(~ones)])
        in_group = zeros_before[:-1] - zeros_before[start]
        count[order[ones]] += in_group[ones]
        # A group's end is the start of the next one; its zeros come first, in their old order.
        end = np.append(np.flatnonzero(start[1:] != start[:-1]) + 1, n) if n else np.zeros(0, np.int64)
        sizes = np.diff(np.concatenate([[0], end]))
        zeros_of_group = np.repeat(zeros_before[end] - zeros_before[end - sizes], sizes)
        target = np.where(ones, start + zeros_of_group + (index - start - in_group), start + in_group)
        moved_start = np.where(ones, start + zeros_of_group, start)
        order, ordered, start = _placed(order, target), _placed(ordered, target), _placed(moved_start, target)
    return count


def _placed(column: np.ndarray, target: np.ndarray) -> np.ndarray:
    placed = np.empty_like(column)
    placed[target] = column
    return placed


def stack_distances(
    chunks: Iterable[np.ndarray],
    *,
    sectors_per_line: int = 1,
    sampling_rate: float = 1.0,
    seed: int = 0,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> StackDistances:
    """Distances of a stream of addresses, exact at rate 1, else of a sample of the lines.

    Args:
        chunks: line addresses (of a sectored cache sector addresses) in order of access, arrays of any
            length.
        sectors_per_line: above 1 for a sectored cache.
        sampling_rate: share of the lines to sample, in (0, 1]; rounded to a multiple of 2^-24.
        seed: of the hash that chooses lines.
        memory_limit_bytes: raises RefusedError before it holds more.

    Raises ParameterError for a rate outside (0, 1] or less than one sector.
    """
    if not 0.0 < sampling_rate <= 1.0:
        raise ParameterError("sampling rate", f"{sampling_rate:g} is not in (0, 1]", "give 1, or 0.01")
    if sectors_per_line < 1:
        raise ParameterError("sectors per line", f"{sectors_per_line} is not positive", "give 1 or 4")
    threshold = max(1, round(sampling_rate * (1 << _HASH_BITS)))
    accesses, count = 0, 0
    samples: list[np.ndarray] = []
    for chunk in chunks:
        accesses += len(chunk)
        pieces = chunk.astype(np.uint64, copy=False)
        if threshold < 1 << _HASH_BITS:
            # By line, so that a line is in the sample with all its sectors.
            lines = pieces // np.uint64(sectors_per_line)
            pieces = pieces[_hash(lines, seed) < np.uint64(threshold)]
        count += len(pieces)
        if count * _BYTES_PER_ACCESS > memory_limit_bytes:
            raise RefusedError(
                "miss-rate curve",
                f"more than {count:,} accesses at {_BYTES_PER_ACCESS} bytes each exceed the memory limit of "
                f"{memory_limit_bytes:,} bytes",
                "sample lines with a lower sampling rate, or raise the limit",
            )
        samples.append(pieces)
    rate = threshold / (1 << _HASH_BITS)
    every = np.concatenate([np.zeros(0, np.uint64), *samples])
    exact = exact_distances(every) if sectors_per_line == 1 else sector_distances(every, sectors_per_line)
    _, line = np.unique(every // np.uint64(sectors_per_line), return_inverse=True)
    return StackDistances(np.where(exact < 0, np.inf, exact / rate), line, accesses, rate)


def _hash(lines: np.ndarray, seed: int) -> np.ndarray:
    """24 well mixed bits of each line address (the finaliser of SplitMix64), uint64 of the same shape."""
    with np.errstate(over="ignore"):
        mixed = lines + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % (1 << 64))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed >> np.uint64(64 - _HASH_BITS)


@dataclass
class TraceAccesses:
    """The accesses of launches' traces, to iterate once; ``thread_instructions`` is known afterwards.

    Blocks run together on a GPU: ``resident_blocks`` at a time, each warp one memory instruction after the
    other, in turn. Each instruction touches each of its pieces once (coalescing). No first-level cache is
    modelled: its hits have short distances, which hit at every last-level capacity.

    Args:
        traces: ``kernel-N.traceg`` of launches, in order; the cache stays warm between them.
        resident_blocks: thread blocks that run together on the whole GPU; 1 runs one after the other.
        piece_bytes: bytes of a line, or of a sector of a sectored cache; a power of two.
    """

    traces: Sequence[Path]
    resident_blocks: int = 1
    piece_bytes: int = LINE_BYTES
    thread_instructions: int = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        if self.resident_blocks < 1:
            raise ParameterError(
                "resident blocks", f"{self.resident_blocks} is not positive", "give 1 or more"
            )
        for trace in self.traces:
            together: list[MemoryInstructions] = []
            for block in read_blocks(trace):
                self.thread_instructions += block.thread_instructions
                if block.memory is not None:
                    together.append(block.memory)
                if len(together) == self.resident_blocks:
                    yield self._interleaved(together)
                    together = []
            if together:
                yield self._interleaved(together)

    def _interleaved(self, blocks: Sequence[MemoryInstructions]) -> np.ndarray:
        """The pieces of blocks that run together: by ordinal within the warp, then block, then warp."""
        lines, keys = [], []
        for ordinal, block in enumerate(blocks):
            owner, line = block.granules(self.piece_bytes)
            lines.append(line)
            columns = (block.position[owner], np.full(len(owner), ordinal, np.int64), block.warp[owner])
            keys.append(np.stack(columns))
        position, ordinals, warp = np.concatenate(keys, axis=1)
        # lexsort is stable: the lines of one instruction keep their order.
        return np.concatenate(lines)[np.lexsort((warp, ordinals, position))]
