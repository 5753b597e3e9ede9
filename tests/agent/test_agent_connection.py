"""What an agent says of a server that is not there."""

from __future__ import annotations

import logging
import threading

import pytest

from assay_agent.uplink.connection import Connection
from assay_core.records.machine import Inventory, Registration
from assay_sampling.errors import ServerUnreachableError


def test_a_server_that_is_not_there_is_said_once_and_tried_again(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"unix:{tmp_path_factory.mktemp('s')}/none.sock"
    give_up = threading.Event()
    latest = threading.Timer(20, give_up.set)
    latest.start()
    connection = Connection(address)

    def stop_then(_: logging.LogRecord) -> bool:
        give_up.set()
        return True

    logger = logging.getLogger("assay_agent.uplink.connection")
    logger.addFilter(stop_then)
    try:
        with caplog.at_level(logging.WARNING), pytest.raises(ServerUnreachableError):
            connection.register(Registration("a", "s", "n", Inventory(), ()), give_up)
    finally:
        logger.removeFilter(stop_then)
        latest.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        f"server {address} does not answer: it is tried again until it does"
    ]
