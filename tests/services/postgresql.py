"""Runs a command with a PostgreSQL server of its own, which it starts on loopback and stops.

    python -m tests.services.postgresql pytest tests/server/test_store_contract.py

Debian's programs are used, as an unprivileged user (PostgreSQL refuses root). Without them the reason is
printed, and the exit status is 0.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg

USER, DATABASE = "assay", "assay"
_OWNER = "postgres"  # the unprivileged user that Debian's package makes


def programs() -> Path | None:
    """The folder of Debian's newest server programs; None: they are not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OwnPostgresql:
    """A server that lives as long as the block."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._programs, self.port = found, _free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="assay-postgresql-"))
        self._data = self._folder / "data"

    def url(self, database: str = DATABASE, user: str = USER) -> str:
        """The URL of one of its databases."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self._folder, _OWNER)
        options = ("-A", "trust", "-U", USER, "--no-sync", "--encoding=UTF8", "--locale=C")
        self._run("initdb", "-D", str(self._data), *options)
        self.start()
        self.administrate(f"CREATE DATABASE {DATABASE}", database="postgres")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, also after a kill."""
        settings = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self._folder} -c shared_buffers=32MB"
        log = ("-l", str(self._folder / "log"))
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "120", *log, "-o", settings, "start")

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server and its processes so far, also of those that have ended."""
        parent = self._postmaster()
        times = parent.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in parent.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                own = child.cpu_times()
                total += own.user + own.system
        return float(total)

    def _postmaster(self) -> psutil.Process:
        return psutil.Process(int((self._data / "postmaster.pid").read_text().splitlines()[0]))

    def stop(self) -> None:
        """Stop it in order."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop")

    def ask_for_password(self, user: str) -> None:
        """Let this user in by a password alone."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.administrate("SELECT pg_reload_conf()")

    @contextmanager
    def as_standby(self) -> Iterator[None]:
        """Run it as a standby, of a primary that is away."""
        signal = self._data / "standby.signal"
        self.stop()
        signal.touch()
        if os.geteuid() == 0:
            shutil.chown(signal, _OWNER)
        self.start()
        try:
            yield
        finally:
            self.stop()
            signal.unlink()
            self.start()

    def kill(self) -> None:
        """Kill -9 the server and its children, which would keep its memory for a while."""
        parent = self._postmaster()
        family = [parent, *parent.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=60)
        (self._data / "postmaster.pid").unlink()

    def administrate(self, *commands: str, database: str = DATABASE) -> None:
        """Run commands as its superuser."""
        with closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            for command in commands:
                connection.execute(command)  # type: ignore[call-overload]

    def dump(self, database: str, file: Path) -> None:
        """A backup of a database by pg_dump, also while a server works on it."""
        self._ask("pg_dump", "--format=custom", f"--file={file}", self.url(database))

    def restore(self, database: str, file: Path) -> None:
        """Put a new database with a backup in the place of a database."""
        made = f"CREATE DATABASE {database} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"
        self.administrate(f"DROP DATABASE {database} WITH (FORCE)", made, database="postgres")
        owner = ("--no-owner", f"--role={USER}")
        self._ask("pg_restore", "--exit-on-error", *owner, f"--dbname={self.url(database)}", str(file))

    def _ask(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL that asks the server."""
        command = (str(self._programs / program), *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)

    def _run(self, program: str, *arguments: str) -> None:
        as_user = ("runuser", "-u", _OWNER, "--") if os.geteuid() == 0 else ()
        command = (*as_user, str(self._programs / program), *arguments)
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(command: list[str]) -> int:
    """Run the command; returns its exit status."""
    if programs() is None:
        print("no PostgreSQL: install Debian's package postgresql-15")
        return 0
    with OwnPostgresql() as server:
        environment = {**os.environ, "ASSAY_POSTGRESQL": server.url()}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
