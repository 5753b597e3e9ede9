"""How a server is set up: where its state is, where it listens, how patient it is."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from assay_sampling.errors import ParameterError

DEFAULT_LISTEN = ("127.0.0.1:7170",)
# sockaddr_un.sun_path has 108 bytes with its end.
_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class ServerConfig:
    """Args:
    state_dir: metadata, records and reports live here; made where it is missing.
    listen: "HOST:PORT" on loopback (port 0: any free one) or "unix:PATH".
    lease_ms: an attempt that gives no sign of life for so long goes to another slot.
    heartbeat_ms: how often agents are asked to give one.
    analysis_workers: processes that analyse, each a workload at a time.
    retry_delay_ms: rest before a failed slice is tried again, doubled each time.
    """

    state_dir: Path
    listen: tuple[str, ...] = DEFAULT_LISTEN
    lease_ms: int = 60_000
    heartbeat_ms: int = 5_000
    analysis_workers: int = 1
    retry_delay_ms: int = 1_000

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


def check_listen_address(address: str) -> str:
    """The address; raises ParameterError where it is not one, or is open to other machines."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path or len(path.encode()) > _LONGEST_SOCKET_PATH or "\0" in path:
            raise ParameterError(
                f"listen address {address!r}",
                f"a socket's path has 1 to {_LONGEST_SOCKET_PATH} bytes",
                "give a shorter path, for example under /run or /tmp",
            )
        return address
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):(\d{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise ParameterError(
            f"listen address {address!r}", "it is not HOST:PORT or unix:PATH", "for example 127.0.0.1:7170"
        )
    if not _is_loopback(match[1]):
        raise ParameterError(
            f"listen address {address!r}",
            "it is open to other machines, and the way there is neither secret nor authenticated",
            "listen on 127.0.0.1 or unix:PATH, and reach it from elsewhere through an SSH tunnel",
        )
    return address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def server_version() -> str:
    """The version of the installed distribution; empty where it runs from somewhere else."""
    try:
        return metadata.version("assay-gpu")
    except metadata.PackageNotFoundError:
        return ""
