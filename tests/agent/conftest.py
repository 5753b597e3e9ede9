"""Fixtures of the agent's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A running fake server on a Unix socket, in a directory with a short name."""
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        made = FakeServer(Path(directory))
        made.start()
        yield made
        made.hold_acks.set()
        made.stop()
