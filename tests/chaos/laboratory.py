"""The lab: a server and several agents as processes, mutual TLS between them, each agent behind a wire."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from assay_client.api import Client
from assay_core.identity.credentials import CredentialsFolder
from assay_sampling.errors import AssayError
from assay_server.store.sqlite import SqliteStore
from tests.chaos.interposing import Meddling, built
from tests.chaos.needs import Need
from tests.chaos.programs import Keeper, Program
from tests.chaos.repeating_agent import VARIABLE, RepeatControl
from tests.chaos.wire import Wire
from tests.chaos.work import Size
from tests.support.machine.disks import Disk, mounted_disk
from tests.support.machine.packet_wires import PacketWire, packet_wires

T = TypeVar("T")

BIN = Path(sys.executable).parent
LEASE_SECONDS = 5.0
REPORT_FORMS = ("json", "html")
_HEARTBEAT_MS = 700
# Certificates of so long are renewed a few times in the long form.
_VALIDITY = "6m"
_DISK_MIB = 96
# A file with holes: it takes of the machine what the server writes.
_SERVER_DISK_MIB = 6 << 10
_POLICY = """\
version = 1
allow_root = true
recordings = ["/**"]
directories = ["/**"]
[[allow]]
program = "/**"
"""


class LabError(Exception):
    """The lab itself does not work, so that nothing can be said about Assay."""


def waited(condition: Callable[[], T], seconds: float) -> T:
    """Poll until the condition is true or the time is over; its last value."""
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


@dataclass
class Box:
    """One agent: its program, its wire, and the disk of its state."""

    name: str
    state: Path
    program: Program
    wire: Wire
    repeats: RepeatControl
    disk: Disk | None  # below its state, where one may be mounted
    packets: PacketWire | None  # below its wire, where the machine allows one

    @property
    def credentials(self) -> CredentialsFolder:
        return CredentialsFolder(self.state / "credentials")

    @property
    def serial(self) -> str:
        """Of its present certificate; "" before it has joined."""
        found = self.credentials.read()
        return found.identity.serial if found is not None else ""

    @property
    def is_registered(self) -> bool:
        """Whether its present process has registered with the server."""
        return "registered with" in self.program.said(self.program.started_at_byte)


class Laboratory:
    """A lab in a folder; :func:`laboratory` makes one and ends it."""

    def __init__(
        self,
        root: Path,
        size: Size,
        server_module: tuple[str, ...],
        packets: Sequence[PacketWire],
        kept: contextlib.ExitStack,
    ) -> None:
        self.root = root
        self._packets = packets
        self.size = size
        self.state = root / "server" / "state"
        self.owner = f"unix:{root}/socket"
        self.passphrase = root / "passphrase"
        self.passphrase.write_text("correct horse\n")
        # Held by a fault of the server, and by whoever needs the server meanwhile.
        self.server_lock = threading.RLock()
        self.tool_kills: dict[str, int] = {}  # by slice
        self._library = built(root)
        self._server_module = server_module
        self._ports: dict[str, int] = {"address": 0, "join-address": 0}
        (root / "policy.toml").write_text(_POLICY)
        (root / "policy.toml").chmod(0o644)
        self._keeper: Keeper | None = None
        self.disks: dict[str, Disk] = {}  # of services, where they may be mounted
        self.boxes: dict[str, Box] = {}
        # What the agents talk to, in the order of its start; the servers are among it.
        self.services: dict[str, Program] = {}
        self.servers: list[str] = []
        self.make_services(kept)

    def make_services(self, kept: contextlib.ExitStack) -> None:
        """Fill :attr:`services` and :attr:`servers`; none of them is started."""
        disk = _disk_in(self.root / "server", _SERVER_DISK_MIB, only_failing=True)
        if disk is not None:
            kept.callback(disk.close)
            self.disks["server"] = disk
        self.command_done("assay-server", "init", "--state", str(self.state))
        self.services["server"] = Program(
            "server", self._server_command, self.root / "server.log", self.meddling("server", self.state),
            before_start=self._forget_addresses,
        )  # fmt: skip
        self.servers.append("server")

    def meddling(self, name: str, folder: Path) -> Meddling:
        """What makes calls of a program on files of a folder fail."""
        return Meddling(self._library, self.root / f"{name}.control", folder)

    def begin(self, size: Size, seed: int) -> None:
        """Start the server, have the agents join, and start them; from now on all are kept running."""
        for service in self.services.values():
            service.start()
        self._keeper = Keeper([*self.services.values()])
        self.wait_for_server()
        for number in range(size.agents):
            self.boxes[f"box-{number}"] = self._box(number, seed)
        with ThreadPoolExecutor(size.agents) as pool:
            list(pool.map(self._joined, self.boxes.values()))
        self._keeper.keep_too([box.program for box in self.boxes.values()])

    def close(self) -> None:
        """End all processes."""
        if self._keeper is not None:
            self._keeper.close()
        for box in self.boxes.values():
            box.program.end()
            box.wire.close()
            if box.disk is not None:
                box.disk.close()
        for service in reversed(self.services.values()):
            service.end()

    @property
    def agents_port(self) -> int:
        """Where agents reach the server."""
        return self._ports["address"]

    @property
    def join_port(self) -> int:
        """Where boxes join."""
        return self._ports["join-address"]

    def program(self, target: str) -> Program:
        """The program of a service, "server" for one, or of a box."""
        return self.services[target] if target in self.services else self.boxes[target].program

    def said_by_servers(self, since: Sequence[int]) -> str:
        """What the servers have logged since :meth:`logged_by_servers` had these lengths."""
        logs = (self.services[name].said(begin) for name, begin in zip(self.servers, since, strict=True))
        return "\n".join(logs)

    def logged_by_servers(self) -> list[int]:
        """How long the logs of the servers are, in bytes."""
        return [self.services[name].log_bytes for name in self.servers]

    def disk_of(self, target: str) -> Disk | None:
        """The disk below the state of a service or of a box."""
        return self.disks.get(target) if target in self.services else self.boxes[target].disk

    @property
    def offers(self) -> frozenset[Need]:
        """What the machine lets this lab do."""
        disks = [box.disk for box in self.boxes.values()]
        with_servers = [*(self.disks.get(name) for name in self.servers), *disks]
        found = {
            Need.PACKETS: all(box.packets is not None for box in self.boxes.values()),
            Need.DISKS: all(disk is not None for disk in disks),
            Need.FAILING_DISKS: all(disk is not None and disk.fails for disk in with_servers),
        }
        return frozenset(need for need, is_there in found.items() if is_there)

    # The server.

    def _server_command(self) -> list[str]:
        return [
            *self._server_module, "--state", str(self.state), "--listen", self.owner,
            "--listen", f"127.0.0.1:{self._ports['address']}",
            "--join", f"127.0.0.1:{self._ports['join-address']}",
            "--lease", f"{LEASE_SECONDS:g}s", "--heartbeat", f"{_HEARTBEAT_MS}ms",
            "--certificate-validity", _VALIDITY, "--retry-delay", "200ms",
        ]  # fmt: skip

    def _forget_addresses(self) -> None:
        for name in self._ports:
            # A disk that has failed keeps them; the server that starts there fails, too.
            with contextlib.suppress(OSError):
                (self.state / name).unlink(missing_ok=True)

    def wait_for_server(self, seconds: float = 60.0) -> None:
        """Wait until it listens."""
        found = waited(self._ports_it_says, seconds)
        if not found:
            raise LabError(f"the server does not start: {self.services['server'].said()[-2000:]}")
        self._ports = found

    def wait_until_well(self, target: str) -> None:
        """Wait until a service works."""
        assert target in self.services
        self.wait_for_server()

    def _ports_it_says(self) -> dict[str, int]:
        """Where the server says that it listens; empty while it starts, or starts again."""
        try:
            texts = {name: (self.state / name).read_text() for name in self._ports}
        except OSError:
            return {}
        tcp = {
            name: [each for each in text.split() if not each.startswith("unix:")]
            for name, text in texts.items()
        }
        return (
            {name: int(each[0].rpartition(":")[2]) for name, each in tcp.items()} if all(tcp.values()) else {}
        )

    def ask(self, question: Callable[[Client], T], seconds: float = 120.0) -> T:
        """Ask the server as its owner, again until it answers."""
        until = time.monotonic() + seconds
        while True:
            try:
                with Client(self.owner) as client:
                    return question(client)
            except AssayError as error:
                if time.monotonic() > until:
                    raise LabError(f"the server does not answer: {error}") from error
            time.sleep(0.2)

    # The agents.

    def _box(self, number: int, seed: int) -> Box:
        name = f"box-{number}"
        disk = _disk_in(self.root / name, _DISK_MIB)
        state = self.root / name / "state"
        state.mkdir(mode=0o700)
        packets = self._packets[number] if self._packets else None
        host, inside = (packets.near_address, packets.at_far_end) if packets else ("127.0.0.1", ())
        wire = Wire(self.agents_port, seed + number, host)
        repeats = self.root / f"{name}.repeats"
        control = RepeatControl(repeats)
        command = [
            *inside, sys.executable, "-m", "tests.chaos.repeating_agent", "run", "--server", wire.address,
            "--state", str(state), "--name", name, "--policy", str(self.root / "policy.toml"),
            "--recorded-slots", str(self.size.slots), "--installed-gpus", "false",
            "--spool-limit", f"{_DISK_MIB // 3}MiB", "--minimum-free", "4MiB", "--flush", "700ms",
            *(["--virtual", "V100"] if self.size.live_runs else []),
        ]  # fmt: skip
        meddling = self.meddling(name, state)
        log = self.root / f"{name}.log"
        log.touch()
        program = Program(name, lambda: command, log, meddling, environment={VARIABLE: str(repeats)})
        return Box(name, state, program, wire, control, disk, packets)

    def _joined(self, box: Box) -> None:
        self.join(box)
        box.program.start()

    def join(self, box: Box) -> None:
        """Have an agent join, for the first time or again."""
        made = self.ask(lambda owner: owner.make_token("agent", ""))
        join_address = f"127.0.0.1:{self.join_port}"
        self.command_done(
            "assay-agent", "join", join_address, "--token", str(made["token"]), "--state", str(box.state),
            "--name", box.name,
        )  # fmt: skip

    def command_done(self, program: str, *arguments: str) -> str:
        """Run one of our programs; its standard output. Raises LabError if it fails."""
        done = self.command(program, *arguments)
        if done.returncode:
            raise LabError(f"{program} {arguments[0]} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def command(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of our programs to its end."""
        return subprocess.run(
            [str(BIN / program), *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    # Campaigns.

    def submit(self, file: Path) -> str:
        """Submit a campaign; its id."""
        return self.ask(lambda owner: owner.submit(file))

    def summary(self, campaign_id: str) -> dict[str, Any]:
        """How far a campaign is."""
        return self.ask(lambda owner: owner.summary(campaign_id))

    def records(self, campaigns: Sequence[str]) -> Path:
        """A folder with the published records of campaigns, a folder for each run."""
        return self.state / "records"

    def attempts(self, campaign_id: str) -> list[tuple[str, str]]:
        """Of each attempt of a campaign its state, and the class of its failure; "" without one."""
        store = SqliteStore(self.state / "metadata.sqlite")
        try:
            with store.snapshot() as read:
                found = [each for run in read.runs(campaign_id) for each in read.attempts(run.run_id)]
        finally:
            store.close()
        return [(str(each.state), each.failure.failure_class if each.failure else "") for each in found]

    def reports(self, campaign_id: str) -> dict[str, bytes]:
        """A campaign's report, by its forms."""
        folder = self.state / "reports" / campaign_id
        return {form: (folder / f"report.{form}").read_bytes() for form in REPORT_FORMS}

    def logs(self, characters: int = 3000) -> str:
        """The last lines of every program."""
        parts = (
            f"--- {p.name}\n{p.read_text(errors='replace')[-characters:]}" for p in self.root.glob("*.log")
        )
        return "\n".join(parts)


def _disk_in(folder: Path, mebibytes: int, *, only_failing: bool = False) -> Disk | None:
    """Make a folder, with a disk of its own where one may be mounted."""
    folder.mkdir(mode=0o700)
    disk = mounted_disk(folder, mebibytes)
    if disk is not None and only_failing and not disk.fails:
        disk.close()
        return None
    return disk


@contextlib.contextmanager
def laboratory(
    root: Path,
    size: Size,
    seed: int,
    server_module: tuple[str, ...],
    *,
    with_packets: bool,
    kept: contextlib.ExitStack,
) -> Iterator[Laboratory]:
    """A lab in a new folder, which must be short: Unix sockets have paths of at most 100 bytes.

    Args:
        with_packets: each agent is at the far end of a packet wire; raises NoWiresError.
        kept: the server's state stays readable until this is closed.
    """
    root.mkdir(mode=0o700)
    with contextlib.ExitStack() as held:
        packets: Sequence[PacketWire] = ()
        if with_packets:
            packets = held.enter_context(packet_wires(size.agents, seed, own_network=False)).wires
        made = Laboratory(root, size, server_module, packets, kept)
        try:
            made.begin(size, seed)
            yield made
        finally:
            made.close()
