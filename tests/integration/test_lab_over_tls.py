"""A lab over mutual TLS with real processes: between two network namespaces as two hosts, or on one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_client.api import Client
from assay_core.files.launch_file import new_launch_file
from assay_core.identity.credentials import CredentialsFolder
from assay_sampling.launches.table import (
    BASELINE,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)
from assay_sampling.readers.opening import read_launches
from tests.chaos.interposing import Meddling, built
from tests.support.integration.harness import BIN, wait_until
from tests.support.machine.frames import PacketWeather
from tests.support.machine.packet_wires import NoWiresError, PacketWire, packet_wires

pytestmark = pytest.mark.processes

LAUNCHES, PLAYED_SECONDS = 400, 12.0
# Ten leases of the laboratory, in steps of a thirtieth of a lease.
APART_SECONDS, STEP_SECONDS = 600.0, 2.0
# Valid for as long before: renewed 13 s after it was issued, while the run is played; a restart of the server
# on a busy machine takes less than what is left then.
VALIDITY = "40s"
POLICY = 'version = 1\nallow_root = true\nrecordings = ["/**"]\n'


@dataclass
class Hosts:
    """Where server and members run: prefixes of their commands, and where the server listens."""

    address: str = "127.0.0.1"
    server: tuple[str, ...] = ()
    member: tuple[str, ...] = ()
    wire: PacketWire | None = None


@dataclass
class TlsLab:
    root: Path
    hosts: Hosts
    validity: str = VALIDITY
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    clocks: dict[str, Meddling] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return f"unix:{self.root}/socket"

    def start(self, name: str, prefix: tuple[str, ...], program: str, *arguments: str) -> None:
        clock = self.clocks.get(name)
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*prefix, str(BIN / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=None if clock is None else {**os.environ, **clock.environment},
            )

    def start_server(self, address: str = "", join: str = "") -> None:
        (self.root / "server" / "address").unlink(missing_ok=True)
        self.start(
            "server", self.hosts.server, "assay-server", "--state", str(self.root / "server"),
            "--listen", address or f"{self.hosts.address}:0", "--listen", self.owner,
            "--join", join or f"{self.hosts.address}:0", "--certificate-validity", self.validity,
            "--lease", "60s", "--heartbeat", "300ms",
        )  # fmt: skip
        wait_until((self.root / "server" / "address").exists, "the server's start")

    def said(self, file: str) -> str:
        return (self.root / "server" / file).read_text().split()[0]

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def ended(
        self, prefix: tuple[str, ...], program: str, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "ASSAY_CREDENTIALS": str(self.root / "logins")}
        return subprocess.run(
            [*prefix, str(BIN / program), *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def submit(self, name: str, played_seconds: float = PLAYED_SECONDS) -> str:
        """Have the person submit a campaign; its id."""
        file = campaign_file(self.root, name, played_seconds)
        done = self.ended(
            self.hosts.member, "assay", "lab", "submit", str(file), "--server", self.said("address"), "--json"
        )
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["campaign_id"])

    def status(self, campaign_id: str) -> dict[str, Any]:
        with Client(self.owner) as owner:
            return owner.status(campaign_id)


def campaign_file(folder: Path, name: str, played_seconds: float = PLAYED_SECONDS) -> Path:
    """A campaign of one recording that is played at its own pace."""
    recording = folder / f"{name}.parquet"
    write_recording(recording, played_seconds)
    file = folder / f"{name}.yaml"
    file.write_text(
        f"campaign: {name}\nsynthetic: true\nplayback: recorded_time\n"
        "analysis: {methods: [random]}\nworkloads:\n"
        f"  - {{name: w, recordings: [{{device: V100, light: {recording}}}]}}\n"
    )
    return file


def write_recording(path: Path, played_seconds: float) -> None:
    schema = launch_schema(TableMetadata(level="light", origin="synthetic", condition=BASELINE))
    names, launch = Names(), np.arange(LAUNCHES)
    columns = {
        "process": np.zeros(LAUNCHES, np.int32),
        "launch": launch,
        "kernel_id": np.full(LAUNCHES, names.intern("kernel(float*)"), np.uint64),
        "grid_x": np.full(LAUNCHES, 8),
        "block_x": np.full(LAUNCHES, 128),
        "start_ns": launch * int(played_seconds * 1e9 / LAUNCHES),
        "duration_ns": 500 + launch,
    }
    with new_launch_file(path, schema) as writer:
        writer.write(LaunchBatch(make_batch(schema, columns), dict(names.items())))


@contextlib.contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Two networks with a wire between them whose packets we carry; one host where they cannot be made."""
    with contextlib.ExitStack() as held:
        try:
            wires = held.enter_context(packet_wires(1, seed=1))
        except NoWiresError as error:
            warnings.warn(f"one host instead of two: {error}", stacklevel=2)
            yield Hosts()
            return
        [wire] = wires.wires
        yield Hosts(wire.near_address, wires.at_near_end, wire.at_far_end, wire)


