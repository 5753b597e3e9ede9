"""A pytest plugin of ``make test``: Assay's programs start as forks of a process that has loaded them.

    pytest -n 4 -p tests.support.fork_server.plugin

Imports of the same modules by hundreds of processes took a quarter of the processor's time in the tests. A
program that a test starts is a child of the test's process as before, with its own session, limits,
environment and standard streams; the imports alone are done before. Programs that shells and tools
start, and those that need more than a fork can give, start as usual; without this plugin all of them do.
Forks have one seed for hashes, and gRPC logs nothing in agents either.
"""

from __future__ import annotations

from tests.support.fork_server.asking import ForkServer
from tests.support.fork_server.starting import as_usual, by_forks_of

_servers: list[ForkServer] = []


def pytest_sessionstart() -> None:
    """From here on programs start by a fork: ``conftest.py`` has set the variables that all of them have."""
    _servers.append(ForkServer())
    by_forks_of(_servers[0])


def pytest_sessionfinish() -> None:
    """Programs start as usual, and the process that forks ends."""
    as_usual()
    _servers.pop().close()
