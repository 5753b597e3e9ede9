"""Strangers at the ports of a program: TCP connections that never finish a handshake or a request."""

from __future__ import annotations

import contextlib
import math
import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

# How a TLS client begins: a record that announces 512 bytes, of which few ever come.
_BEGIN = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
_BYTE_SECONDS = 0.5


class Manner(StrEnum):
    """What a stranger does once it is connected."""

    SILENT = "silent"
    SLOW = "slow"  # a byte of a handshake now and then
    HALF_CLOSED = "half-closed"  # it says that it will send nothing more, and waits


@contextlib.contextmanager
def strangers(
    addresses: Sequence[str], count: int, manner: Manner = Manner.SILENT
) -> Iterator[list[socket.socket]]:
    """``count`` connections to each address (HOST:PORT) while the block lasts, without those refused."""
    allow_files(count * len(addresses))
    over = threading.Event()
    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(len(addresses)) as threads:
            opened = threads.map(lambda address: _connections(address, count), addresses)
            sockets = [stack.enter_context(each) for some in opened for each in some]
        if manner is Manner.HALF_CLOSED:
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_WR)
        dripping = threading.Thread(target=_drip, args=(sockets, over))
        if manner is Manner.SLOW:
            dripping.start()
        try:
            yield sockets
        finally:
            over.set()
            if dripping.ident is not None:
                dripping.join()


def storm(addresses: Sequence[str], seconds: float, each: int = 64, enough: float = math.inf) -> int:
    """Connect and go away, ``each`` at a time and address, again and again; returns how often.

    It ends after ``seconds``, or with ``enough`` connections.
    """
    made, until = 0, time.monotonic() + seconds
    while time.monotonic() < until and made < enough:
        with strangers(addresses, each) as sockets:
            made += len(sockets)
            time.sleep(0.02)
    return made


def still_open(sockets: Sequence[socket.socket]) -> int:
    """How many connections the other side has not closed; reads what it said."""
    return sum(_is_open(each) for each in sockets)


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _connections(address: str, count: int) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    made = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            made.append(socket.create_connection((host, int(port)), timeout=10))
    return made


def _drip(sockets: Sequence[socket.socket], over: threading.Event) -> None:
    for byte in _BEGIN:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.send(bytes([byte]))
        if over.wait(_BYTE_SECONDS):
            return


def allow_files(connections: int) -> None:
    """Let this process and its children open so many connections, as far as this machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 1_024
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
