"""An active server and a standby on one PostgreSQL database and one folder of records, behind HAProxy.

Servers and balancer have the same two ports, each on a loopback address of its own, as on hosts of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.support.integration.harness import BIN, Lab, lab, wait_until

_HAPROXY = """\
global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout check 2s
  option redispatch
  retries 3
"""
_LISTEN = """\
listen {name}
  bind {host}:{port}
  balance roundrobin
"""
_HOST, _HOSTS = "127.0.0.1", {"a": "127.0.0.2", "b": "127.0.0.3"}


def haproxy() -> str | None:
    """Debian's HAProxy: unpacked by ``make services``, or installed."""
    cache = os.environ.get("ASSAY_SERVICES", "")
    path = os.pathsep.join([f"{cache}/bin", os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which("haproxy", path=path)


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class StandbyLab:
    """The lab's folder, its agents and people (``people``), and where each server and the balancer listen.

    ``web_port``: of the live page at servers and balancer; 0: there is none. ``options``: of each server.
    ``ways``: to the database, of a server that has one of its own.
    """

    people: Lab
    database: str
    port: int
    join_port: int
    web_port: int = 0
    options: tuple[str, ...] = ()
    ways: Mapping[str, str] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[str, str]:
        """Where each server listens."""
        return {name: f"{host}:{self.port}" for name, host in _HOSTS.items()}

    @property
    def pages(self) -> dict[str, str]:
        """The live page of each server, and behind the balancer."""
        return {
            name: f"http://{host}:{self.web_port}" for name, host in {**_HOSTS, "balancer": _HOST}.items()
        }

    @property
    def balancer(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def root(self) -> Path:
        return self.people.root

    @property
    def records(self) -> Path:
        return self.root / "shared"

    def published(self) -> int:
        """How many files of slices there are."""
        return len(list((self.records / "records").rglob("*.parquet")))

    def start_server(self, name: str) -> None:
        """Start a server, which is then active or stands by; the first one makes the authority of both."""
        state, first = self.root / name, self.root / "a"
        if not (first / "authority").exists():
            init = [str(BIN / "assay-server"), "init", "--state", str(first)]
            subprocess.run(init, check=True, capture_output=True)
        if not (state / "authority").exists():
            state.mkdir(mode=0o700, exist_ok=True)
            subprocess.run(["cp", "-a", str(first / "authority"), str(state)], check=True)
        (self.root / f"{name}.run").mkdir(mode=0o700, exist_ok=True)
        (state / "address").unlink(missing_ok=True)
        command = [
            str(BIN / "assay-server"), "--state", str(state), "--records", str(self.records),
            "--database", self.ways.get(name, self.database),
            "--listen", self.addresses[name], "--join", f"{_HOSTS[name]}:{self.join_port}",
            "--lease", "20s", "--heartbeat", "300ms", "--listen", self.socket(name), *self.options,
        ]  # fmt: skip
        if self.web_port:
            command += ["--web", f"{_HOSTS[name]}:{self.web_port}", "--web-name", _HOST]
        self.people.start(name, command)
        wait_until(lambda: self.is_active(name) or self.stands_by(name), f"the start of server {name}")

    def socket(self, name: str) -> str:
        """The socket of a server, for probes."""
        return f"unix:{self.root / name}.run/server.sock"

    def digest(self) -> tuple[list[Any], list[str]]:
        """The attempts that the database has, and the names of all records."""
        with psycopg.connect(self.database) as connection:
            rows = connection.execute("SELECT a::text FROM attempts a ORDER BY 1").fetchall()
        return rows, sorted(str(path) for path in self.records.rglob("*.parquet"))

    def is_active(self, name: str) -> bool:
        """Whether a server listens."""
        return (self.root / name / "address").exists()

    def stands_by(self, name: str) -> bool:
        """Whether a server says that it stands by."""
        return "standing by" in self.log(name)

    def log(self, name: str) -> str:
        """What a server has logged."""
        return (self.root / f"{name}.log").read_text()

    def kill_active(self, name: str) -> None:
        """Kill the active server, and wait until the other one is."""
        self.people.kill(name)
        [other] = set(_HOSTS) - {name}
        wait_until(lambda: self.is_active(other), "the takeover", 10)

    def start_balancer(self) -> None:
        text = _HAPROXY
        services = {"assay": self.port, "join": self.join_port, "web": self.web_port}
        for service, port in ((name, port) for name, port in services.items() if port):
            text += _LISTEN.format(name=service, host=_HOST, port=port)
            for name, host in _HOSTS.items():
                # A TLS handshake: the kernel accepts TCP connections for a process that stands still.
                text += f"  server {name} {host}:{port} check port {self.join_port} check-ssl verify none"
                text += " inter 500ms fall 2 rise 1"
                text += " on-marked-down shutdown-sessions\n"
        path = self.root / "haproxy.cfg"
        path.write_text(text)
        program = haproxy()
        assert program is not None
        self.people.start("haproxy", [program, "-db", "-f", str(path)])
        self.people.address, self.people.balancer_join = self.balancer, f"{_HOST}:{self.join_port}"
        wait_until(lambda: _answers(self.port) and _answers(self.join_port), "the balancer's start")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


@contextlib.contextmanager
def standby_lab(
    database: str, *options: str, web: bool = False, ways: Mapping[str, str] | None = None
) -> Iterator[StandbyLab]:
    """A lab whose servers run with these options: "a" is active, and a person has logged in there."""
    with lab("tcp", lease_ms=20_000) as people:
        people.state_name = "a"
        web_port = free_port() if web else 0
        made = StandbyLab(people, database, free_port(), free_port(), web_port, options, ways or {})
        for name in _HOSTS:
            made.start_server(name)
        made.start_balancer()
        people.login("submitter", "tester")
        yield made
