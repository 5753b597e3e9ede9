"""How an agent is set up."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay_agent.connection import check_address
from assay_agent.telemetry.settings import TelemetrySettings
from assay_sampling.errors import ParameterError


@dataclass(frozen=True)
class VirtualGPUs:
    """``count`` virtual GPUs of one kind; raises ParameterError for a kind that does not exist."""

    kind: str
    count: int = 1

    def __post_init__(self) -> None:
        from assay_agent.virtual.architectures import architecture  # noqa: PLC0415 - only with --virtual

        object.__setattr__(self, "kind", architecture(self.kind).kind)
        if not 1 <= self.count <= 1024:
            raise ParameterError(
                f"virtual {self.kind}", f"{self.count} is not in 1..1024", "give a number in that range"
            )

    @classmethod
    def parse(cls, text: str) -> VirtualGPUs:
        """Read ``KIND`` or ``KIND:COUNT``; raises ParameterError."""
        kind, colon, count = text.rpartition(":")
        if not colon:
            return cls(text)
        if not count.isdecimal():
            raise ParameterError(f"virtual {text!r}", f"{count!r} is no number", "write KIND or KIND:COUNT")
        return cls(kind, int(count))


@dataclass(frozen=True)
class AgentConfig:
    """Set-up of one agent; raises ParameterError for values that cannot be.

    Args:
        server: ``unix:PATH``, or ``HOST:PORT`` on this machine, which needs a policy file.
        state_dir: the agent's own directory: identity, lock and spool.
        name: what people call the agent; the host's name by default.
        agent_id: identity in a new state directory, 32 hexadecimal digits; a random one by default. No two
            agents of a server may have the same.
        recorded_slots: how many recordings are played back at a time.
        virtual: virtual GPUs to offer; what they measure is synthetic, and nothing else turns them on.
        installed_gpus: whether the GPUs of the box are offered, where their tools are found.
        spool_limit_bytes: bytes spooled at most; None: a quarter of the free disk, at most 4 GiB.
        minimum_free_bytes: left free on the disk in any case.
        flush_seconds: launches wait at most so long for their segment to fill.
        lease_wait_ms: how long one request for work may wait at the server.
        drain_seconds: how long a run may go on after the agent was told to stop.
        policy_file: what a server may ask for; None: anything over a socket of this user, else nothing.
        telemetry: how GPUs are watched while they measure, and when they are too hot to begin.
    """

    server: str
    state_dir: Path
    name: str = field(default_factory=socket.gethostname)
    recorded_slots: int = 1
    virtual: Sequence[VirtualGPUs] = ()
    installed_gpus: bool = True
    spool_limit_bytes: int | None = None
    minimum_free_bytes: int = 256 << 20
    flush_seconds: float = 2.0
    lease_wait_ms: int = 10_000
    drain_seconds: float = 5.0
    agent_id: str = ""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    policy_file: Path | None = None

    def __post_init__(self) -> None:
        check_address(self.server)
        if self.agent_id and not re.fullmatch(r"[0-9a-f]{32}", self.agent_id):
            raise ParameterError(
                "agent id", f"{self.agent_id!r} is not 32 hexadecimal digits", "leave it out for a random one"
            )
        if not 0 <= self.recorded_slots <= 1024:
            raise ParameterError(
                "recorded slots", f"{self.recorded_slots} is not in 0..1024", "give a number in that range"
            )
        for what in (
            "spool_limit_bytes",
            "minimum_free_bytes",
            "flush_seconds",
            "lease_wait_ms",
            "drain_seconds",
        ):
            value = getattr(self, what)
            if value is not None and value < 0:
                raise ParameterError(what.replace("_", " "), f"{value} is negative", "give 0 or more")
