"""What a site runs beside Assay on loopback: PostgreSQL, HAProxy, SeaweedFS and Dask."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.laboratory import LabError
from tests.chaos.site.needed import haproxy, weed
from tests.services.postgresql import programs

DATABASE = "assay"
BUCKET = "records"
ACCESS_KEY, SECRET_KEY = "assay", "assay-secret"
_OWNER = "postgres"
# A new segment of the log every two seconds, of one megabyte: a full disk is noticed soon.
_SMALL_LOGS, _NEW_LOGS = "--wal-segsize=1", {"wal_recycle": "off", "archive_timeout": "2s"}


def free_ports(count: int) -> list[int]:
    """Different ports that are free now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@dataclass(frozen=True)
class Database:
    """A PostgreSQL that runs in the foreground, so that it can be killed like every other program."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://{DATABASE}@127.0.0.1:{self.port}/{DATABASE}"

    def make(self) -> None:
        """Make its files, with a database that is ready for Assay."""
        self.folder.mkdir(mode=0o700)
        if not os.geteuid():
            shutil.chown(self.folder, _OWNER)
        options = ("-A", "trust", "-U", DATABASE, "--encoding=UTF8", "--locale=C", _SMALL_LOGS)
        _done([*self._program("initdb"), "-D", str(self.folder / "data"), *options])
        single = [*self._program("postgres"), "--single", "-D", str(self.folder / "data"), "postgres"]
        _done(single, f"CREATE DATABASE {DATABASE}\n")

    def command(self) -> list[str]:
        """Runs it until it is signalled."""
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder,
            "shared_buffers": "32MB", "max_connections": 60, **_NEW_LOGS,
        }  # fmt: skip
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*self._program("postgres"), "-D", str(self.folder / "data"), *options]

    def forget_the_dead(self) -> None:
        """Remove the note of a killed process, whose number another one may have by now."""
        # A disk that has failed keeps it, and PostgreSQL does not start there.
        with contextlib.suppress(OSError):
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def _program(self, name: str) -> list[str]:
        found = programs()
        assert found is not None
        # runuser would stay between, and a kill would hit it instead.
        other_user = ("setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--clear-groups")
        return [*(() if os.geteuid() else other_user), str(found / name)]


@dataclass(frozen=True)
class Bucket:
    """SeaweedFS with its S3 gateway; ``ports``: of master, volumes, filer, S3."""

    folder: Path
    ports: tuple[int, int, int, int]

    @property
    def port(self) -> int:
        """Of the S3 gateway."""
        return self.ports[3]

    def make(self) -> None:
        """Make its folder, and who may use it."""
        (self.folder / "data").mkdir(mode=0o700, parents=True)
        key = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        who = {
            "name": "assay",
            "credentials": [key],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [who]}))

    def command(self) -> list[str]:
        """Runs it; a short election, or a restart takes twenty seconds."""
        master, volumes, filer, gateway = self.ports
        return [
            weed(), "-logtostderr", "server", "-master.telemetry=false", "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1", f"-dir={self.folder / 'data'}",
            f"-master.port={master}", f"-master.port.grpc={self._grpc(master)}",
            f"-volume.port={volumes}", f"-volume.port.grpc={self._grpc(volumes)}",
            "-filer", f"-filer.port={filer}", f"-filer.port.grpc={self._grpc(filer)}",
            "-s3", f"-s3.port={gateway}", f"-s3.port.grpc={self._grpc(gateway)}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
            f"-s3.config={self.folder / 's3.json'}", "-master.volumeSizeLimitMB=256", "-volume.max=40",
            "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        ]  # fmt: skip

    @staticmethod
    def _grpc(port: int) -> int:
        """Where the same part speaks gRPC: SeaweedFS's own rule, kept below the end of ports."""
        return port + 10_000 if port < 55_000 else port - 10_000


def balancer_command(folder: Path, ports: Sequence[int], hosts: Sequence[str]) -> list[str]:
    """HAProxy in TCP mode, which spreads ports of 127.0.0.1 over the same ports of the servers' addresses."""
    lines = [
        "global", "  maxconn 4000", "defaults", "  mode tcp", "  timeout connect 2s", "  timeout client 1h",
        "  timeout server 1h", "  timeout check 2s", "  option redispatch", "  retries 3",
    ]  # fmt: skip
    for port in ports:
        lines += [f"listen at-{port}", f"  bind 127.0.0.1:{port}", "  balance roundrobin"]
        handshake = (
            f"check port {ports[-1]} check-ssl verify none"  # TCP alone would find one that stands still
        )
        check = f"{handshake} inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions"
        lines += [f"  server s{n} {host}:{port} {check}" for n, host in enumerate(hosts, 1)]
    path = folder / "haproxy.cfg"
    path.write_text("\n".join([*lines, ""]))
    return [haproxy(), "-db", "-f", str(path)]


def scheduler_command(port: int) -> list[str]:
    """Dask's scheduler."""
    module = "distributed.cli.dask_scheduler"
    return [sys.executable, "-m", module, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]


def worker_command(port: int, folder: Path) -> list[str]:
    """A Dask worker of one process, without a nanny: who keeps programs running starts it again."""
    return [
        sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", "--no-nanny",
        "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--local-directory", str(folder),
    ]  # fmt: skip


def _done(command: Sequence[str], said: str = "") -> None:
    done = subprocess.run(command, input=said, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise LabError(f"{command[-1]}: {done.stderr[-1000:]}")
