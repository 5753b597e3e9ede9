"""Fixtures of the server's tests: a server in this process with a stand-in for the analysis."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay_server.app import Server, ServerSettings
from assay_server.identity.authority import read_authority, write_authority
from assay_server.limits import DEFAULT_LIMITS, Limits
from tests.support.identity.authorities import made_authority
from tests.support.server.server_support import HandClock, StandInExecutor


@pytest.fixture
def analysis() -> Iterator[StandInExecutor]:
    executor = StandInExecutor()
    yield executor
    executor.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        yield Path(folder)


@pytest.fixture
def make_server(short_path: Path, analysis: StandInExecutor) -> Iterator[Callable[..., Server]]:
    """Starts servers in this process over one state directory; all are stopped at the end."""
    started: list[Server] = []
    state = short_path / "state"

    def make(clock: HandClock | None = None, limits: Limits = DEFAULT_LIMITS, **settings: Any) -> Server:
        listen = settings.get("listen", ())
        if any(not address.startswith("unix:") for address in listen) and read_authority(state) is None:
            state.mkdir(mode=0o700, exist_ok=True)
            write_authority(made_authority(), state)
        config = ServerSettings(
            state_dir=state,
            listen=settings.pop("listen", (f"unix:{short_path}/server.sock",)),
            **{"lease_ms": 60_000, "retry_delay_ms": 1, **settings},
        )
        server = Server(config, limits=limits, clock=clock, make_executor=lambda: analysis)
        server.start()
        started.append(server)
        return server

    yield make
    for server in started:
        server.stop()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()
