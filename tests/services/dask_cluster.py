"""A Dask scheduler and two workers of this machine, as processes on loopback, with TLS or without."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from assay_server.places import AnalysisPlace, analysis_place

_ROOT = Path(__file__).parents[2]
_SECONDS = 90.0


@dataclass(frozen=True)
class TlsFiles:
    """The files that every part of a cluster shows."""

    ca: Path
    certificate: Path
    key: Path


class OwnDask:
    """A cluster that lives as long as the block."""

    def __init__(self, tls: TlsFiles | None = None, workers: int = 2, options: Sequence[str] = ()) -> None:
        self._tls, self._workers, self._options = tls, workers, options
        self._folder = Path(tempfile.mkdtemp(prefix="assay-dask-"))
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._nanny: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def place(self) -> AnalysisPlace:
        """Where a server finds it."""
        scheme = "dask" if self._tls is None else "dask+tls"
        files = (None,) * 3 if self._tls is None else (self._tls.ca, self._tls.certificate, self._tls.key)
        found = analysis_place(f"{scheme}://127.0.0.1:{self._port}", *files)
        assert found is not None
        return found

    def __enter__(self) -> Self:
        try:
            self.start_scheduler()
            self.start_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def start_scheduler(self) -> None:
        """Start the scheduler; later ones listen where the first did."""
        told = self._folder / "scheduler.json"
        told.unlink(missing_ok=True)
        options = ("--host", "127.0.0.1", "--port", str(self._port), "--scheduler-file", str(told))
        self._scheduler = self._run("dask_scheduler", *options)
        # The file is there before its text is.
        self._wait(lambda: told.exists() and told.read_text().rstrip().endswith("}"), "the scheduler's start")
        self._port = int(json.loads(told.read_text())["address"].rpartition(":")[2])

    def start_workers(self) -> None:
        """Start the workers under a nanny; they find the scheduler when it is there."""
        folder = ("--local-directory", str(self._folder / "workers"))
        count = ("--name", "made", "--nthreads", "1", "--nworkers", str(self._workers))
        self._nanny = self._run("dask_worker", self.place.address, *count, *folder, *self._options)

    def kill_scheduler(self) -> None:
        """Kill -9 the scheduler; workers end with it."""
        _end([self._scheduler])

    def restart(self) -> None:
        """Start scheduler and workers again, as whatever looks after them would."""
        _end([self._nanny])
        self.start_scheduler()
        self.start_workers()

    def stop(self) -> None:
        """End every process of it."""
        _end([self._nanny, self._scheduler])
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        files = self._tls
        secure = (
            () if files is None
            else ("--tls-ca-file", str(files.ca), "--tls-cert", str(files.certificate),
                  "--tls-key", str(files.key), "--protocol", "tls")
        )  # fmt: skip
        command = (sys.executable, "-m", f"distributed.cli.{module}", *arguments, *secure, "--no-dashboard")
        # Workers import tasks of tests.
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
        with (self._folder / f"{module}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def _wait(self, condition: object, what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not condition():  # type: ignore[operator]
            logs = "".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))
            assert time.monotonic() < deadline, f"{what} took longer than {_SECONDS:g} s: {logs}"
            time.sleep(0.05)


def _end(started: Sequence[subprocess.Popen[bytes] | None]) -> None:
    for process in started:
        if process is None:
            continue
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
        process.wait()


def made_tls_files(folder: Path, name: str = "lab") -> TlsFiles:
    """An authority of its own and one certificate that it has signed, for every part of a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name} authority")])
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
        )
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    files = TlsFiles(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
    files.ca.write_bytes(signed(issuer, authority.public_key(), ca=True))
    files.certificate.write_bytes(signed(own, key.public_key(), ca=False))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
