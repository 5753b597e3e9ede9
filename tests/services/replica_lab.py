"""Two servers on one PostgreSQL database and one folder of records, behind HAProxy, over mutual TLS.

Servers and balancer have the same two ports, each on a loopback address of its own, as on hosts of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay_client.remote.logins import login_folder
from assay_core.server_address import parse_address
from tests.support.integration.harness import BIN, Lab, lab, wait_until

_HAPROXY = """\
global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
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
class ReplicaLab:
    """The lab's folder, its agents and people (``people``), and where each server and the balancer listen.

    ``web_port``: of the live page at servers and balancer; 0: there is none. ``options``: of each server.
    """

    people: Lab
    database: str
    port: int
    join_port: int
    web_port: int = 0
    options: tuple[str, ...] = ()

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
        """Start a server; the first one makes the authority, which the others get a copy of."""
        state, first = self.root / name, self.root / "a"
        if not (first / "authority").exists():
            init = [str(BIN / "assay-server"), "init", "--state", str(first)]
            subprocess.run(init, check=True, capture_output=True)
        if not (state / "authority").exists():
            state.mkdir(mode=0o700, exist_ok=True)
            subprocess.run(["cp", "-a", str(first / "authority"), str(state)], check=True)
        (state / "address").unlink(missing_ok=True)
        command = [
            str(BIN / "assay-server"), "--state", str(state), "--database", self.database, "--records",
            str(self.records), "--listen", self.addresses[name], "--join", f"{_HOSTS[name]}:{self.join_port}",
            "--lease", "20s", "--heartbeat", "300ms", *self.options,
        ]  # fmt: skip
        if self.web_port:
            command += ["--web", f"{_HOSTS[name]}:{self.web_port}", "--web-name", _HOST]
        self.people.start(name, command)
        wait_until((state / "address").exists, f"the start of server {name}")

    def know_login_everywhere(self) -> None:
        """Have the person's login, which was made through the balancer, used with each server's address."""
        logins = self.root / "logins"
        made = login_folder(parse_address(self.balancer), logins).read()
        assert made is not None
        for address in self.addresses.values():
            login_folder(parse_address(address), logins).write(replace(made, server=address))

    def start_balancer(self) -> None:
        text = _HAPROXY
        services = {"assay": self.port, "join": self.join_port, "web": self.web_port}
        for service, port in ((name, port) for name, port in services.items() if port):
            text += _LISTEN.format(name=service, host=_HOST, port=port)
            for name, host in _HOSTS.items():
                text += f"  server {name} {host}:{port} check inter 200ms fall 2 rise 1"
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
def replica_lab(database: str, *options: str, web: bool = False) -> Iterator[ReplicaLab]:
    """A lab whose servers run with these options; a person has logged in at the first one's database."""
    with lab("tcp", lease_ms=20_000) as people:
        people.state_name = "a"
        web_port = free_port() if web else 0
        made = ReplicaLab(people, database, free_port(), free_port(), web_port, options)
        for name in _HOSTS:
            made.start_server(name)
        made.start_balancer()
        people.login("submitter", "tester")
        made.know_login_everywhere()
        yield made
