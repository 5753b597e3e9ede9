"""How a server is set up: where its state is, where it listens, how patient it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from assay_sampling.errors import ParameterError
from assay_sampling.server_address import ServerAddress, default_address, parse_address
from assay_server.limits import DEFAULT_LIMITS, Limits


def _default_listen() -> tuple[str, ...]:
    return (default_address(),)


@dataclass(frozen=True)
class ServerConfig:
    """Args:
    state_dir: metadata, records and reports live here; made where it is missing.
    listen: "unix:PATH", or "HOST:PORT" on loopback (port 0: any free one); this user's own socket by default.
    lease_ms: an attempt that gives no sign of life for so long goes to another slot.
    heartbeat_ms: how often agents are asked to give one.
    analysis_workers: processes that analyse, each a workload at a time.
    retry_delay_ms: rest before a failed slice is tried again, doubled each time.
    limits: how much one client may ask for.
    """

    state_dir: Path
    listen: tuple[str, ...] = field(default_factory=_default_listen)
    lease_ms: int = 60_000
    heartbeat_ms: int = 5_000
    analysis_workers: int = 1
    retry_delay_ms: int = 1_000
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        for name in ("lease_ms", "heartbeat_ms", "analysis_workers"):
            if getattr(self, name) < 1:
                raise ParameterError(name, f"{getattr(self, name)} is not above 0", "give a positive number")
        if self.heartbeat_ms * 2 > self.lease_ms:
            raise ParameterError(
                "heartbeat_ms",
                f"{self.heartbeat_ms} ms leave no room for a lost one in a lease of {self.lease_ms} ms",
                "make it at most half of lease_ms",
            )
        if not self.listen:
            raise ParameterError("--listen", "no address is given", "give HOST:PORT or unix:PATH")
        for address in self.listen:
            check_listen_address(address)


def check_listen_address(address: str) -> ServerAddress:
    """The address; raises ParameterError where it is not one, or is open to other machines."""
    subject = f"listen address {address!r}"
    found = parse_address(address, subject, any_port=True)
    if not found.on_this_machine:
        raise ParameterError(
            subject,
            "it is open to other machines, and the way there is neither secret nor authenticated",
            "listen on unix:PATH or 127.0.0.1, and reach it from elsewhere through an SSH tunnel",
        )
    return found


def server_version() -> str:
    """The version of the installed distribution; empty where it runs from somewhere else."""
    try:
        return metadata.version("assay-gpu")
    except metadata.PackageNotFoundError:
        return ""
