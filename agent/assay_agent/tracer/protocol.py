"""The tracer's frames as NumPy reads them; the layout is ``protocol.h``'s (docs/tracer.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from assay_sampling.errors import AssayError

PROTOCOL_VERSION = 2
KERNELS_UNKNOWN = 0
KERNELS_NONE = 0xFFFFFFFF
DEVICE_LAUNCHED = 1
# The largest frame is a full ring of launches: 1 MiB.
_LARGEST_FRAME_BYTES = 4 << 20


class FrameType(IntEnum):
    """``enum assay_frame_type``."""

    HELLO = 1
    NAME = 2
    LAUNCHES = 3
    KERNELS = 4
    TOTALS = 5
    END = 6
    PROBLEM = 7


class ProblemCode(IntEnum):
    """``enum assay_problem_code``: why a process is not traced."""

    NO_CUPTI = 1
    CUPTI_NEWER = 2
    CUPTI_OLDER = 3
    LAYOUT = 4
    SUBSCRIBED = 5
    PRIVILEGES = 6
    CUPTI_FAILED = 7
    NO_MEMORY = 8
    MIXED_CALLS = 9


HEADER = np.dtype([("type", "<u4"), ("count", "<u4"), ("bytes", "<u8")])
HELLO = np.dtype([
    ("protocol_version", "<u4"), ("process", "<u4"), ("parent_process", "<u4"), ("cupti_version", "<u4"),
    ("known_version", "<u4"), ("layout", "<u4"), ("driver_version", "<u4"), ("reserved", "<u4"),
    ("cupti_ns", "<u8"), ("realtime_ns", "<u8"), ("program", "S64"),
])  # fmt: skip
NAME = np.dtype([("id", "<u4"), ("parent", "<u4"), ("kind", "<u4"), ("bytes", "<u4")])
LAUNCH = np.dtype([("order", "<u8"), ("range", "<u4"), ("kernels", "<u4")])
KERNEL = np.dtype([
    ("order", "<u8"), ("start_ns", "<u8"), ("end_ns", "<u8"), ("graph_node", "<u8"), ("name", "<u4"),
    ("graph", "<u4"), ("device", "<u4"), ("context", "<u4"), ("stream", "<u4"), ("grid", "<i4", 3),
    ("block", "<i4", 3), ("registers_per_thread", "<u4"), ("static_shared_bytes", "<i4"),
    ("dynamic_shared_bytes", "<i4"), ("flags", "<u4"), ("reserved", "<u4"),
])  # fmt: skip
TOTALS = np.dtype([(name, "<u8") for name in (
    "launches", "graph_launches", "kernels", "graph_kernels", "device_launched", "dropped_cupti",
    "dropped_tracer", "launches_unsent", "names_unsent", "waited_ns", "flushes", "graph_kernels_expected",
    "graph_launches_uncounted", "unsynchronised",
)])  # fmt: skip
PROBLEM = np.dtype([("code", "<u4"), ("cupti_result", "<u4")])
_FIXED = {
    FrameType.HELLO: HELLO,
    FrameType.NAME: NAME,
    FrameType.TOTALS: TOTALS,
    FrameType.END: TOTALS,
    FrameType.PROBLEM: PROBLEM,
}
_ARRAYS = {FrameType.LAUNCHES: LAUNCH, FrameType.KERNELS: KERNEL}


class ProtocolError(AssayError):
    """The stream does not follow the tracer's protocol."""

    def __init__(self, cause: str) -> None:
        super().__init__("the tracer's stream", cause, "build the tracer of this release: make tracer")


@dataclass(frozen=True)
class Frame:
    """One frame: ``records`` of its type, shape (count,), and the ``text`` of a name or problem."""

    type: FrameType
    records: np.ndarray
    text: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The only record of the frame."""
        return {name: self.records[0][name].item() for name in self.records.dtype.names or ()}


class FrameParser:
    """Splits a stream of bytes, which arrive in any chunks, into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def whole(self) -> bool:
        """Whether nothing is left over: the stream did not break off within a frame."""
        return not self._pending

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; raises ProtocolError for an invalid one."""
        self._pending += data
        position = 0
        while len(self._pending) - position >= HEADER.itemsize:
            kind, count, payload_bytes = np.frombuffer(self._pending, HEADER, 1, position)[0].item()
            if payload_bytes > _LARGEST_FRAME_BYTES:
                raise ProtocolError(f"a frame says that it has {payload_bytes:,} bytes")
            begin = position + HEADER.itemsize
            if len(self._pending) - begin < payload_bytes:
                break
            position = begin + payload_bytes
            yield _decoded(kind, count, bytes(self._pending[begin:position]))
        del self._pending[:position]


def _decoded(kind: int, count: int, payload: bytes) -> Frame:
    if kind in _ARRAYS:
        frame_type = FrameType(kind)
        if len(payload) != count * _ARRAYS[frame_type].itemsize:
            raise ProtocolError(f"a frame of {count} records has {len(payload):,} bytes")
        return Frame(frame_type, np.frombuffer(payload, _ARRAYS[frame_type]))
    if kind not in _FIXED:
        raise ProtocolError(f"there is no frame of type {kind}")
    frame_type = FrameType(kind)
    fixed = _FIXED[frame_type]
    if len(payload) < fixed.itemsize:
        raise ProtocolError(f"a frame {frame_type.name} has only {len(payload)} bytes")
    text = payload[fixed.itemsize :].decode(errors="replace")
    return Frame(frame_type, np.frombuffer(payload, fixed, 1), text)
