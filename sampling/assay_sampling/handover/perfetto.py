"""Target ``perfetto``: a recording's launches as a Chrome trace, a track for each group.

Representatives are on a track of their own, with their weights. The text is made from columns and compressed
block by block: memory does not grow with it. Launches without a start are laid end to end, by their cost.

Source: the "Trace Event Format" of the Chromium project (events ``X`` and ``M``, times in microseconds);
Perfetto reads it, too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import ParameterError
from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.by_operation import place_saved_operations
from assay_sampling.scoring.elsewhere import placed_on, saved_quantity
from assay_sampling.scoring.placement import scored_cost
from assay_sampling.scoring.saved_selection import SavedSelection

_BLOCK_LAUNCHES = 1 << 16
_GZIP = 31
# Names of colours that chrome://tracing has; Perfetto takes colours from the names of slices.
_COLOURS = ("thread_state_running", "thread_state_runnable", "rail_response", "rail_animation",
            "rail_idle", "rail_load", "cq_build_passed", "startup")  # fmt: skip
_OF_REPRESENTATIVES = "terrible"
_REPRESENTATIVES_TRACK = 0


@dataclass(frozen=True)
class Timeline:
    """When launches ran: ``start_ns`` and ``duration_ns`` of shape (n,), int64; ``label`` the group of each,
    shape (n,); ``rows`` and ``weight`` of the representatives, shape (r,). ``notes`` say what is made up."""

    launches: Launches
    start_ns: np.ndarray
    duration_ns: np.ndarray
    label: np.ndarray
    rows: np.ndarray
    weight: np.ndarray
    groups: int
    notes: tuple[Note, ...]


def timeline_of(saved: SavedSelection, launches: Launches) -> Timeline:
    """The timeline of the recording that a selection was made on, or of another one of the same launches.

    Raises MisalignedError with the first differences for another workload's recording.
    """
    if saved.unit == "operation":
        return _timeline_of_operations(saved, launches)
    placed = placed_on(saved, launches, None)
    return _timeline(saved, launches, placed.labels, _Chosen(placed.rows, placed.groups, saved.weight))


@dataclass(frozen=True)
class _Chosen:
    """Launches of representatives, each of shape (r,): their rows, groups and weights."""

    rows: np.ndarray
    groups: np.ndarray
    weight: np.ndarray


def _timeline_of_operations(saved: SavedSelection, launches: Launches) -> Timeline:
    """The launches of each operation have its group, and those of a representative its weight."""
    by_operation = place_saved_operations(saved, launches)
    labels, of_launch = by_operation.placed.labels, by_operation.operations.of_launch
    parts = by_operation.operations.rows_of(by_operation.placed.rows)
    owner = np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])
    weight = saved.weight[by_operation.has_counterpart]
    chosen = _Chosen(np.concatenate(parts), by_operation.placed.groups[owner], weight[owner])
    return _timeline(saved, launches, None if labels is None else labels[of_launch], chosen)


def _timeline(
    saved: SavedSelection, launches: Launches, label: np.ndarray | None, chosen: _Chosen
) -> Timeline:
    notes: list[Note] = []
    if label is None:
        notes.append(make_note("timeline_without_groups"))
        label = np.zeros(len(launches), np.int64)
        label[chosen.rows] = chosen.groups
    cost_of_launches = scored_cost(launches, None, saved_quantity(saved))
    measured = launches.table["duration_ns"].null_count == 0
    cost = cost_of_launches.values
    duration = launches.column("duration_ns") if measured else np.nan_to_num(cost).astype(np.int64)
    if measured and launches.table["start_ns"].null_count == 0:
        start = launches.column("start_ns")
        start = start - start.min()
    else:
        start = np.cumsum(duration) - duration
        notes.append(make_note("timeline_laid_end_to_end", quantity=cost_of_launches.quantity))
    groups = len(saved.document.groups)
    return Timeline(launches, start, duration, label, chosen.rows, chosen.weight, groups, tuple(notes))


def trace_text(timeline: Timeline, made_by: str) -> Iterator[str]:
    """The JSON of a Chrome trace, block by block."""
    launches = timeline.launches
    origin = launches.metadata.origin
    about = {"made_by": made_by, "origin": origin, "notes": [note.text for note in timeline.notes]}
    yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'
    yield ",\n".join(_metadata(timeline, origin))
    for start in range(0, len(launches), _BLOCK_LAUNCHES):
        rows = np.arange(start, min(start + _BLOCK_LAUNCHES, len(launches)))
        yield ",\n" + _events(timeline, rows, None)
    for start in range(0, len(timeline.rows), _BLOCK_LAUNCHES):
        part = slice(start, start + _BLOCK_LAUNCHES)
        yield ",\n" + _events(timeline, timeline.rows[part], timeline.weight[part])
    yield "\n]}\n"


def compressed(pieces: Iterator[str]) -> Iterator[bytes]:
    """Text compressed by gzip, piece by piece; the same text gives the same bytes."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        yield packer.compress(piece.encode())
    yield packer.flush()


