"""A server that is stopped for longer than a lease (SIGSTOP) takes no run from anybody when it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

pytestmark = pytest.mark.processes

CAMPAIGN = "campaign: made\nworkloads:\n  - {name: w, recordings: [{device: V100, light: l.sqlite}]}\n"


def test_a_stopped_server_ends_no_lease(short_path: Path) -> None:
    address = f"unix:{short_path / 'socket'}"
    command = [str(Path(sys.executable).with_name("assay-server")), "--listen", address, "--lease", "4s"]
    command += ["--heartbeat", "300ms", "--state", str(short_path / "state")]
    log = short_path / "log"
    with log.open("wb") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=stream)
    end = threading.Event()
    try:
        eventually((short_path / "state" / "address").exists, "the server's start")
        with PlayingAgent(address) as first, PlayingAgent(address, "agent-2") as second:
            first.submit(CAMPAIGN)
            first.register()
            key = first.lease().work.key
            second.register()

            first.heartbeat([key])

            def beat() -> None:
                # Its call under way has timed out meanwhile: the next one comes a moment later.
                end.wait(0.7)
                while not end.wait(0.3):
                    with contextlib.suppress(grpc.RpcError):
                        first.heartbeat([key])

            beating = threading.Thread(target=beat)
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(6)
            os.kill(server.pid, signal.SIGCONT)
            beating.start()
            taken = second.lease(wait_ms=6000)
            assert taken.work is None, "the second agent was given the run of the first"
            end.set()
            beating.join()
            assert [a.state for a in first.run(key.run_id).attempts] == ["leased"]
        assert "this server was stopped for" in log.read_text()
    finally:
        end.set()
        server.kill()
        server.wait()
