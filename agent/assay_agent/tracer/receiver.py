"""The agent's end of the tracer's socket: processes connect, their launches come out in order.

One thread calls :meth:`Receiver.batches`. Nothing is read while the caller is busy with a batch, so a slow
agent slows the tracer down; the tracer waits, then drops and counts records. Memory is bounded on both sides.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay_agent.tracer.names import ProcessNames
from assay_agent.tracer.ordering import DEFAULT_WINDOW, LaunchOrder, OrderedKernels
from assay_agent.tracer.protocol import PROTOCOL_VERSION, Frame, FrameParser, FrameType, ProtocolError
from assay_sampling.launches.table import LaunchBatch, make_batch
from assay_sampling.readers.base import NameTracker

_READ_BYTES = 1 << 20
_MOST_WAITING_CONNECTIONS = 128
_HAND_ON_KERNELS = 1 << 15
_COUNTED = (
    "launches", "graph_launches", "kernels", "graph_kernels", "graph_kernels_expected", "dropped_cupti",
    "dropped_tracer", "unsynchronised",
)  # fmt: skip
_ENDED_EARLY = (
    "ended without sending its last records: it was killed by a signal, or ended by a system call of "
    "its own. Let workers end by themselves (in Python: close() and join(), not terminate()), or set "
    "multiprocessing.set_start_method('spawn')"
)


@dataclass
class TracedProcess:
    """One process of the workload. ``totals`` are those of its last frame with totals.

    ``ended``: its last frame came, so only what its totals count as dropped is missing.
    """

    hello: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    problem: tuple[int, str] | None = None
    ended: bool = False
    received: int = 0
    received_of_graphs: int = 0
    handed_on: int = 0
    untimed: int = 0
    late: int = 0
    broken: str = ""
    order: LaunchOrder = field(default_factory=LaunchOrder, repr=False)
    names: ProcessNames = field(default_factory=ProcessNames, repr=False)
    ordinal: int | None = None

    @property
    def label(self) -> str:
        """Its name in messages."""
        program = self.hello.get("program", b"")
        name = program.decode(errors="replace") if isinstance(program, bytes) else str(program)
        return f"process {self.hello.get('process', '?')} ({name or 'unknown program'})"

    def faults(self, *, cut: bool = False) -> Iterator[str]:
        """Why launches of it are missing, in sentences; nothing if none are. ``cut``: it was not read to its
        end, so only those before what was handed on count."""
        if self.broken:
            yield f"{self.label}: {self.broken}"
        elif cut and self.order.missing:
            yield f"{self.label}: {self.order.missing:,} kernels did not come before later ones"
        elif not (self.ended or cut):
            yield f"{self.label} {_ENDED_EARLY}"
        counts = self._counts
        dropped = counts["dropped_cupti"] + counts["dropped_tracer"]
        if dropped:
            yield (
                f"{self.label} dropped {dropped:,} records ({counts['dropped_cupti']:,} by CUPTI, "
                f"{counts['dropped_tracer']:,} that could not be sent)"
            )
        if self.ended and not counts["unsynchronised"]:
            yield from self._miscounted()
        if self.ended and counts["kernels"] + counts["graph_kernels"] != self.received:
            sent = counts["kernels"] + counts["graph_kernels"]
            yield f"{self.label} sent {sent:,} kernels, but {self.received:,} came"
        if self.late:
            yield f"{self.label}: {self.late:,} kernels came after their place had been handed on"

    def missing(self) -> Iterator[str]:
        """The detail of the flag launches_missing: it ended, or reset a device, while kernels still ran."""
        times = self._counts["unsynchronised"]
        if times:
            counts = self._counts
            yield (
                f"{self.label}: {times:,} times kernels had not ended when a device was reset or the "
                f"process ended, within the limit of ASSAY_TRACER_SYNC_MS (30000 by default); of "
                f"{counts['launches'] + counts['graph_kernels_expected']:,} kernels launched "
                f"{counts['kernels'] + counts['graph_kernels']:,} were recorded, {self.untimed:,} of them "
                "without their times"
            )

    @property
    def _counts(self) -> dict[str, int]:
        return {name: self.totals.get(name, 0) for name in _COUNTED}

    def _miscounted(self) -> Iterator[str]:
        """Mismatches between launch calls and records."""
        counts = self._counts
        if counts["kernels"] != counts["launches"]:
            yield (
                f"{self.label} launched {counts['launches']:,} kernels, and CUPTI gave {counts['kernels']:,}"
            )
        of_graphs = self.order.missing - max(0, counts["launches"] - counts["kernels"])
        if of_graphs > 0:
            yield (
                f"{self.label}: its graph launches should have {counts['graph_kernels_expected']:,} kernels "
                f"by CUPTI's graph nodes, and {of_graphs:,} of them did not come"
            )


class Receiver:
    """Listens at a path that only the agent's user can reach for the processes of one workload.

    Args:
        path: of the socket, at most 107 bytes; in a folder that is private to the user.
        schema: makes the schema of all batches, a launch table's, from what the first process says of itself
            (fields of protocol.HELLO).
        window: how many kernels of a process may wait for their turn.
    """

    def __init__(
        self, path: Path, schema: Callable[[Mapping[str, Any]], pa.Schema], window: int = DEFAULT_WINDOW
    ) -> None:
        self.path, self._make_schema, self._window = path, schema, window
        self._schema: pa.Schema | None = None
        self.processes: list[TracedProcess] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(path))
            path.chmod(0o600)
            self._listener.listen(_MOST_WAITING_CONNECTIONS)
            self._listener.setblocking(False)
        except OSError:
            self.close()
            raise
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._tracker = NameTracker()
        self._ordinals = 0

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection: processes that still run are no longer traced."""
        for key in list(self._selector.get_map().values()) if self._selector.get_map() else []:
            if isinstance(key.data, _Connection):
                key.data.channel.close()
        self._selector.close()
        self._listener.close()

    @property
    def connected(self) -> int:
        """How many processes are connected."""
        return len(self._selector.get_map()) - 1

    def batches(self, timeout_seconds: float) -> Iterator[LaunchBatch]:
        """Wait for the tracer at most that long; returns what can be handed on then."""
        for key, _ in self._selector.select(timeout_seconds):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Connection):
                yield from self._read(key.data)

    def _accept(self) -> None:
        while True:
            try:
                channel, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            channel.setblocking(False)
            process = TracedProcess(order=LaunchOrder(self._window))
            self.processes.append(process)
            self._selector.register(channel, selectors.EVENT_READ, _Connection(channel, process))

    def _read(self, connection: _Connection) -> Iterator[LaunchBatch]:
        process = connection.process
        try:
            data = connection.channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            flushed = connection.take(data)
        except ProtocolError as error:
            process.broken, data = error.cause, b""
            flushed = False
        if not data:
            self._selector.unregister(connection.channel)
            connection.channel.close()
            if not connection.parser.whole and not process.broken:
                process.broken = "its stream broke off within a frame"
            yield from self._handed_on(process, final=True)
        elif flushed or process.order.new >= _HAND_ON_KERNELS:
            yield from self._handed_on(process)

    def _handed_on(self, process: TracedProcess, *, final: bool = False) -> Iterator[LaunchBatch]:
        ordered = process.order.take(final=final)
        process.late = process.order.late
        if not len(ordered):
            return
        if process.ordinal is None:
            process.ordinal, self._ordinals = self._ordinals, self._ordinals + 1
        process.handed_on += len(ordered)
        yield self._batch(process, ordered)

    def _batch(self, process: TracedProcess, ordered: OrderedKernels) -> LaunchBatch:
        kernels = ordered.kernels
        names, name = process.names.kernels(kernels["name"])
        ranges, index = process.names.ranges(ordered.range)
        start, end = kernels["start_ns"].astype(np.int64), kernels["end_ns"].astype(np.int64)
        untimed = (start <= 0) | (end < start)
        process.untimed += int(untimed.sum())
        shared = kernels["dynamic_shared_bytes"].astype(np.int64)
        columns: dict[str, Any] = {
            "process": np.full(len(kernels), process.ordinal, np.int32),
            "launch": ordered.launch,
            "graph_launch": _null_below_zero(ordered.graph_launch),
            "graph_node": _null_below_zero(ordered.graph_node),
            "kernel_id": self._tracker.intern_indices(names, name),
            **{f"grid_{axis}": kernels["grid"][:, i] for i, axis in enumerate("xyz")},
            **{f"block_{axis}": kernels["block"][:, i] for i, axis in enumerate("xyz")},
            "registers_per_thread": kernels["registers_per_thread"],
            "shared_memory_bytes": shared + kernels["static_shared_bytes"],
            "dynamic_shared_memory_bytes": shared,
            "device": kernels["device"],
            "stream": kernels["stream"],
            "start_ns": pa.array(start, pa.int64(), mask=untimed),
            "duration_ns": pa.array(end - start, pa.int64(), mask=untimed),
        }
        for position, column in enumerate(("nvtx_id", "operator_id", "input_shapes_id")):
            texts = [entry[position] for entry in ranges]
            has_text = np.array([bool(text) for text in texts])[index]
            columns[column] = self._tracker.intern_indices(texts, np.where(has_text, index, -1))
        if self._schema is None:
            self._schema = self._make_schema(process.hello)
        records = make_batch(self._schema, columns, num_rows=len(kernels))
        return LaunchBatch(records, self._tracker.take_new())


