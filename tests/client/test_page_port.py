"""The port of a demo's page: the same for a folder as long as nobody else has it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from assay_client.demonstration.page_port import page_address, page_port


def test_a_folder_keeps_its_port(tmp_path: Path) -> None:
    assert page_address(tmp_path) == ""
    port = page_port(tmp_path)
    assert 20_000 <= port < 30_000, "no port that Linux gives to outgoing connections"
    assert page_port(tmp_path) == port
    assert page_address(tmp_path) == f"http://127.0.0.1:{port}/"


def test_a_port_that_somebody_took_is_replaced_and_the_new_one_kept(tmp_path: Path) -> None:
    port = page_port(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        second = page_port(tmp_path)
        assert second != port
    assert page_port(tmp_path) == second
    assert page_address(tmp_path) == f"http://127.0.0.1:{second}/"


@pytest.mark.parametrize("kept", ["", "99999999", "80", "-5", "٣٣٣٣٣", "20000 20001", "\x00"])
def test_what_is_not_a_port_counts_as_none(tmp_path: Path, kept: str) -> None:
    (tmp_path / "page-port").write_text(kept)
    assert page_address(tmp_path) == ""
    assert page_port(tmp_path) >= 20_000
