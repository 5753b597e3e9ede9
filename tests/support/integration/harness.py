"""Real processes for tests: a server, agents, and the command line, on a Unix socket or TCP."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_client.api import Client
from assay_sampling.errors import ServerUnreachableError
from assay_server.store.sqlite import SqliteStore

BIN = Path(sys.executable).parent
# Longer than a busy machine lets a process stand still: an attempt that is lost for it would be made again.
LEASE_MS = 10_000
HEARTBEAT_MS = 300
# How long a test waits between two questions to a server.
ASK_SECONDS = 0.1


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = 200.0, *, pause_seconds: float = 0.02
) -> None:
    """Poll until ``condition`` holds; fails the test naming ``what`` when it does not in time.

    Ask a server more seldom than a file: each question is work for it.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds:g} s")
        time.sleep(pause_seconds)


@dataclass
class Lab:
    """A server and its agents as processes, with their state under one directory."""

    root: Path
    address: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lease_ms: int = LEASE_MS
    heartbeat_ms: int = HEARTBEAT_MS
    certificate_validity: str = "24h"
    state_name: str = "server"
    balancer_join: str = ""  # where a balancer lets people and agents join

    @property
    def tcp(self) -> bool:
        """Whether server, agents and people meet over mutual TLS."""
        return not self.address.startswith("unix:")

    @property
    def own_socket(self) -> str:
        """The socket of the server's owner."""
        return f"unix:{self.root}/socket"

    @property
    def join_address(self) -> str:
        """Where agents and people join."""
        return self.balancer_join or (self.server_state / "join-address").read_text().strip()

    def token(self, role: str, *options: str) -> str:
        """A join token, made in the server's state folder."""
        command = [str(BIN / "assay-server"), "token", "--state", str(self.server_state), "--role", role,
                   "--json", *options]  # fmt: skip
        token: str = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["token"]
        return token

    def join(self, name: str, *, token: str = "") -> subprocess.CompletedProcess[str]:
        """``assay-agent join`` for the agent of this name."""
        token = token or self.token("agent")
        command = [str(BIN / "assay-agent"), "join", self.join_address, "--token", token,
                   "--state", str(self.root / name), "--name", name, "--json"]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def login(self, role: str, name: str) -> None:
        """Log in on this machine; the login before is forgotten."""
        self.assay("lab", "login", self.join_address, "--token", self.token(role, "--name", name))

    @property
    def server_state(self) -> Path:
        return self.root / self.state_name

    def _make_database(self) -> None:
        """Into an empty state folder: migrating in the server's process takes a sixth of its start."""
        state = self.server_state
        if state.is_dir() and not any(state.iterdir()):
            SqliteStore(state / "metadata.sqlite").close()

    def start_server(self, *options: str) -> None:
        if "--database" not in options:
            self._make_database()
        command = [
            str(BIN / "assay-server"), "--listen", self.address, "--state", str(self.server_state),
            "--lease", f"{self.lease_ms}ms", "--heartbeat", f"{self.heartbeat_ms}ms", *options,
        ]  # fmt: skip
        if self.tcp:
            if not (self.server_state / "authority").exists():
                init = [str(BIN / "assay-server"), "init", "--state", str(self.server_state)]
                subprocess.run(init, check=True, capture_output=True)
            command += ["--listen", self.own_socket, "--certificate-validity", self.certificate_validity]
            command += [] if "--join" in options else ["--join", "127.0.0.1:0"]
        # Port 0 is chosen once: a restarted server must be where its agents look for it.
        for left in ("address", "join-address"):
            (self.server_state / left).unlink(missing_ok=True)
        self.start("server", command)
        wait_until((self.server_state / "address").exists, "the server's start")
        self.address = (self.server_state / "address").read_text().split()[0]
        if self.tcp and not (self.root / "logins").exists():
            self.login("submitter", "tester")

    def start_agent(self, name: str = "agent", *options: str) -> None:
        if self.tcp and not (self.root / name / "credentials").exists():
            joined = self.join(name)
            assert joined.returncode == 0, joined.stderr
        command = [
            str(BIN / "assay-agent"), "run", "--server", self.address,
            "--state", str(self.root / name), "--name", name, *self._policy(), *options,
        ]  # fmt: skip
        self.start(name, command)

    def until_registered(self, *names: str) -> None:
        """Wait until these agents have registered."""
        for name in names:
            log = self.root / f"{name}.log"
            wait_until(lambda log=log: "registered with" in log.read_text(), f"the start of {name}")

    def _policy(self) -> list[str]:
        """Over TCP an agent needs a policy file: one that allows all that tests play and run."""
        if self.address.startswith("unix:"):
            return []
        path = self.root / "policy.toml"
        path.write_text('version = 1\nallow_root = true\nrecordings = ["/**"]\n[[allow]]\nprogram = "/**"\n')
        path.chmod(0o644)
        return ["--policy", str(path)]

    def start(self, name: str, command: list[str]) -> None:
        """Start a process whose output goes to its log."""
        log = (self.root / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """``kill -9`` of the process and of all it started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        """SIGTERM; the exit status."""
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(timeout=90)

    def assay(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The command line against this server."""
        environment = {
            **os.environ,
            "ASSAY_SERVER": self.address,
            "ASSAY_CREDENTIALS": str(self.root / "logins"),
        }
        result = subprocess.run(
            [str(BIN / "assay"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and result.returncode:
            raise AssertionError(f"assay {arguments} ended with {result.returncode}: {result.stderr}")
        return result

    def client(self) -> Client:
        """For what the command line does, too: each process of it takes half a second of the processor."""
        os.environ["ASSAY_CREDENTIALS"] = str(self.root / "logins")
        return Client(self.address)

    def submit(self, campaign: Path) -> str:
        with self.client() as client:
            return client.submit(campaign)

    def state(self, campaign_id: str) -> str:
        """The campaign's state; "unreachable" where the server is down, which some tests are about."""
        try:
            with self.client() as client:
                state: str = client.status(campaign_id)["state"]
        except ServerUnreachableError:
            return "unreachable"
        return state

    def wait_for(self, campaign_id: str, seconds: float = 90.0) -> str:
        """Wait until the campaign has ended; its last state.

        One channel asks as long as the server answers: a new one each time is work for both.
        """
        ended = ("done", "failed", "cancelled")
        last = ""
        clients: list[Client] = []

        def has_ended() -> bool:
            nonlocal last
            try:
                if not clients:
                    clients.append(self.client())
                last = clients[0].summary(campaign_id)["state"]
            except ServerUnreachableError:
                last = "unreachable"
                while clients:
                    clients.pop().close()
            return last in ended

        try:
            wait_until(has_ended, f"the end of {campaign_id}", seconds, pause_seconds=ASK_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; last state {last!r}\n{self.logs()}") from None
        finally:
            for client in clients:
                client.close()
        return last

    def report(self, campaign_id: str) -> dict[str, Any]:
        with self.client() as client:
            document: dict[str, Any] = json.loads(client.report_bytes(campaign_id, "json"))
        return document

    def store_digest(self) -> dict[str, str]:
        """Content hash of every published file, by path below the store."""
        records = self.server_state / "records"
        return {
            str(p.relative_to(records)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(records.rglob("*"))
            if p.is_file()
        }

    def logs(self, characters: int = 3000) -> str:
        return "\n".join(
            f"--- {p.name}\n{p.read_text(errors='replace')[-characters:]}" for p in self.root.glob("*.log")
        )


@contextlib.contextmanager
def lab(
    listen: str = "unix",
    *,
    lease_ms: int = LEASE_MS,
    heartbeat_ms: int = HEARTBEAT_MS,
    certificate_validity: str = "24h",
) -> Iterator[Lab]:
    """A lab in a directory of its own; ``listen`` is "unix", or "tcp" for mutual TLS."""
    # Unix socket paths are limited to about 100 bytes: pytest's own directories are too deep.
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        root = Path(directory)
        address = f"unix:{root / 'socket'}" if listen == "unix" else "127.0.0.1:0"
        made = Lab(
            root,
            address,
            lease_ms=lease_ms,
            heartbeat_ms=heartbeat_ms,
            certificate_validity=certificate_validity,
        )
        (root / "server").mkdir()
        try:
            yield made
        finally:
            for name in list(made.processes):
                made.kill(name)