@contextlib.contextmanager
def tls_lab(hosts: Hosts, validity: str = VALIDITY) -> Iterator[TlsLab]:
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = TlsLab(Path(folder), hosts, validity)
        try:
            yield made
        finally:
            for name in list(made.processes):
                made.end(name)


def token(laboratory: TlsLab, role: str, name: str = "") -> str:
    with Client(laboratory.owner) as owner:
        return str(owner.make_token(role, name)["token"])


def begin(laboratory: TlsLab) -> CredentialsFolder:
    """Make the lab, join its agent and log its person in; where the agent keeps its credentials."""
    root, member = laboratory.root, laboratory.hosts.member
    made = laboratory.ended((), "assay-server", "init", "--state", str(root / "server"))
    assert made.returncode == 0, made.stderr
    laboratory.start_server()
    join, agent = laboratory.said("join-address"), str(root / "agent")
    ticket = token(laboratory, "agent")
    joined = laboratory.ended(
        member, "assay-agent", "join", join, "--token", ticket, "--state", agent, "--name", "box"
    )
    assert joined.returncode == 0, joined.stderr
    replayed = laboratory.ended(
        member, "assay-agent", "join", join, "--token", ticket, "--state", str(root / "thief")
    )
    assert (replayed.returncode, "used as often as it may be" in replayed.stderr) == (11, True)
    (root / "policy.toml").write_text(POLICY)
    (root / "policy.toml").chmod(0o644)
    policy = ("--policy", str(root / "policy.toml"), "--virtual", "V100")
    laboratory.start("agent", member, "assay-agent", "run", "--state", agent, *policy)
    ticket = token(laboratory, "submitter", "alice")
    login = laboratory.ended(member, "assay", "lab", "login", join, "--token", ticket)
    assert login.returncode == 0, login.stderr
    return CredentialsFolder(root / "agent" / "credentials")


def serial(folder: CredentialsFolder) -> str:
    found = folder.read()
    assert found is not None
    return found.identity.serial


def check_done(laboratory: TlsLab, campaign_id: str) -> None:
    """The campaign ended well, in one attempt, with every launch of its recording."""
    check_launches(laboratory, campaign_id)
    [run] = laboratory.status(campaign_id)["runs"]
    assert run["attempts"] == 1


def check_launches(laboratory: TlsLab, campaign_id: str) -> None:
    """The campaign ended well, with every launch of its recording once."""
    what = f"the end of {campaign_id}"
    wait_until(lambda: laboratory.status(campaign_id)["state"] == "done", what, seconds=150)
    [run] = laboratory.status(campaign_id)["runs"]
    assert run["launches"] == LAUNCHES
    stored = read_launches(
        laboratory.root / "server" / "records" / f"{campaign_id}.0000" / "slice-00000.parquet"
    )
    assert stored.column("duration_ns").tolist() == list(range(500, 500 + LAUNCHES))


def check_revocation(laboratory: TlsLab) -> None:
    """A revoked agent gets nothing any more: what was submitted waits."""
    with Client(laboratory.owner) as owner:
        assert owner.revoke("box")["what"] == "identity"
        campaign_id = owner.submit(campaign_file(laboratory.root, "late"))
        wait_until(lambda: "its identity was revoked" in laboratory.log("agent"), "the refusal")
        assert {run["state"] for run in owner.status(campaign_id)["runs"]} == {"waiting"}


# Packets that are lost, doubled, overtaken and late while a run is measured: nothing of it shows in records.
BAD_WIRE = PacketWeather(0.03, 0.1, 0.1, delay_seconds=0.02, jitter_seconds=0.015)


