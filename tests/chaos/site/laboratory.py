"""A lab whose server is a site: one that is active and one that stands by, behind a balancer, on one
database, one bucket and one Dask."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.request import Request, urlopen

import grpc
import psycopg
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay_client.api import Client
from assay_sampling.errors import AssayError
from tests.chaos.faults.seam import Whom
from tests.chaos.interposing import Meddling, built
from tests.chaos.laboratory import BIN, LEASE_SECONDS, REPORT_FORMS, LabError, Laboratory, waited
from tests.chaos.needs import Need
from tests.chaos.programs import Program
from tests.chaos.site.gate import Gate
from tests.chaos.site.services import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    Bucket,
    Database,
    balancer_command,
    free_ports,
    scheduler_command,
    worker_command,
)
from tests.chaos.work import Size
from tests.support.machine.disks import Disk
from tests.support.machine.failing_device import FailingDevice, failing_disk

T = TypeVar("T")

SERVERS = ("server-1", "server-2")
WORKERS = ("worker-1", "worker-2")
# Their ports are the balancer's, so that whoever joins through it finds the site.
HOSTS = {"server-1": "127.0.0.2", "server-2": "127.0.0.3"}
DATABASE, STORE, BALANCER, SCHEDULER = "database", "bucket", "balancer", "scheduler"
SERVICES: Mapping[Whom, Sequence[str]] = {
    Whom.SERVER: SERVERS,
    Whom.DATABASE: (DATABASE,),
    Whom.BUCKET: (STORE,),
    Whom.BALANCER: (BALANCER,),
    Whom.SCHEDULER: (SCHEDULER,),
    Whom.WORKERS: WORKERS,
}
_HEARTBEAT_MS = 700
_DISK_MIB = 2 << 10  # of each service: a file with holes
_START_SECONDS = 90.0


class SiteLaboratory(Laboratory):
    """A site in a folder; :func:`site_laboratory` makes one and ends it."""

    def make_services(self, kept: contextlib.ExitStack) -> None:
        root = self.root
        database_folder = Path(tempfile.mkdtemp(prefix="chaos-database-", dir="/tmp"))
        kept.callback(shutil.rmtree, database_folder, ignore_errors=True)
        database_folder.chmod(0o755)
        ports = free_ports(8)
        for name, folder, sort in (
            (DATABASE, database_folder / "disk", failing_disk),
            # SeaweedFS answers before its disk has an object, and then a lost disk would lose records.
            (STORE, root / STORE, partial(failing_disk, synchronous=True)),
            *((name, root / name, failing_disk) for name in SERVERS),
        ):
            self._mount(name, folder, sort, kept)
        self.database = Database(database_folder / "disk" / "cluster", ports[0])
        self.bucket = Bucket(root / STORE, (ports[1], ports[2], ports[3], ports[4]))
        self._agents_port, self._join_port, self._scheduler_port = ports[5:8]
        self.database.make()
        self.bucket.make()
        self.gate = Gate(self.bucket.port)
        kept.callback(self.gate.close)
        self._key = root / "bucket.key"
        self._key.touch(mode=0o600)
        self._key.write_text(f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
        self._add(
            DATABASE, self.database.command, before_start=self.database.forget_the_dead,
            meddling=self._meddling_with_the_database(database_folder),
        )  # fmt: skip
        self._add(STORE, self.bucket.command)
        self._add(SCHEDULER, lambda: scheduler_command(self._scheduler_port))
        for name in WORKERS:
            (root / name).mkdir()
            self._add(name, lambda name=name: worker_command(self._scheduler_port, root / name))  # type: ignore[misc]
        ports_of_servers = (self._agents_port, self._join_port)
        self._add(BALANCER, lambda: balancer_command(root, ports_of_servers, [*HOSTS.values()]))
        kept.callback(self._end_services)
        self._start_what_servers_need()
        self._prepare_servers()
        for name in SERVERS:
            self.services[name] = Program(
                name, lambda name=name: self._command_of(name), root / f"{name}.log",  # type: ignore[misc]
                self.meddling(name, self.state_of(name)),
            )  # fmt: skip
            self.servers.append(name)

    def _mount(
        self, name: str, folder: Path, sort: Callable[[Path, int], Disk | None], kept: contextlib.ExitStack
    ) -> None:
        """Make the folder of a service, with a disk of its own where one may be mounted."""
        folder.mkdir()
        disk = sort(folder, _DISK_MIB)
        if disk is not None:
            kept.callback(disk.close)
            self.disks[name] = disk

    def _meddling_with_the_database(self, folder: Path) -> Meddling:
        """Makes its calls fail where its disk cannot; PostgreSQL's user must reach the library."""
        library = None
        if not isinstance(self.disks.get(DATABASE), FailingDevice):
            library = built(folder)
        control = folder / "control"
        meddling = Meddling(library, control, self.database.folder)
        control.chmod(0o666)
        return meddling

    @property
    def offers(self) -> frozenset[Need]:
        breaking = [self.disks.get(name) for name in (DATABASE, STORE, *SERVERS)]
        found = {
            Need.FAILING_DEVICES: all(isinstance(disk, FailingDevice) for disk in breaking),
            Need.DATABASE_CALLS: self.services[DATABASE].meddling.works,
            Need.BUCKET_DISK: STORE in self.disks,
        }
        return super().offers | {need for need, is_there in found.items() if is_there}

    def _add(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        before_start: Callable[[], None] = lambda: None,
        meddling: Meddling | None = None,
    ) -> None:
        meddling = meddling or Meddling(None, self.root / f"{name}.control", self.root)
        log = self.root / f"{name}.log"
        self.services[name] = Program(name, command, log, meddling, before_start=before_start)

    def _end_services(self) -> None:
        for service in reversed(self.services.values()):
            service.end()

    def _start_what_servers_need(self) -> None:
        for name in (DATABASE, STORE):
            self.services[name].start()
            self.wait_until_well(name)
        self._make_bucket()

    def _make_bucket(self) -> None:
        """SeaweedFS makes a bucket by a plain PUT, which its filer takes without a signature."""
        filer = self.bucket.ports[2]
        put = Request(f"http://127.0.0.1:{filer}/buckets/{BUCKET}/", method="POST")
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                with urlopen(put, timeout=10):
                    return
            except OSError as error:
                if time.monotonic() > until:
                    raise LabError(f"the bucket cannot be made: {error}") from error
                time.sleep(0.2)

    def _prepare_servers(self) -> None:
        """One authority for both servers: docs/scale.md, "A standby"."""
        first, second = (self.state_of(name) for name in SERVERS)
        for state in (first, second):
            state.mkdir(mode=0o700, parents=True)
        self.command_done("assay-server", "init", "--state", str(first))
        shutil.copytree(first / "authority", second / "authority")

    def state_of(self, name: str) -> Path:
        """The state folder of a server."""
        return self.root / name / "state"

    def _command_of(self, name: str) -> list[str]:
        host = HOSTS[name]
        return [
            str(BIN / "assay-server"), "--state", str(self.state_of(name)), "--listen", self._socket(name),
            "--listen", f"{host}:{self._agents_port}", "--join", f"{host}:{self._join_port}",
            "--certificate-validity", "6m",
            "--database", self.database.url, "--records", f"s3://{BUCKET}/site",
            "--records-endpoint", f"http://127.0.0.1:{self.gate.port}",
            "--records-credentials", str(self._key), "--analysis", f"dask://127.0.0.1:{self._scheduler_port}",
            "--lease", f"{LEASE_SECONDS:g}s", "--heartbeat", f"{_HEARTBEAT_MS}ms", "--retry-delay", "200ms",
        ]  # fmt: skip

    def _socket(self, name: str) -> str:
        return f"unix:{self.root}/{name}.socket"

    @property
    def agents_port(self) -> int:
        return self._agents_port

    @property
    def join_port(self) -> int:
        return self._join_port

    def wait_for_server(self, seconds: float = _START_SECONDS) -> None:
        for name in SERVERS:
            self._wait_for(name, seconds)

    def wait_until_well(self, target: str) -> None:
        self._wait_for(target, _START_SECONDS)

    def _wait_for(self, name: str, seconds: float) -> None:
        if not waited(lambda: self._works(name), seconds):
            raise LabError(f"{name} does not work: {self.services[name].said()[-2000:]}")

    def _works(self, name: str) -> bool:
        if not self.services[name].pid:
            return False
        if name in SERVERS:
            is_led = any(_answers(self._socket(each)) for each in SERVERS)
            return is_led and _is_probed(self._socket(name))
        if name in WORKERS:
            return True
        port = {
            DATABASE: self.database.port, STORE: self.bucket.port, BALANCER: self._agents_port,
            SCHEDULER: self._scheduler_port,
        }[name]  # fmt: skip
        return _listens(port) and (name != DATABASE or self._takes_queries())

    def _takes_queries(self) -> bool:
        try:
            with psycopg.connect(self.database.url, connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.Error:
            return False

    def ask(self, question: Callable[[Client], T], seconds: float = 120.0) -> T:
        """Ask one server and then the other, until the active one answers."""
        until, sockets = time.monotonic() + seconds, [self._socket(name) for name in SERVERS]
        while True:
            try:
                with Client(sockets[0]) as client:
                    return question(client)
            except AssayError as error:
                if time.monotonic() > until:
                    raise LabError(f"no server answers: {error}") from error
            sockets.reverse()
            time.sleep(0.2)

    def records(self, campaigns: Sequence[str]) -> Path:
        folder = self.root / "fetched"
        for campaign_id in campaigns:
            self._fetched(campaign_id, folder / campaign_id)
        flat = self.root / "records"
        flat.mkdir()
        for path in folder.glob("*/records/*"):
            path.rename(flat / path.name)
        return flat

    def _fetched(self, campaign_id: str, target: Path) -> None:
        until, sockets = time.monotonic() + 120, [self._socket(name) for name in SERVERS]
        while True:
            done = self.command(
                "assay", "lab", "fetch", campaign_id, "-o", str(target), "--server", sockets[0]
            )
            if not done.returncode:
                return
            if time.monotonic() > until:
                raise LabError(f"{campaign_id} cannot be fetched: {done.stderr}")
            sockets.reverse()
            time.sleep(1)

    def attempts(self, campaign_id: str) -> list[tuple[str, str]]:
        query = (
            "SELECT a.state, a.failure FROM attempts a JOIN runs r USING (run_id) WHERE r.campaign_id = %s"
        )
        with psycopg.connect(self.database.url) as connection:
            rows = connection.execute(query, (campaign_id,)).fetchall()
        return [(state, failure["failure_class"] if failure else "") for state, failure in rows]

    def reports(self, campaign_id: str) -> dict[str, bytes]:
        return {
            form: self.ask(lambda owner, form=form: owner.report_bytes(campaign_id, form))  # type: ignore[misc]
            for form in REPORT_FORMS
        }


def _answers(address: str) -> bool:
    try:
        with Client(address) as client:
            client.overview()
    except AssayError:
        return False
    return True


def _is_probed(address: str) -> bool:
    """Whether a server is there for probes, active or standing by."""
    with grpc.insecure_channel(address) as channel:
        try:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return not probe.connect_ex(("127.0.0.1", port))


@contextlib.contextmanager
def site_laboratory(
    root: Path, size: Size, seed: int, *, kept: contextlib.ExitStack
) -> Iterator[SiteLaboratory]:
    """A site in a new folder with a short path."""
    root.mkdir(mode=0o700)
    made = SiteLaboratory(root, size, (), (), kept)
    try:
        made.begin(size, seed)
        yield made
    finally:
        made.close()
