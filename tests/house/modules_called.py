"""Which of our modules a server passes while it answers a call, warm: modules of which a function was called.

The server runs in this process behind a real socket. Only threads that the server starts are watched, so the
client's side is not counted. A call is made several times, and what counts is what every one of them passed:
what else the server does now and then falls out.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from assay_server.app import Server
from assay_server.config import ServerSettings
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor

OURS = ("assay_core.", "assay_sampling.", "assay_report.", "assay_server.")
CALLS = 8
WARM_CALLS = 3  # of which nothing is counted
_RUNS = "\n".join(f"      - {{device: GPU-{number}, light: light.sqlite}}" for number in range(CALLS))
CAMPAIGN = f"campaign: house\nworkloads:\n  - name: training\n    recordings:\n{_RUNS}\n"


class Watch:
    """Modules of which the server's threads call a function."""

    def __init__(self) -> None:
        self._modules: set[str] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """What ``sys.setprofile`` calls: only calls of Python functions count."""
        if event == "call" and self._modules is not None:
            self._modules.add(frame.f_globals.get("__name__", ""))

    def during(self, call: Callable[[], object]) -> set[str]:
        """The modules that are passed while a call is made."""
        self._modules = passed = set[str]()
        try:
            call()
        finally:
            self._modules = None
        return {name for name in passed if name.startswith(OURS)}


@contextmanager
def watched_server(watch: Watch) -> Iterator[Server]:
    """A server on SQLite whose threads are watched."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        threading.setprofile(watch)
        executor = StandInExecutor()
        settings = ServerSettings(state_dir=Path(folder) / "state", listen=(f"unix:{folder}/server.sock",))
        server = Server(settings, make_executor=lambda: executor)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            executor.close()
            threading.setprofile(None)  # type: ignore[arg-type]  # typeshed asks for a function


def modules_called() -> dict[str, set[str]]:
    """By call, the modules it passes: of a lease, and from finish to published."""
    assert sys.getprofile() is None, "something else profiles this process"
    watch = Watch()
    leases: list[set[str]] = []
    finishes: list[set[str]] = []
    with watched_server(watch) as server, PlayingAgent(server.addresses[0]) as agent:
        agent.register(("recorded-0",))
        agent.submit(CAMPAIGN)
        for _ in range(CALLS):
            answers = []
            passed = watch.during(lambda answers=answers: answers.append(agent.work(wait_ms=5_000)))
            leases.append(passed)
            key = answers[0].key
            segments = made_segments((30,))
            agent.upload(key, segments)
            finishes.append(watch.during(lambda key=key: agent.finish(key, 1, 30)))
    return {
        "a lease": set.intersection(*leases[WARM_CALLS:]),
        "finish to published": set.intersection(*finishes[WARM_CALLS:]),
    }
