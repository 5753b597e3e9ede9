"""Signals at random moments end every command, and none hangs in what gRPC was doing then."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from assay_protos import campaign_pb2
from tests.support.client.scripted_server import FakeServer, Script, status

pytestmark = [pytest.mark.processes, pytest.mark.timeout(280)]

# More of them is a longer test: ASSAY_SIGNALS=90 is what hung 3 times with handlers that raised.
STARTS = int(os.environ.get("ASSAY_SIGNALS", "8"))

PROGRAM = "import sys; from assay_client.cli.main import main; sys.exit(main())"


def endless(_campaign_id: str) -> Iterator[campaign_pb2.CampaignStatus]:
    for number in range(100_000):
        yield status("running", number % 2)
        time.sleep(0.002)


@pytest.fixture
def signals_as_at_a_terminal() -> Iterator[None]:
    """Ctrl-C as at a terminal: a shell has its background jobs ignore it until they handle it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("signals_as_at_a_terminal")
@pytest.mark.parametrize(
    "verb", [["lab", "status", "c-1", "-f"], ["demo", "--out", "OUT"]], ids=["watch", "demo"]
)
def test_no_command_hangs_however_it_is_ended(
    verb: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = Script()
    script.watch = endless
    server = FakeServer(script)
    chance = random.Random(7)
    environment = {**os.environ, "ASSAY_SERVER": server.address}
    for turn in range(STARTS):
        words = [str(tmp_path_factory.mktemp("demo")) if word == "OUT" else word for word in verb]
        command = [sys.executable, "-m", "assay_client.cli.main", *words]
        program = "import sys; from assay_client.cli.main import main; sys.exit(main())"
        command[1:3] = ["-c", program]
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        time.sleep(chance.uniform(0.3, 3.0))
        number = (signal.SIGTERM, signal.SIGINT)[turn % 2]
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        # Before the program has its handlers Python's own, and the kernel's, end it.
        assert process.returncode in (128 + number, -number, 1), said.decode()
        assert process.returncode != 1 or b"KeyboardInterrupt" in said
    server.stop()
