"""Waves of strangers at every listener of a server, on a busy machine, with renewals in between.

python -m tests.chaos.strangers [--waves N] [--connections N]

Each wave holds connections that say nothing to every listener for longer than a handshake may take, beside
some that are slow or half closed. Afterwards the server answers health checks within a second: of its owner,
of a member, and of the member with a renewed certificate; and a browser, a reader of metrics and a joiner.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from assay_core.connecting.channel import mutual_channel
from assay_core.connecting.joining import renewed
from assay_core.identity.credentials import Credentials
from assay_core.server_address import parse_address
from assay_server.limits import DEFAULT_LIMITS
from tests.chaos.proof import end_in_order_at_sigterm
from tests.support.integration.open_server import OpenServer
from tests.support.machine.strangers import Manner, still_open, strangers

WAVES, CONNECTIONS, OTHERS = 5, 600, 50
ANSWER_SECONDS = 1.0
_HOLD_SECONDS = DEFAULT_LIMITS.calls.handshake_seconds + 4.0


def main() -> int:
    """0: after every wave the server answered in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waves", type=int, default=WAVES)
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="silent ones at each listener")
    given = parser.parse_args()
    end_in_order_at_sigterm()
    with (
        tempfile.TemporaryDirectory(prefix="assay-waves-", dir="/tmp") as root,
        OpenServer(Path(root)) as server,
    ):
        member = server.joined("vera")
        for number in range(1, given.waves + 1):
            with _busy_machine():
                held, left = _wave(server, given.connections)
            if server.ended:
                print(f"wave {number}: the server ended with {server.ended}\n{server.log.read_text()}")
                return 1
            health = [server.health_seconds(), server.health_seconds(member)]
            member = _renewed(member)
            health.append(server.health_seconds(member))
            server.joined(f"person-{number}")
            page, metrics = server.page_status(), server.metrics_status()
            owner, over_tls, again = health
            print(
                f"wave {number}: {held:,} connections for {_HOLD_SECONDS:.0f} s, {left} left; health "
                f"{owner:.3f} s, over TLS {over_tls:.3f} s, with a renewed certificate {again:.3f} s; "
                f"page {page}, metrics {metrics}",
                flush=True,
            )
            if left or max(health) > ANSWER_SECONDS or (page, metrics) != (200, 200):
                return 1
    return 0


def _wave(server: OpenServer, connections: int) -> tuple[int, int]:
    """How many connections there were, and how many of them the server had not ended after the time."""
    addresses = [*server.addresses.values()]
    with (
        strangers(addresses, connections) as silent,
        strangers(addresses, OTHERS, Manner.SLOW) as slow,
        strangers(addresses, OTHERS, Manner.HALF_CLOSED) as half_closed,
    ):
        crowd = [*silent, *slow, *half_closed]
        time.sleep(_HOLD_SECONDS)
        return len(crowd), still_open(crowd)


def _renewed(member: Credentials) -> Credentials:
    with mutual_channel(parse_address(member.server), member, ()) as channel:
        return renewed(channel, member, timeout_seconds=10)


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    """Every core has something else to do, too."""
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for each in busy:
        each.start()
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.join()


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    sys.exit(main())