def disturb(wire: PacketWire) -> None:
    """A bad wire until the end, on which nobody hears anything for a while, and then one side does not."""
    wire.set(PacketWeather(deaf_near=True, deaf_far=True))
    time.sleep(1.5)
    wire.set(PacketWeather(deaf_far=True))
    time.sleep(1.5)
    wire.set(BAD_WIRE)


def test_join_campaign_bad_wire_restart_renewal_and_revocation() -> None:
    """In one run: packets are lost (between two hosts), the server is killed, certificates are renewed."""
    with two_hosts() as hosts, tls_lab(hosts) as laboratory:
        folder = begin(laboratory)
        first = serial(folder)
        campaign_id = laboratory.submit("cut")
        wait_until(lambda: laboratory.status(campaign_id)["runs_running"] == 1, "the run's start")
        if hosts.wire is not None:
            disturb(hosts.wire)
        address, join = laboratory.said("address"), laboratory.said("join-address")
        laboratory.end("server")
        laboratory.start_server(address, join)
        check_done(laboratory, campaign_id)
        wait_until(lambda: serial(folder) != first, "the renewal")
        if hosts.wire is not None:
            counts = hosts.wire.counts
            assert min(counts.lost, counts.duplicated, counts.overtaken, counts.delayed, counts.unheard) > 0
        check_revocation(laboratory)


def set_up_clocks(laboratory: TlsLab) -> None:
    """Server and agent get clocks by which time can pass at once; skips where there is no C compiler."""
    library = built(laboratory.root)
    if library is None:
        pytest.skip("there is no C compiler, and time that passes at once needs a library")
    for name in ("server", "agent"):
        clock = Meddling(library, laboratory.root / f"{name}.clock", laboratory.root / "no-faults-of-disks")
        clock.let_pass(0)
        laboratory.clocks[name] = clock


def apart(laboratory: TlsLab, until: Callable[[], bool]) -> None:
    """Ten minutes pass in steps, and more until the condition holds.

    A server to which much passes at once takes it that it was stopped, and begins every lease again.
    """
    passed = 0.0

    def step() -> bool:
        nonlocal passed
        for clock in laboratory.clocks.values():  # within microseconds: both hosts' clocks agree
            clock.let_pass(STEP_SECONDS)
        passed += STEP_SECONDS
        return passed >= APART_SECONDS and until()

    wait_until(step, "the end of the lease")


def agents(laboratory: TlsLab) -> list[tuple[str, bool]]:
    """The identity of each agent, and whether the server heard of it lately."""
    with Client(laboratory.owner) as owner:
        return [(agent["agent_id"], agent["present"]) for agent in owner.agents()["agents"]]


def attempts(laboratory: TlsLab, campaign_id: str) -> list[tuple[str, bool]]:
    """How each attempt of the campaign's run ended, or that it has not, and whether its launches count."""
    with Client(laboratory.owner) as owner:
        found = owner.run(f"{campaign_id}.0000")["attempts"]
        return [(str(each["state"]), each["counts"]) for each in found]


def test_two_hosts_apart_for_ten_minutes_by_all_their_clocks() -> None:
    """Neither host hears the other while ten minutes pass for both, in the middle of a run.

    The server gives the run up, and the agent measures on. Then they hear each other again: the agent, with
    the identity that it had, delivers what it has or measures again, and each launch is published once.
    """
    with two_hosts() as hosts, tls_lab(hosts, validity="24h") as laboratory:
        if hosts.wire is None:
            pytest.skip("there is no wire between two hosts that could be cut")
        set_up_clocks(laboratory)
        folder = begin(laboratory)
        issued = serial(folder)
        campaign_id = laboratory.submit("apart", APART_SECONDS / 2)
        wait_until(lambda: laboratory.status(campaign_id)["runs_running"] == 1, "the run's start")
        [(agent_id, _)] = agents(laboratory)
        hosts.wire.set(PacketWeather(deaf_near=True, deaf_far=True))
        apart(laboratory, lambda: laboratory.status(campaign_id)["runs_running"] == 0)
        assert attempts(laboratory, campaign_id) == [("expired", False)]
        assert agents(laboratory) == [(agent_id, False)]
        hosts.wire.set(PacketWeather())
        check_launches(laboratory, campaign_id)
        ended = attempts(laboratory, campaign_id)
        assert [state for state, counts in ended if counts] == ["published"]
        wait_until(lambda: agents(laboratory) == [(agent_id, True)], "a sign of life of the same agent")
        assert serial(folder) == issued
        assert hosts.wire.counts.unheard > 0
