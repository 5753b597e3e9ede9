"""Server, agent and client answer alike what is an address, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay_agent.uplink.connection import Connection
from assay_client.remote.addresses import server_address
from assay_sampling.errors import NotReadyError, ParameterError
from assay_server.config import check_listen_address


def _agents_answer(address: str) -> None:
    """Raises ParameterError for what is not an address; over TCP it needs a certificate besides."""
    try:
        Connection(address).close()
    except NotReadyError:
        return


PROGRAMS: dict[str, Callable[[str], object]] = {
    "server": check_listen_address,
    "agent": _agents_answer,
    "client": server_address,
}
ADDRESSES = [
    "127.0.0.1:7170", "localhost:7170", "[::1]:7170", "[0:0:0:0:0:0:0:1]:7170", "[::ffff:127.0.0.1]:7170",
    "LOCALHOST:7170", "localhost.:7170", "127.0.0.1.example:7170", "0.0.0.0:7170", "[::]:7170",
    "[::1%lo]:7170", "10.0.0.1:7170", "127.1:7170", "gpu1.lab:7170",
]  # fmt: skip
SOCKETS = ["unix:/run/assay.sock", "unix:///run/assay.sock", "unix:relative.sock"]
NOT_ADDRESSES = [
    "7170", ":7170", "localhost", "localhost:", "localhost:65536", "::1:7170", "[::1]", "[localhost]:7170",
    "[127.0.0.1]:7170", "127.0.0.1:7170 ", " 127.0.0.1:7170", "localhost :7170", "127.0.0.1:7170\n", "unix:",
    "unix://host/s", "unix:/s\0", "UNIX:/s", "unix-abstract:s", "ipv4:127.0.0.1:7170", "dns:localhost:7170",
]  # fmt: skip

every_program = pytest.mark.parametrize("program", PROGRAMS)


@every_program
@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_an_address(program: str, address: str) -> None:
    PROGRAMS[program](address)


@pytest.mark.parametrize("program", ["server", "client"])
@pytest.mark.parametrize("address", SOCKETS)
def test_what_is_a_socket(program: str, address: str) -> None:
    PROGRAMS[program](address)


@every_program
@pytest.mark.parametrize("address", NOT_ADDRESSES)
def test_not_an_address(program: str, address: str) -> None:
    with pytest.raises(ParameterError, match=r"is not an address|does not name a socket"):
        PROGRAMS[program](address)
