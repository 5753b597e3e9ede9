"""From a stream of batches to launches in memory, or on disk where they do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from assay_sampling.engines.beyond_memory import is_installed
from assay_sampling.engines.columns import Place
from assay_sampling.engines.machine import within_machine
from assay_sampling.engines.scratch import Scratch
from assay_sampling.errors import RefusedError
from assay_sampling.gathering.on_disk import gather_on_disk
from assay_sampling.installation import install_command
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches, sort_launches
from assay_sampling.launches.table import LaunchBatch, Names
from assay_sampling.notes.registry import Note

# The program itself and an engine at work need this much.
LEAST_BEYOND_MEMORY_BYTES = 512 << 20


def gather(
    batches: Iterable[LaunchBatch],
    schema: pa.Schema,
    *,
    sources: Sequence[str] = (),
    notes: Sequence[Note] = (),
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    spill_beyond_bytes: int | None = None,
    expected_launches: int = 0,
    scratch: Path | None = None,
) -> Launches:
    """Collect a stream of batches, sort it, and check that each launch appears once.

    Launches that would exceed ``memory_limit_bytes`` (or three quarters of the machine's memory) go to a
    scratch folder under ``scratch`` (by default that of temporary files), if the extra ``engine`` is
    installed and the limit is at least LEAST_BEYOND_MEMORY_BYTES; those beyond ``spill_beyond_bytes`` do,
    though they would fit. ``expected_launches``: how many there will be, if known, so that they need not be
    held first.

    Raises RefusedError before the table would exceed the limit otherwise, LaunchTableError for a launch that
    appears twice.
    """
    limit = within_machine(memory_limit_bytes)
    beyond = limit >= LEAST_BEYOND_MEMORY_BYTES and is_installed()
    most_bytes = limit if spill_beyond_bytes is None or not beyond else min(limit, spill_beyond_bytes)
    names = Names()
    collected: list[pa.RecordBatch] = []
    # Sorting holds a second copy for a moment.
    held_bytes = 0
    waiting = iter(batches)
    fits = not beyond or 2 * expected_launches * _row_bytes(schema) <= most_bytes
    while fits and (batch := next(waiting, None)) is not None:
        names.update(batch.new_names)
        collected.append(batch.records)
        held_bytes += 2 * batch.records.nbytes
        fits = held_bytes <= most_bytes
        if not fits and not beyond:
            raise _too_large(sources, limit)
    if fits:
        table = pa.Table.from_batches(collected, schema=schema)
        return Launches(sort_launches(table, sources), names, tuple(sources), tuple(notes))
    place = Place(Scratch(scratch), limit)
    return gather_on_disk(
        chain(_drained(collected), waiting), schema, names, place, sources=sources, notes=notes
    )


def _drained(collected: list[pa.RecordBatch]) -> Iterator[LaunchBatch]:
    """The batches in order; each is freed once it was taken."""
    collected.reverse()
    while collected:
        yield LaunchBatch(collected.pop(), {})
    pa.default_memory_pool().release_unused()


def _row_bytes(schema: pa.Schema) -> int:
    return sum(item.type.bit_width // 8 for item in schema)


def _too_large(sources: Sequence[str], limit_bytes: int) -> RefusedError:
    more = "" if is_installed() else f", or install what works beyond memory: {install_command('engine')}"
    return RefusedError(
        ", ".join(sources) or "launches",
        f"holding them takes more than the memory limit of {limit_bytes:,} bytes",
        f"raise --memory-limit, or analyse fewer launches{more}",
    )
