"""The process that carries frames between networks, and that holds the far networks alive.

python -m tests.support.machine.packet_process WIRES SEED

Each wire leads from the network in which the process was started (its near end) to one of its own (its far
end). The first line of its output says what was made; then each line of its input changes the weather of a
wire or asks for its counts, and is answered by a line. It ends with its input. One thread, since setns(2)
acts on a thread.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from dataclasses import asdict, dataclass
from random import Random

from tests.support.machine.frames import End, FrameQueue, PacketWeather
from tests.support.machine.links import open_tap, set_up
from tests.support.machine.namespaces import OWN_NETWORK, enter_network, leave_network

FRAME_BYTES = 1 << 16
_AT_ONCE = 64


def near_address(number: int) -> str:
    """Of a wire's near end."""
    return f"10.213.{number}.1"


def far_address(number: int) -> str:
    """Of a wire's far end."""
    return f"10.213.{number}.2"


@dataclass
class _Wire:
    """One wire: the files of its ends, by End, the network of its far end, and what is on its way."""

    ends: tuple[int, int]
    network: int
    queue: FrameQueue


def _made(number: int, seed: int, near: int) -> _Wire:
    leave_network()
    network = os.open(OWN_NETWORK, os.O_RDONLY)
    set_up("lo")
    far_end = open_tap("assay-far", far_address(number))
    enter_network(near)
    near_end = open_tap(f"assay-{number}", near_address(number))
    return _Wire((near_end, far_end), network, FrameQueue(Random(f"{seed} {number}")))


def _carry(wires: list[_Wire]) -> None:
    """Carry frames and answer questions until the input ends."""
    selector = selectors.DefaultSelector()
    for wire in wires:
        for end in End:
            selector.register(wire.ends[end], selectors.EVENT_READ, (wire, end))
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select(_patience(wires)):
            if key.data is not None:
                _take(*key.data)
            elif not _answered(wires):
                return
        now = time.monotonic()
        for wire in wires:
            for end, frame in wire.queue.due(now):
                _give(wire.ends[end], frame)


def _patience(wires: list[_Wire]) -> float | None:
    due = [at for wire in wires if (at := wire.queue.next_due()) is not None]
    return max(0.0, min(due) - time.monotonic()) if due else None


def _take(wire: _Wire, end: End) -> None:
    now = time.monotonic()
    for _ in range(_AT_ONCE):
        try:
            frame = os.read(wire.ends[end], FRAME_BYTES)
        except BlockingIOError:
            return
        wire.queue.put(now, frame, end.other)


def _give(file: int, frame: bytes) -> None:
    try:
        os.write(file, frame)
    except OSError:
        # The kernel's queue is full or the interface is down: a frame may be lost on a wire.
        return


def _answered(wires: list[_Wire]) -> bool:
    """Answer one line; False at the end of the input."""
    line = sys.stdin.readline()
    if not line:
        return False
    asked = json.loads(line)
    queue = wires[asked["wire"]].queue
    if "weather" in asked:
        queue.weather = PacketWeather(**asked["weather"])
    print(json.dumps(asdict(queue.counts)), flush=True)
    return True


def main() -> int:
    """0 in any case: whoever started it reads why there are no wires."""
    count, seed = map(int, sys.argv[1:3])
    near = os.open(OWN_NETWORK, os.O_RDONLY)
    try:
        set_up("lo")
        wires = [_made(number, seed, near) for number in range(count)]
    except OSError as error:
        print(json.dumps({"why_not": f"no wire can be made here: {error}"}), flush=True)
        return 0
    print(json.dumps({"networks": [wire.network for wire in wires]}), flush=True)
    _carry(wires)
    return 0


if __name__ == "__main__":
    sys.exit(main())
