"""Crowds of strangers at every listener of a real server: it lives, and answers those whom it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.integration.open_server import OpenServer
from tests.support.machine.strangers import storm

pytestmark = pytest.mark.processes


def test_connections_that_come_and_go_in_silence_do_not_end_the_server(short_path: Path) -> None:
    with OpenServer(short_path, "--certificate-validity", "3s") as server:
        made = storm([server.addresses["rpc"], server.addresses["join"]], seconds=6.0)
        assert server.ended == "", server.log.read_text()
        assert server.health_seconds() < 5.0
        assert made > 500
