"""Crowds of strangers at every listener of a real server: it lives, and answers those whom it knows."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_server.app import Server
from tests.support.integration.open_server import OpenServer
from tests.support.machine.strangers import still_open, storm, strangers
from tests.support.server.server_support import eventually

pytestmark = pytest.mark.processes


def test_connections_that_come_and_go_in_silence_do_not_end_the_server(short_path: Path) -> None:
    with OpenServer(short_path, "--certificate-validity", "3s") as server:
        made = storm([server.addresses["rpc"], server.addresses["join"]], seconds=6.0)
        assert server.ended == "", server.log.read_text()
        assert server.health_seconds() < 5.0
        assert made > 500


def test_a_crowd_at_every_listener_stops_nobody_else_and_is_gone_in_time(short_path: Path) -> None:
    """Slow and half-closed ones: ``make chaos-short`` and ``make abuse``."""
    with OpenServer(short_path) as server:
        before = server.open_files
        with strangers([*server.addresses.values()], 700) as crowd:
            assert server.health_seconds() < 5.0
            assert server.page_status() == 200
            assert server.metrics_status() == 200
            # All connections that the listeners may have at a time.
            assert server.open_files - before < 2_048 + 64 + 512 + 8 + 200
            eventually(lambda: still_open(crowd) == 0, "the end of the crowd")
        eventually(lambda: server.open_files < before + 20, "the end of its open files")
        assert server.ended == "", server.log.read_text()


def test_crowds_that_have_left_the_page_leave_no_memory(short_path: Path) -> None:
    """Garbage with the buffers of TLS must not wait for the collector, which a server runs seldom."""
    with OpenServer(short_path) as server:
        page = server.addresses["page"]
        storm([page], seconds=3.0, enough=640)
        after_one = server.memory_mib
        made = storm([page], seconds=8.0, enough=1280)
        for _ in range(300):
            assert server.page_status() == 200
        assert made + 300 > 600, "150 MiB if all stayed"
        assert server.memory_mib < after_one + 60


def test_a_second_request_to_the_page_that_never_ends_is_cut_off(server_with_page: Server) -> None:
    host, _, port = server_with_page.web_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nlink")
        answer = b"x"
        while answer:  # whatever it still says, it ends
            answer = slow.recv(65_536)


@pytest.fixture
def server_with_page(make_server: Callable[..., Server]) -> Server:
    return make_server(web="127.0.0.1:0")
