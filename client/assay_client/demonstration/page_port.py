"""The port of a demo's live page: one for each folder, so that the page keeps its address."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

from assay_client.files import write_atomically
from assay_sampling.errors import ParameterError

HOST = "127.0.0.1"
_FILE = "page-port"
# Below the ports that Linux gives to outgoing connections: none of them takes it while a server restarts.
_FIRST, _PORTS, _TRIES = 20_000, 10_000, 200


def page_port(out: Path) -> int:
    """The port that a demo's folder had before if it is free, else one that is, which the folder keeps.

    Raises ParameterError if none is free, OSError if the folder cannot be written.
    """
    last_port = _last_port(out)
    if last_port is not None and _is_free(last_port):
        return last_port
    start = int.from_bytes(hashlib.blake2b(str(out.resolve()).encode(), digest_size=4).digest())
    for at in range(_TRIES):
        port = _FIRST + (start + at) % _PORTS
        if _is_free(port):
            write_atomically(out / _FILE, f"{port}\n".encode())
            return port
    raise ParameterError("live page", "no port is free for it", "end other programs on this machine")


def page_address(out: Path) -> str:
    """The address of a demo's page; "" if it never had one."""
    last_port = _last_port(out)
    return "" if last_port is None else f"http://{HOST}:{last_port}/"


def _last_port(out: Path) -> int | None:
    try:
        text = (out / _FILE).read_text().strip()
    except (OSError, ValueError):
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return number if 1024 <= number < 65_536 else None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
