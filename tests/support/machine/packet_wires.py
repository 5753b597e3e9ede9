"""Wires below TCP: what runs at their far ends reaches the near end only by frames that we carry.

No netem is needed, nor root where user namespaces may be made: the frames of two taps go through a process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.machine import namespaces
from tests.support.machine.frames import FAIR, FrameCounts, PacketWeather
from tests.support.machine.packet_process import far_address, near_address

_ROOT = Path(__file__).parents[3]
_SECONDS = 60.0


class NoWiresError(Exception):
    """This machine allows none; the text says why."""


class PacketWires:
    """The process that carries the frames; :func:`packet_wires` makes one."""

    def __init__(self, count: int, seed: int, prefix: Sequence[str]) -> None:
        command = [*prefix, sys.executable, "-m", "tests.support.machine.packet_process"]
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*command, str(count), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            made = self._line()
            if "networks" not in made:
                raise NoWiresError(made["why_not"])
        except BaseException:
            self.close()
            raise
        self._user = ("--user=" + self._of("ns/user"), "--preserve-credentials") if "--user" in prefix else ()
        self._networks = [self._of(f"fd/{file}") for file in made["networks"]]
        self.wires = [PacketWire(self, number) for number in range(count)]

    def _of(self, name: str) -> str:
        return f"/proc/{self._process.pid}/{name}"

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NoWiresError(f"the process of the wires ended with {self._process.wait(_SECONDS)}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, **question: Any) -> FrameCounts:
        """Ask the process; thread-safe."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return FrameCounts(**self._line())

    @property
    def at_near_end(self) -> tuple[str, ...]:
        """A prefix that starts a command at the near ends of all wires."""
        return ("nsenter", *self._user, "--net=" + self._of("ns/net"), "--")

    def at_far_end(self, number: int) -> tuple[str, ...]:
        """A prefix that starts a command at the far end of a wire."""
        return ("nsenter", *self._user, "--net=" + self._networks[number], "--")

    def close(self) -> None:
        """End it; the networks go with their last process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.kill()
        self._process.wait()


class PacketWire:
    """One wire, with its far end as a prefix of commands."""

    def __init__(self, wires: PacketWires, number: int) -> None:
        self._wires = wires
        self._number = number
        self.near_address = near_address(number)
        self.far_address = far_address(number)
        self.at_far_end = wires.at_far_end(number)

    def set(self, weather: PacketWeather = FAIR) -> None:
        """Change the weather; returns when it holds."""
        self._wires.ask(wire=self._number, weather=asdict(weather))

    @property
    def counts(self) -> FrameCounts:
        """What happened so far."""
        return self._wires.ask(wire=self._number)


@contextlib.contextmanager
def packet_wires(count: int, seed: int, *, own_network: bool = True) -> Iterator[PacketWires]:
    """Wires that all lead to one near network.

    Args:
        own_network: the near ends are in a network of their own, else in that of this process.

    Raises:
        NoWiresError: this machine allows none.
    """
    prefix, why_not = namespaces.ways() if own_network else ((), "")
    if why_not:
        raise NoWiresError(why_not)
    made = PacketWires(count, seed, prefix)
    try:
        yield made
    finally:
        made.close()
