"""``assay-server`` as a process that listens at every kind of address it knows."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import grpc
import httpx
import psutil

from assay_core.connecting.channel import mutual_channel
from assay_core.connecting.joining import join
from assay_core.health_probe import is_serving
from assay_core.identity.certificates import certificate_pem
from assay_core.identity.credentials import Credentials
from assay_core.identity.keys import key_pem, new_key
from assay_core.identity.roles import Role
from assay_core.records.identity import TokenAsked
from assay_core.server_address import parse_address
from assay_server.clock import wall_ms
from assay_server.identity.admission import make_token
from assay_server.identity.authority import Authority, write_authority
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.machine.strangers import allow_files
from tests.support.metrics import fetched

PROGRAM = str(Path(sys.executable).parent / "assay-server")


class OpenServer:
    """Over TCP: RPCs, joining, the live page and metrics, all with TLS; for its owner a socket.

    ``addresses``: HOST:PORT of ``rpc``, ``join``, ``page`` and ``metrics``.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.authority: Authority = made_authority()
        self.owner = f"unix:{folder}/owner.sock"
        self.log = folder / "server.log"
        self._folder, self._options = folder, options
        self._process: subprocess.Popen[str] | None = None
        self.addresses: dict[str, str] = {}
        write_authority(self.authority, folder / "state")
        self._write_metrics_files()

    def __enter__(self) -> OpenServer:
        # The limit of the unit in deploy/systemd is higher; a shell's own is often too low for any server.
        allow_files(16_384)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM, "--state", str(self._folder / "state"), "--json",
                    "--listen", "127.0.0.1:0", "--listen", self.owner, "--join", "127.0.0.1:0",
                    "--web", "0.0.0.0:0", "--web-name", "localhost",
                    "--metrics", "127.0.0.1:0", *self._metrics_options(), *self._options,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        told = json.loads(line)
        self.addresses = {
            "rpc": told["addresses"][0],
            "join": told["join"][0],
            "page": told["web"].replace("0.0.0.0", "127.0.0.1"),
            "metrics": told["metrics"],
        }
        return self

    def __exit__(self, *_error: object) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.communicate()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> str:
        """With what it ended, a signal by its name; "" while it runs."""
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            return ""
        return signal.Signals(-status).name if status < 0 else f"status {status}"

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def memory_mib(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 2**20

    def health_seconds(self, who: Credentials | None = None, patience_seconds: float = 10.0) -> float:
        """How long a new connection and a health check take; over TCP with credentials, else as the owner.

        Raises grpc.RpcError if nothing answers in time.
        """
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            if who is None:
                channel = grpc.insecure_channel(self.owner, options=[("grpc.use_local_subchannel_pool", 1)])
            else:
                channel = mutual_channel(parse_address(self.addresses["rpc"]), who, ())
            stack.enter_context(channel)
            assert is_serving(channel, patience_seconds, wait_for_ready=True)
        return time.monotonic() - began

    def page_status(self) -> int:
        """The HTTP status of the page on which browsers log in; raises httpx.HTTPError."""
        port = self.addresses["page"].rpartition(":")[2]
        answer = httpx.get(
            f"https://localhost:{port}/login", verify=self._context(), timeout=10, trust_env=False
        )
        return answer.status_code

    def metrics_status(self) -> int:
        """The HTTP status of the metrics, for a reader with a certificate; raises OSError."""
        context = self._context()
        context.load_cert_chain(self._folder / "reader.pem")
        return fetched(self.addresses["metrics"], tls=context)[0]

    def joined(self, name: str) -> Credentials:
        """A new viewer, who joins at the listener for joining."""
        store = SqliteStore(self._folder / "state" / "metadata.sqlite")
        try:
            with store.transaction() as transaction:
                token = make_token(transaction, self.authority, TokenAsked(Role.VIEWER, name), wall_ms())[0]
        finally:
            store.close()
        return join(self.addresses["join"], token, name=name)[0]

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pem.decode())

    def _write_metrics_files(self) -> None:
        (self._folder / "authority.pem").write_bytes(self.authority.pem)
        server, reader = new_key(), made_credentials(self.authority)
        certificate = self.authority.issue_for_hosts(server.public_key(), ["127.0.0.1"], DAY, now())
        (self._folder / "metrics.pem").write_bytes(certificate_pem(certificate))
        (self._folder / "metrics-key.pem").write_bytes(key_pem(server))
        (self._folder / "metrics-key.pem").chmod(0o600)
        (self._folder / "reader.pem").write_bytes(reader.key_pem + reader.certificate)

    def _metrics_options(self) -> list[str]:
        return [
            "--metrics-certificate", str(self._folder / "metrics.pem"),
            "--metrics-key", str(self._folder / "metrics-key.pem"),
            "--metrics-readers", str(self._folder / "authority.pem"),
        ]  # fmt: skip
