"""Server, agent and client answer alike whether an address is on this machine, and what is not an address."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay_agent.uplink.connection import check_address
from assay_client.remote.connection import server_address
from assay_sampling.errors import ParameterError, ServerUnreachableError
from assay_server.config import check_listen_address

PROGRAMS: dict[str, Callable[[str], object]] = {
    "server": check_listen_address,
    "agent": check_address,
    "client": server_address,
}
HERE = [
    "127.0.0.1:7170", "127.0.0.2:7170", "localhost:7170", "[::1]:7170", "[0:0:0:0:0:0:0:1]:7170",
    "[::ffff:127.0.0.1]:7170", "unix:/run/assay.sock", "unix:///run/assay.sock", "unix:relative.sock",
]  # fmt: skip
ELSEWHERE = [
    "LOCALHOST:7170", "Localhost:7170", "localhost.:7170", "localhost.example:7170", "127.0.0.1.example:7170",
    "0.0.0.0:7170", "[::]:7170", "[::2]:7170", "[::1%lo]:7170", "[::ffff:10.0.0.1]:7170", "10.0.0.1:7170",
    "127.1:7170", "gpu1.lab:7170",
]  # fmt: skip
NOT_ADDRESSES = [
    "7170", ":7170", "localhost", "localhost:", "localhost:65536", "::1:7170", "[::1]", "[localhost]:7170",
    "[127.0.0.1]:7170", "127.0.0.1:7170 ", " 127.0.0.1:7170", "localhost :7170", "127.0.0.1:7170\n", "unix:",
    "unix://host/s", "unix:/s\0", "UNIX:/s", "unix-abstract:s", "ipv4:127.0.0.1:7170", "dns:localhost:7170",
]  # fmt: skip

every_program = pytest.mark.parametrize("program", PROGRAMS)


@every_program
@pytest.mark.parametrize("address", HERE)
def test_on_this_machine(program: str, address: str) -> None:
    PROGRAMS[program](address)


@every_program
@pytest.mark.parametrize("address", ELSEWHERE)
def test_on_another_machine(program: str, address: str) -> None:
    expected = ServerUnreachableError if program == "client" else ParameterError
    with pytest.raises(expected, match=r"not on this machine|open to other machines"):
        PROGRAMS[program](address)


@every_program
@pytest.mark.parametrize("address", NOT_ADDRESSES)
def test_not_an_address(program: str, address: str) -> None:
    with pytest.raises(ParameterError, match=r"is not an address|does not name a socket"):
        PROGRAMS[program](address)