class _Connection:
    """The socket of one process."""

    def __init__(self, channel: socket.socket, process: TracedProcess) -> None:
        self.channel, self.process, self.parser = channel, process, FrameParser()

    def take(self, data: bytes) -> bool:
        """Process what came; returns whether CUPTI was flushed. Raises ProtocolError."""
        flushed = False
        for frame in self.parser.feed(data):
            flushed |= self._take(frame)
        return flushed

    def _take(self, frame: Frame) -> bool:
        process = self.process
        if not process.hello and frame.type != FrameType.HELLO:
            raise ProtocolError(f"it begins with a frame {frame.type.name}")
        if frame.type == FrameType.KERNELS:
            process.order.add_kernels(frame.records)
            process.received += int((frame.records["flags"] == 0).sum())
            process.received_of_graphs += int((frame.records["graph_node"] > 0).sum())
        elif frame.type == FrameType.LAUNCHES:
            process.order.add_launches(frame.records)
        elif frame.type == FrameType.NAME:
            process.names.add(frame)
        elif frame.type == FrameType.HELLO:
            process.hello = frame.fields
            if process.hello["protocol_version"] != PROTOCOL_VERSION:
                raise ProtocolError(f"it speaks version {process.hello['protocol_version']}")
        elif frame.type == FrameType.PROBLEM:
            process.problem, process.ended = (frame.fields["code"], frame.text), True
        else:
            process.totals = frame.fields
            process.ended |= frame.type == FrameType.END
            process.order.flushed()
            return True
        return False


def _null_below_zero(values: np.ndarray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)