def _metadata(timeline: Timeline, origin: str) -> Iterator[str]:
    mark = "" if origin == "measured" else f" ({origin.upper()})"
    used = np.unique(timeline.label).tolist()
    for process in np.unique(timeline.launches.column("process")).tolist():
        yield _named("process_name", process, _REPRESENTATIVES_TRACK, f"process {process}{mark}")
        yield _named("thread_name", process, _REPRESENTATIVES_TRACK, "representatives")
        for group in used:
            name = f"group {group}" if group < timeline.groups else "in no group: not in the selection"
            yield _named("thread_name", process, group + 1, name)


def _named(what: str, process: int, track: int, name: str) -> str:
    event = {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": name}}
    return json.dumps(event, separators=(",", ":"))


def _events(timeline: Timeline, rows: np.ndarray, weight: np.ndarray | None) -> str:
    """Events of the given rows, shape (m,); with ``weight``, shape (m,), on the representatives' track."""
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    table = timeline.launches.table.take(pa.array(rows))
    label = timeline.label[rows]
    track = label + 1 if weight is None else np.full(len(rows), _REPRESENTATIVES_TRACK)
    colours = pa.array([*_COLOURS, _OF_REPRESENTATIVES])
    colour = label % len(_COLOURS) if weight is None else np.full(len(rows), len(_COLOURS))
    pieces: list[Any] = [
        '{"name":', _kernels(timeline.launches, table), ',"cat":"group ', _text(label),
        '","ph":"X","ts":', _microseconds(timeline.start_ns[rows]),
        ',"dur":', _microseconds(timeline.duration_ns[rows]),
        ',"pid":', _text(table["process"].to_numpy()), ',"tid":', _text(track),
        ',"cname":"', colours.take(pa.array(colour)),
        '","args":{"launch":', _text(table["launch"].to_numpy()), ',"group":', _text(label),
    ]  # fmt: skip
    if weight is not None:
        pieces += [',"weight":', pa.array([repr(float(value)) for value in weight[order]])]
    joined = pc.binary_join_element_wise(*pieces, "}}", "")
    return ",\n".join(joined.to_pylist())


def _kernels(launches: Launches, table: pa.Table) -> pa.Array:
    """Names as JSON texts, one for each row."""
    distinct, place = np.unique(table["kernel_id"].to_numpy(), return_inverse=True)
    texts = [json.dumps(launches.names[identifier]) for identifier in distinct.tolist()]
    return pa.array(texts).take(pa.array(place))


def _text(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.int64)).cast(pa.string())


def _microseconds(values_ns: np.ndarray) -> pa.Array:
    """Nanoseconds as decimal microseconds with three digits after the point: nothing is rounded."""
    whole, rest = np.divmod(values_ns.astype(np.int64), 1000)
    return pc.binary_join_element_wise(_text(whole), pc.utf8_lpad(_text(rest), 3, "0"), ".")


class PerfettoTarget:
    """One Chrome trace, compressed by gzip."""

    name = "perfetto"
    summary = "a Chrome trace for ui.perfetto.dev: launches on tracks by group, representatives marked"
    needs: frozenset[Need] = frozenset({"recording"})
    takes: frozenset[Need] = frozenset({"recording"})
    file_suffix = ".trace.json.gz"

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        if inputs.recording is None:
            raise ParameterError("--recording", "this target draws a recording", "name it: --recording FILE")
        timeline = timeline_of(saved, inputs.recording)
        about = "launches by group: open it at ui.perfetto.dev"

        def pieces() -> Iterator[bytes]:
            return compressed(trace_text(timeline, inputs.made_by))

        file = HandedFile(f"selection{self.file_suffix}", about, pieces)
        chosen = saved.by_launch()
        order = np.lexsort((chosen.launch, chosen.process))
        return HandOver((file,), order, notes=timeline.notes)
