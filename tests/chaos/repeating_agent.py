"""``assay-agent`` whose calls and segments can be sent twice, and late.

An interceptor stands in the client's channel. While the byte in the file ``$ASSAY_CHAOS_REPEATS`` is set, it
makes each unary call twice and drops the first answer, as when a connection broke after the server had
answered; and sends segments of uploads twice, the second time after later ones.

A published file names the GPU that measured it, and a virtual GPU's name has its agent's identity in it.
Which box measures what is not the same twice. So here that part is left out, and two labs publish the same
bytes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from assay_agent.gpus.model import ModelledGPU

VARIABLE = "ASSAY_CHAOS_REPEATS"
_STATE = struct.Struct("=4Q")
_LATE_SEGMENTS = 4


class RepeatControl:
    """The file through which the lab arms the interceptor, and reads what it did."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_STATE.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def _read(self) -> tuple[int, ...]:
        return _STATE.unpack(self._map[: _STATE.size])

    @property
    def armed(self) -> bool:
        return bool(self._read()[0])

    @property
    def repeats(self) -> tuple[int, int]:
        """Unary calls that were made twice, and segments that were sent again."""
        return self._read()[1], self._read()[2]

    def arm(self, armed: bool) -> None:
        struct.pack_into("=Q", self._map, 0, int(armed))

    def count(self, calls: int = 0, segments: int = 0) -> None:
        _, before_calls, before_segments, _ = self._read()
        struct.pack_into("=2Q", self._map, 8, before_calls + calls, before_segments + segments)


class Repeating(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[type-arg]
    """Makes calls twice while its control is armed."""

    def __init__(self, control: RepeatControl) -> None:
        self._control = control

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        if self._control.armed:
            first = continuation(details, request)
            with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
                first.result()
            self._control.count(calls=1)
        return continuation(details, request)

    def intercept_stream_stream(
        self, continuation: Callable[..., Any], details: Any, requests: Iterable[Any]
    ) -> Any:
        return continuation(details, self._again(requests))

    def _again(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The messages, and while armed each segment again, some segments later."""
        earlier: deque[list[Any]] = deque()
        segment: list[Any] = []
        for message in requests:
            if message.WhichOneof("message") == "header" and segment:
                earlier.append(segment)
                segment = []
                yield from self._late(earlier, _LATE_SEGMENTS)
            segment.append(message)
            yield message
        if segment:
            earlier.append(segment)
        yield from self._late(earlier, 0)

    def _late(self, earlier: deque[list[Any]], keep: int) -> Iterator[Any]:
        while len(earlier) > keep:
            late = earlier.popleft()
            if self._control.armed:
                self._control.count(segments=1)
                yield from late


def name_gpus_alike() -> None:
    """From now on the virtual GPUs of this process are called as those of any other box."""
    from assay_virtual.gpu_models import VirtualModels  # noqa: PLC0415 - only the agent's process needs it

    real = VirtualModels.gpu

    def gpu(models: VirtualModels, kind: str, number: int, agent_id: str = "") -> ModelledGPU:
        return real(models, kind, number)

    setattr(VirtualModels, "gpu", gpu)  # noqa: B010 - a class's own name


def main() -> None:
    """Run the agent's command line over channels that repeat."""
    from assay_agent.main import main as agent_main  # noqa: PLC0415 - after the arguments of this process

    name_gpus_alike()

    control = RepeatControl(Path(os.environ[VARIABLE]))
    real = grpc.secure_channel

    def secure_channel(*arguments: Any, **named: Any) -> grpc.Channel:
        return grpc.intercept_channel(real(*arguments, **named), Repeating(control))

    setattr(grpc, "secure_channel", secure_channel)  # noqa: B010 - a module's own name
    agent_main()


if __name__ == "__main__":
    main()
