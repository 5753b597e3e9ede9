"""Processes that are killed, stand still, or are restarted in order."""

from __future__ import annotations

import re
import signal
from random import Random
from typing import ClassVar

import psutil

from tests.chaos.faults.seam import Fault, Whom
from tests.chaos.laboratory import LEASE_SECONDS, Laboratory, waited

_TOOLS = "assay_virtual.tools"
_ATTEMPT = re.compile(r"/jobs/([^/]+)-\d+/")
_TOOL_SECONDS = 12.0
# A run whose tool is killed three times has failed for good, as it should.
_MOST_KILLS_A_SLICE = 1


class KillAgent(Fault):
    """kill -9 of an agent's process; its tools must end by themselves."""

    kind = "kill_agent"
    weight = 8
    number: ClassVar[int] = signal.SIGKILL

    def inject(self) -> None:
        self._deaths = len(self.program.deaths)
        self.program.send(self.number)
        waited(lambda: len(self.program.deaths) > self._deaths, 30)

    def effect(self) -> str:
        died = self.program.deaths[self._deaths :]
        return f"ended with {died[0]}" if died and died[0] == -self.number else ""


class KillServer(KillAgent):
    """kill -9 of the server."""

    kind = "kill_server"
    whom = Whom.SERVER


class DrainAgent(KillAgent):
    """SIGTERM of an agent, and a new start: a rolling restart."""

    kind = "restart_agent"
    weight = 3
    number = signal.SIGTERM

    def effect(self) -> str:
        died = self.program.deaths[self._deaths :]
        return "ended in order" if died and died[0] == 0 else ""


class DrainServer(DrainAgent):
    """SIGTERM of the server, which drains, and a new start."""

    kind = "restart_server"
    whom = Whom.SERVER
    weight = 3


class StopAgent(Fault):
    """SIGSTOP of an agent: its connections live, but nobody answers; sometimes for longer than a lease."""

    kind = "stop_agent"
    weight = 6
    shortest, longest = 0.5, 1.4 * LEASE_SECONDS

    def inject(self) -> None:
        self._found = ""
        pid = self.program.pid
        if self.program.send(signal.SIGSTOP):
            self._found = waited(lambda: _stopped(pid), 5)

    def heal(self) -> None:
        self.program.send(signal.SIGCONT)

    def effect(self) -> str:
        return f"stood still for {self.seconds:.1f} s" if self._found else ""


class StopServer(StopAgent):
    """SIGSTOP of the server."""

    kind = "stop_server"
    whom = Whom.SERVER
    weight = 4
    shortest, longest = 0.5, 4.0


def _stopped(pid: int) -> str:
    try:
        return "yes" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else ""
    except psutil.NoSuchProcess:
        return ""


class KillProfiler(Fault):
    """kill -9 of a tool that profiles on a virtual GPU."""

    kind = "kill_profiler"
    early = True

    def inject(self) -> None:
        self._found = ""
        waited(self._kill, _TOOL_SECONDS)

    def _kill(self) -> bool:
        for tool, slice_name in _tools(self.program.pid):
            kills = self.lab.tool_kills
            if kills.get(slice_name, 0) >= _MOST_KILLS_A_SLICE:
                continue
            try:
                tool.kill()
            except psutil.NoSuchProcess:
                continue
            kills[slice_name] = kills.get(slice_name, 0) + 1
            self._found = f"process {tool.pid} of {slice_name}"
            return True
        return False

    def effect(self) -> str:
        return self._found


class StandingStill(Fault):
    """Processes of a program stand still for a while, and then go on."""

    shortest, longest = 0.5, 4.0

    def __init__(self, lab: Laboratory, target: str, chance: Random) -> None:
        super().__init__(lab, target, chance)
        self.stopped: list[psutil.Process] = []

    def stop(self, process: psutil.Process) -> bool:
        """Stop one process; False if it has ended."""
        try:
            process.suspend()
        except psutil.NoSuchProcess:
            return False
        self.stopped.append(process)
        return True

    def heal(self) -> None:
        for process in reversed(self.stopped):
            try:
                process.resume()
            except psutil.NoSuchProcess:
                continue


class StopProfiler(StandingStill):
    """SIGSTOP of a tool for a while."""

    kind = "stop_profiler"
    early = True
    weight = 3

    def inject(self) -> None:
        self._found = ""
        waited(self._stop_one, _TOOL_SECONDS)

    def _stop_one(self) -> bool:
        for tool, slice_name in _tools(self.program.pid):
            if not self.stop(tool):
                continue
            if waited(lambda tool=tool: _stopped(tool.pid), 2):  # type: ignore[misc]
                self._found = f"process {tool.pid} of {slice_name}"
                return True
        return False

    def effect(self) -> str:
        return self._found


def _tools(agent: int) -> list[tuple[psutil.Process, str]]:
    """The tool processes of an agent, with the slice that each measures."""
    found = []
    try:
        children = psutil.Process(agent).children(recursive=True) if agent else []
    except psutil.NoSuchProcess:
        return []
    for child in children:
        try:
            command = " ".join(child.cmdline())
        except psutil.Error:
            continue
        named = _ATTEMPT.search(command)
        if _TOOLS in command and named:
            found.append((child, named[1]))
    return found
